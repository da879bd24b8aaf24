"""Limits the effect of the weight that a client claims.

A weight is the number of interactions that a client says its update was learned from; nothing proves it. Under the
rules it means:

- Choosing (Krum, Multi-Krum, Bulyan, NNM, which values the trimmed mean drops) counts every client once.
- Averaging what was chosen (Multi-Krum, trimmed mean, norm bounding, bucketing) and weighing pulls (median, geometric
  median, centred clipping) use the weights, capped by `capped_weights`: a rule that withstands m of n clients would not
  withstand a single one that may claim a billion interactions.
- Krum returns one update and Bulyan the mean of middle values, so neither takes weights.
"""

import numpy as np
from numpy.typing import NDArray


def capped_weights(weights: NDArray[np.float64], m: int) -> NDArray[np.float64]:
    """The weights, the largest cut to one cap such that no m clients hold more than their limit of the total.

    The limit is halfway between m / n, which m equal clients hold, and the 1 / 2 at which the median falls.

    Args:
        weights: (n,) float64, all positive.
        m: how many hostile clients must be withstood. None: nothing is cut. Half or more: all count the same.
    """
    n = len(weights)
    if m <= 0 or weights.max() == weights.min():
        return weights
    if 2 * m >= n:
        return np.full(n, weights.min())
    limit = (m / n + 0.5) / 2
    ordered = np.sort(weights)[::-1]
    # The sum of all but the k largest, for k = 0..n.
    rest = np.append(np.cumsum(ordered[::-1])[::-1], 0.0)
    if ordered[:m].sum() <= limit * rest[0]:
        return weights
    # With the k largest at the cap W, m of them hold m W = limit (k W + rest_k). Use the smallest k whose W is at least
    # the next weight; limit > m / n makes the left side vanish before k reaches n.
    for k in range(m, n):
        free = m - limit * k
        cap = float(limit * rest[k] / free) if free > 0 else float(ordered[k - 1])
        if cap >= ordered[k]:
            return np.minimum(weights, cap, dtype=np.float64)
    return np.full(n, weights.min())
