"""What a round costs beside its updates, from the times of rounds of several sizes."""

from collections.abc import Sequence

import numpy as np


def fixed_cost(sizes: Sequence[int], round_ms: Sequence[float]) -> float | None:
    """Return the intercept of the line over ``sizes`` that has the least relative errors; None for less than two sizes.

    By absolute errors the longest round would decide: a hundredth of a round of 1,000 is a whole round of 10.
    """
    if len(set(sizes)) < 2:
        return None
    _, intercept = np.polyfit(sizes, round_ms, 1, w=1 / np.asarray(round_ms))
    return float(intercept)
