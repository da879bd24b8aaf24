"""FedEraser for online learning to rank: new directions, old lengths (Liu et al. 2021; Wang's thesis, Section 6.1.2).

A calibration round replays a stored round of the federation without the client that left. The retained clients learn
from fewer interactions than in that round, and each update gets the length of the one that the client then sent.
"""

import math

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import DataError


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
