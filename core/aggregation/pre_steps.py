"""Steps before a rule, which mix the updates so that the honest ones differ less.

- Nearest-neighbour mixing: Allouah, Farhadkhani, Guerraoui, Gupta, Pinot & Stephan, "Fixing by mixing: a recipe for
  optimal Byzantine ML under heterogeneity" (2023), Algorithm 2.
- Bucketing: Karimireddy, He & Jaggi, "Byzantine-robust learning on heterogeneous datasets via bucketing" (2022),
  Algorithm 1.

Rows are (n, d), float32 or float64, finite.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foltr.core.aggregation.coordinates import block_length
from foltr.core.aggregation.distances import PairDistances, careful_distances, plain_distances

_CACHED_BYTES = 512 * 1024


@dataclass(frozen=True, slots=True, eq=False)
class MixedUpdates:
    """A rule gets these mixed rows instead of the updates.

    Attributes:
        rows: (n', d) in the dtype of the updates.
        weights: (n',) float64.
        row_of: (n,): the mixed row whose score stands for each update's.
        shares_of_updates: turns shares (n',) of the result into those (n,) of the updates.
    """

    rows: NDArray[np.floating]
    weights: NDArray[np.float64]
    row_of: NDArray[np.intp]
    shares_of_updates: Callable[[NDArray[np.float64]], NDArray[np.float64]]


def nnm(rows: NDArray[np.floating], weights: NDArray[np.float64], m: int) -> MixedUpdates:
    """Replace each update by the mean of the n - m nearest to it, itself included.

    The mean is unweighted: each neighbour counts once. A row keeps the weight of its client.
    """
    n = len(rows)
    n_near = max(1, n - m)
    plain = plain_distances(rows)
    mixture = _mixed(plain, n_near) if plain is not None else None
    if mixture is None or mixture[2]:
        mixture = None  # free the inaccurate rows
        with np.errstate(over="ignore", invalid="ignore"):  # treat sums beyond float64 as infinite
            mixture = _mixed(careful_distances(rows), n_near)
    mixed, neighbours, _ = mixture

    def shares_of_updates(shares: NDArray[np.float64]) -> NDArray[np.float64]:
        totals = np.zeros(n)
        for i in np.flatnonzero(shares).tolist():
            totals += shares[i] * np.unpackbits(neighbours[i], count=n)
        return totals / n_near

    return MixedUpdates(mixed, weights, np.arange(n), shares_of_updates)


def _mixed(distances: PairDistances, n_near: int) -> tuple[NDArray[np.floating], NDArray[np.uint8], bool]:
    """Return the mixed rows (n, d), in bits (n, ceil(n / 8)) who is in each, and whether the distances are doubtful."""
    rows, n = distances.rows, len(distances.rows)
    mixed = np.empty_like(rows, order="C")
    neighbours = np.empty((n, (n + 7) // 8), np.uint8)
    farthest = np.empty(n)
    for start in range(0, n, distances.block_rows):
        stop = min(start + distances.block_rows, n)
        block = distances.less_own_square(start, stop)
        block[np.isnan(block)] = np.inf
        np.fill_diagonal(block[:, start:], -np.inf)
        weights = np.partition(block, n_near - 1, axis=1)
        edge = weights[:, n_near - 1, None].copy()
        farthest[start:stop] = edge[:, 0]
        near = block <= edge
        for i in np.flatnonzero(np.count_nonzero(near, axis=1) > n_near).tolist():
            near[i] = False
            near[i, np.argsort(block[i], kind="stable")[:n_near]] = True
        neighbours[start:stop] = np.packbits(near, axis=1)
        # Divide before summing, since sums of huge updates may leave the range.
        weights[...] = near
        weights *= 1 / n_near
        np.matmul(weights.astype(rows.dtype, copy=False), rows, out=mixed[start:stop])
    return mixed, neighbours, n_near > 1 and distances.are_doubtful(farthest + distances.squares)


def bucketing(
    rows: NDArray[np.floating], weights: NDArray[np.float64], bucket_size: int, rng: np.random.Generator
) -> MixedUpdates:
    """Shuffle, and average every ``bucket_size`` updates with their weights; the last bucket may be smaller.

    A bucket's weight is the sum of its updates' weights. Returns ceil(n / bucket_size) rows.
    """
    n, dim = rows.shape
    order = rng.permutation(n)
    bucket_of = np.empty(n, np.intp)
    bucket_of[order] = np.arange(n) // bucket_size
    totals = np.bincount(bucket_of, weights).astype(np.float64)
    parts = weights / totals[bucket_of]
    mixed = np.empty((len(totals), dim), rows.dtype)
    factors = parts.astype(rows.dtype)[:, None]
    length = block_length(rows, dim, _CACHED_BYTES)
    for start in range(0, len(totals), length):
        stop = min(start + length, len(totals))
        for place in range(bucket_size):
            members = order[start * bucket_size + place : stop * bucket_size : bucket_size]
            if place == 0:
                np.multiply(rows[members], factors[members], out=mixed[start:stop])
            else:
                mixed[start : start + len(members)] += rows[members] * factors[members]

    def shares_of_updates(shares: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(shares[bucket_of] * parts)

    return MixedUpdates(mixed, totals, bucket_of, shares_of_updates)
