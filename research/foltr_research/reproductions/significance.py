"""The papers' test of two systems: Student's t, two-sided, paired, with Bonferroni's correction, and its markers.

"Statistical significant differences between system pairs are evaluated using two-tailed Student's t-test with
Bonferroni correction" (thesis, Section 2.2.1). Pairs are runs with the same seed, or values of the same query.
"""

import numpy as np
from numpy.typing import NDArray

LEGEND = "△ ▽ (p < 0.05) and ▲ ▼ (p < 0.01)"
_MARKERS = ((0.01, "▲", "▼"), (0.05, "△", "▽"))


def paired_t_test(first: NDArray[np.floating], second: NDArray[np.floating]) -> float:
    """Return p of the hypothesis that the mean of first - second is 0, two-sided; NaN for fewer than two pairs.

    Args:
        first, second: (pairs,) values of two systems on the same seeds or queries.
    """
    # scipy takes longer to import than everything else that a report needs.
    from scipy.special import stdtr

    differences = np.asarray(first, np.float64) - np.asarray(second, np.float64)
    n = len(differences)
    if n < 2:
        return float("nan")
    mean, error = float(differences.mean()), float(differences.std(ddof=1) / np.sqrt(n))
    if error == 0.0:
        return 0.0 if mean else 1.0
    return float(2.0 * stdtr(n - 1, -abs(mean) / error))


def bonferroni(p: float, n_comparisons: int) -> float:
    """Return p corrected for a number of comparisons: at most 1, NaN stays NaN."""
    return float(np.minimum(1.0, p * n_comparisons))


def marker(difference: float, p: float) -> str:
    """Return the papers' triangle for a difference with this corrected p; empty if it is not significant."""
    for level, above, below in _MARKERS:
        if p < level:
            return above if difference > 0 else below
    return ""
