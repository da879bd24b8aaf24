"""FedEraser for online learning to rank: new directions, old lengths (Liu et al. 2021; Wang's thesis, Section 6.1.2).

A calibration round replays a stored round of the federation without the client that left. The retained clients learn
from fewer interactions than then, and each update is made as long as the one the client sent in the stored round.
"""

import math

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import DataError, SettingsError


def calibrated(length: float, delta: NDArray[np.floating]) -> NDArray[np.float64]:
    """|stored update| * delta / |delta| (thesis, Eq. 6.2).

    Args:
        length: L2 norm of the client's update in the stored round, at least 0.
        delta: (d,) what the client learned now. Zeros have no direction and stay zeros.

    Raises:
        DataError: the length is negative, or something is not finite.
    """
    if not (math.isfinite(length) and length >= 0.0):
        raise DataError(f"the stored update has length {length}, expected a finite number of at least 0")
    exact = delta.astype(np.float64)
    largest = float(np.abs(exact).max(initial=0.0))
    if not math.isfinite(largest):
        raise DataError("an update to calibrate contains a number that is not finite")
    if largest == 0.0:
        return exact
    # Divided first: the squares of very large or very small numbers would leave the range.
    direction: NDArray[np.float64] = exact / largest
    return direction * (length / float(np.linalg.norm(direction)))


def steps_saved(interactions: int, local_interactions: int, interval: int) -> float:
    """Return how many times fewer local updates a client makes than by retraining: n / n' * delta t (Section 6.1.3).

    Args:
        interactions: the thesis' n, those a client learned from in a round of the federation.
        local_interactions: the thesis' n', those it learns from in a calibration round.
        interval: the thesis' delta t.

    Raises:
        SettingsError: one of them is below 1.
    """
    if min(interactions, local_interactions, interval) < 1:
        raise SettingsError(
            "interactions, local_interactions and interval must be at least 1, not "
            f"{interactions}, {local_interactions} and {interval}"
        )
    return interactions / local_interactions * interval
