"""Directions in which an attack moves the ranker: unit vectors that depend only on the model a round trains from.

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
    """(d,) of length 1; zeros if no such direction exists, for example before anything was learned.

    ``reverse`` is against the model, so that its first documents become last. ``orthogonal`` lowers every feature's
    weight, projected orthogonally to the model, which stands for the direction of progress that clients are compared
    with. ``feature`` lowers one weight: only documents with much of this feature are demoted.

    Args:
        model: (d,) that the round trains from.
        feature: its number, from 1, in a linear ranker.

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
    """(d,) of length 1; zeros for a vector of mere rounding errors."""
    length = float(np.linalg.norm(vector))
    return vector / length if length > _ROUNDING else np.zeros_like(vector)


def without(rows: NDArray[np.float64], direction: NDArray[np.float64]) -> NDArray[np.float64]:
    """(..., d) the rows minus their part along a unit vector or zeros (d,)."""
    left: NDArray[np.float64] = rows - (rows @ direction)[..., None] * direction
    return left
