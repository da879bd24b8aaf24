"""How far two models are from each other, and whether they point the same way."""

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import DataError


def relative_distance(a: NDArray[np.floating], b: NDArray[np.floating]) -> float:
    """|a - b| / |b| of two models (d,): 0 for equal ones.

    Raises:
        DataError: b is all zeros and a is not, or the shapes differ.
    """
    first, second = in_float64(a, b)
    distance, length = float(np.linalg.norm(first - second)), float(np.linalg.norm(second))
    if length == 0.0 and distance > 0.0:
        raise DataError("the distance relative to a model of zeros is undefined")
    return distance / length if distance else 0.0


def cosine(a: NDArray[np.floating], b: NDArray[np.floating]) -> float:
    """Cosine of the angle between two models (d,): 1 for linear rankers that rank alike.

    Raises:
        DataError: one of them is all zeros, or the shapes differ.
    """
    first, second = in_float64(a, b)
    lengths = float(np.linalg.norm(first)) * float(np.linalg.norm(second))
    if lengths == 0.0:
        raise DataError("a model of zeros has no direction")
    return float(np.clip(first @ second / lengths, -1.0, 1.0))


def in_float64(a: NDArray[np.floating], b: NDArray[np.floating]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return both models (d,) in float64; DataError if their shapes differ."""
    if a.ndim != 1 or a.shape != b.shape:
        raise DataError(f"shapes {a.shape} and {b.shape}, expected one length")
    return a.astype(np.float64), b.astype(np.float64)
