"""Rules that work on each coordinate by itself: the weighted mean, the trimmed mean and the median.

Yin, Chen, Ramchandran & Bartlett, "Byzantine-robust distributed learning: towards optimal statistical rates" (2018),
Definitions 1 and 2; the thesis, Equations 5.4 and 5.5. Rows are (n, d), float32 or float64, finite; weights are (n,)
float64 and positive (see `foltr.core.aggregation.claimed_weights`). Values are sorted along memory in blocks of columns
that fit the processor's cache: NumPy sorts such rows several times faster than it partitions or sorts across them.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from foltr.core.aggregation.round_report import RuleResult

# Smaller blocks cost more time than they save memory.
_LEAST_BYTES = 64 * 1024
_CACHED_BYTES = 512 * 1024
# With weights, which need several arrays of float64 beside each block.
_WEIGHED_BYTES = 128 * 1024


def block_length(rows: NDArray[np.floating], line: int, most_bytes: int, part: float = 0.25) -> int:
    """Return how many lines of ``line`` numbers a rule works on at a time.

    Enough to be fast, and few enough to need no second copy of ``rows`` (n, d): at most this part of them and
    ``most_bytes``, and at least one line.
    """
    limit = min(max(int(rows.nbytes * part), _LEAST_BYTES), most_bytes)
    return max(1, limit // (max(1, line) * rows.itemsize))


def weighted_mean(rows: NDArray[np.floating], weights: NDArray[np.float64]) -> RuleResult:
    """sum w_i x_i / sum w_i. Products are summed in the dtype of the rows over a block, the blocks in float64."""
    shares = weights / weights.sum()
    return RuleResult(combination(rows, shares), shares)


def combination(rows: NDArray[np.floating], factors: NDArray[np.float64]) -> NDArray[np.float64]:
    """(d,) float64: sum of factors[i] * rows[i]."""
    n, dim = rows.shape
    length = max(64, block_length(rows, dim, _CACHED_BYTES))
    factors = factors.astype(rows.dtype)
    if n <= length:
        return np.asarray(factors @ rows, np.float64)
    total = np.zeros(dim)
    for start in range(0, n, length):
        total += factors[start : start + length] @ rows[start : start + length]
    return total


def trimmed_mean(
    rows: NDArray[np.floating], weights: NDArray[np.float64], beta: int, *, with_shares: bool = False
) -> RuleResult:
    """The mean of each coordinate without its ``beta`` smallest and ``beta`` largest values; n > 2 beta.

    Weights do not affect which values are dropped. If equal values straddle the edge, each of them is kept in the same
    part, so that the result does not depend on the order of the clients.
    """
    n, dim = rows.shape
    if not 0 <= 2 * beta < n:
        raise ValueError(f"beta = {beta} of n = {n}: 2 * beta must be below n")
    if with_shares or not _all_equal(weights):
        return _weighted_trimmed_mean(rows, weights, beta, with_shares)
    vector = np.empty(dim)
    for columns, block in column_blocks(rows):
        block.sort(axis=1)
        np.add.reduce(block[:, beta : n - beta], axis=1, dtype=np.float64, out=vector[columns])
    vector /= n - 2 * beta
    return RuleResult(vector)


def median(rows: NDArray[np.floating], weights: NDArray[np.float64], *, with_shares: bool = False) -> RuleResult:
    """The median of each coordinate, weighted if weights differ.

    For an even number of equal weights it is the mean of the middle two. For other weights it is the value at which
    half of the weight is reached, or the mean of that and the next one if it is reached exactly.
    """
    n, dim = rows.shape
    lower, upper = (np.empty(dim, rows.dtype) for _ in range(2))
    equal = _all_equal(weights)
    for columns, block in column_blocks(rows, most_bytes=_CACHED_BYTES if equal else _WEIGHED_BYTES):
        if equal:
            block.sort(axis=1)
            lower[columns], upper[columns] = block[:, (n - 1) // 2], block[:, n // 2]
        else:
            lower[columns], upper[columns] = _weighted_middle(block, weights)
    # Halve first: the sum of two large values may overflow.
    vector = lower * 0.5 + upper * 0.5 if rows.dtype == np.float64 else (lower.astype(np.float64) + upper) / 2
    shares = _shares_of_values(rows, weights, lower, upper) if with_shares else None
    return RuleResult(vector, shares)


def scaled_median(
    rows: NDArray[np.floating], factors: NDArray[np.float64], chosen: NDArray[np.intp]
) -> NDArray[np.float64]:
    """Return (d,) the median of each coordinate over the chosen rows, each multiplied by its factor (n,) first."""
    n = len(chosen)
    of_chosen = factors[chosen].astype(rows.dtype)
    vector = np.empty(rows.shape[1])
    for columns, block in column_blocks(rows, None if n == len(rows) else chosen):
        block *= of_chosen
        block.sort(axis=1)
        vector[columns] = (block[:, (n - 1) // 2].astype(np.float64) + block[:, n // 2]) / 2
    return vector


def _all_equal(weights: NDArray[np.float64]) -> bool:
    return bool((weights == weights[0]).all())


def column_blocks(
    rows: NDArray[np.floating], chosen: NDArray[np.intp] | None = None, most_bytes: int = _CACHED_BYTES
) -> Iterator[tuple[slice, NDArray[np.floating]]]:
    """Yield (columns, their values as a (columns, n) array that may be overwritten and is valid until the next one).

    Args:
        chosen: the rows that count; None for all.
    """
    dim = rows.shape[1]
    n = len(rows if chosen is None else chosen)
    length = min(dim, block_length(rows, n, most_bytes))
    buffer = np.empty((length, n), rows.dtype)
    for start in range(0, dim, length):
        columns = slice(start, min(start + length, dim))
        block = buffer[: columns.stop - start]
        block[...] = (rows[:, columns] if chosen is None else rows[chosen, columns]).T
        yield columns, block


def _weighted_trimmed_mean(
    rows: NDArray[np.floating], weights: NDArray[np.float64], beta: int, with_shares: bool
) -> RuleResult:
    n, dim = rows.shape
    vector, shares = np.empty(dim), np.zeros(n)
    for columns, block in column_blocks(rows, most_bytes=_WEIGHED_BYTES):
        ordered = np.sort(block, axis=1)
        low, high = ordered[:, beta, None], ordered[:, n - beta - 1, None]
        kept = ((block > low) & (block < high)) * weights
        for edge in (low, high):
            tied = block == edge
            # How many tied values are kept: those of the sorted row that lie between the two ends.
            n_kept = (ordered[:, beta : n - beta] == edge).sum(axis=1, keepdims=True)
            kept = np.where(tied, weights * (n_kept / tied.sum(axis=1, keepdims=True)), kept)
        total = kept.sum(axis=1)
        # Relative to the lower edge, so that equal values are returned exactly.
        vector[columns] = low[:, 0] + np.einsum("ij,ij->i", kept, block - low.astype(np.float64)) / total
        shares += (kept / total[:, None]).sum(axis=0)
    return RuleResult(vector, shares / dim if with_shares else None)


def _weighted_middle(
    block: NDArray[np.floating], weights: NDArray[np.float64]
) -> tuple[NDArray[np.floating], NDArray[np.floating]]:
    """The values (columns,) below and above the middle of the weight; equal if one value covers the middle."""
    order = np.argsort(block, axis=1)
    reached = np.cumsum(weights[order], axis=1)
    # Sums of capped weights are inexact; ignore tiny differences.
    half, hair = reached[:, -1:] / 2, reached[:, -1:] * 1e-12
    lines = np.arange(len(block))
    low = (reached < half - hair).sum(axis=1)
    high = (reached <= half + hair).sum(axis=1)
    return block[lines, order[lines, low]], block[lines, order[lines, high]]


def _shares_of_values(
    rows: NDArray[np.floating],
    weights: NDArray[np.float64],
    lower: NDArray[np.floating],
    upper: NDArray[np.floating],
) -> NDArray[np.float64]:
    """(n,): each of the two middle values counts half; clients that sent the same value share it by weight."""
    n, dim = rows.shape
    shares = np.zeros(n, np.float64)
    for columns, block in column_blocks(rows, most_bytes=_WEIGHED_BYTES):
        for middle in (lower, upper):
            held = (block == middle[columns, None]) * weights
            shares += (held / held.sum(axis=1, keepdims=True)).sum(axis=0)
    shares /= 2 * dim
    return shares
