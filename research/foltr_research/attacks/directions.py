"""Directions in which an attack leads the ranker: unit vectors, from the model that the round trains from alone.

Shapes: d values of a model or an update; float64.
"""

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import SettingsError

Towards = Literal["reverse", "orthogonal", "feature"]
TOWARDS: tuple[Towards, ...] = get_args(Towards)
_ROUNDING = 1e-9


def direction_of(towards: Towards, model: NDArray[np.float64], feature: int = 1) -> NDArray[np.float64]:
    """(d,) of length 1; zeros where there is no such direction, as before anything was learned.

    ``reverse`` is against the model: what it ranks first is to be last. ``orthogonal`` lets every feature count for
    less, as far as that is orthogonal to the model, which stands for the direction of progress that clients are
    compared with. ``feature`` lowers one weight: documents with much of this feature are demoted, and no others.

    Args:
        model: (d,) that the round trains from.
        feature: which one, from 1; of a linear ranker.

    Raises:
        SettingsError: the model has no such feature.
    """
    match towards:
        case "reverse":
            return unit(-model)
        case "orthogonal":
            return unit(without(-np.ones_like(model), unit(model)))
    if feature > len(model):
        raise SettingsError(f"attack_parameters: feature: {feature}; the ranker has {len(model)}")
    lowered = np.zeros_like(model)
    lowered[feature - 1] = -1.0
    return lowered


def unit(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """(d,) of length 1; zeros where there is nothing but rounding."""
    length = float(np.linalg.norm(vector))
    return vector / length if length > _ROUNDING else np.zeros_like(vector)


def without(rows: NDArray[np.float64], direction: NDArray[np.float64]) -> NDArray[np.float64]:
    """(..., d) what is left of the rows without their part along a unit vector or zeros (d,)."""
    left: NDArray[np.float64] = rows - (rows @ direction)[..., None] * direction
    return left
