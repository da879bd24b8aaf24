"""Bulyan: choose by repeated Krum, then average the middle of each coordinate.

El Mhamdi, Guerraoui & Rouault, "The hidden vulnerability of distributed learning in Byzantium" (2018), section 4:
theta = n - 2m updates are chosen, each by Krum among those that are left; each coordinate of the result is the mean of
the beta = theta - 2m chosen values nearest to their median. Promises something for n >= 4m + 3.
"""

import numpy as np
from numpy.typing import NDArray

from foltr.aggregation.coordinates import column_blocks
from foltr.aggregation.distances import PairDistances, careful_distances, plain_distances
from foltr.aggregation.krum import least
from foltr.aggregation.round_report import Aggregate

# Scores are kept up to date by subtraction. One that has fallen below this part of what it was when it was last
# summed up has lost digits to it, and is summed up again.
_FALLEN = 1e-3


def bulyan(rows: NDArray[np.floating], m: int) -> Aggregate:
    """Bulyan of rows (n, d), float32 or float64, finite; n >= 4m + 1.

    Distances and their order, n^2 numbers of 8 bytes in all, are kept: more than the updates where d < 2n. ``shares``
    has 1 / theta for each chosen update, whose values may be among the middle ones. Where Krum among those left would
    have no neighbour to judge by (m = 1, the last choice), it judges by the nearest.
    """
    n = len(rows)
    n_chosen, n_middle = n - 2 * m, n - 4 * m
    if n_middle < 1:
        raise ValueError(f"m = {m} of n = {n}: 4 * m must be below n")
    chosen, scores = _chosen(rows, m, n_chosen)
    shares = np.zeros(n)
    shares[chosen] = 1 / n_chosen
    return Aggregate(_mean_of_middle(rows, chosen, n_middle), shares, scores)


def _chosen(rows: NDArray[np.floating], m: int, n_chosen: int) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """The chosen rows in order, and for each row (n,) the score at which it was chosen or left."""
    n = len(rows)
    if m == 0:
        return np.arange(n), np.zeros(n)
    plain = plain_distances(rows)
    if plain is not None:
        neighbours = _Neighbours(plain, n - m - 2)
        # The last choices are made by the fewest neighbours, so theirs must be accurate too.
        fewest = neighbours.near[:, : max(1, m - 1)].mean(axis=1)
        if not plain.are_doubtful(fewest):
            return neighbours.choose(m, n_chosen)
    with np.errstate(over="ignore", invalid="ignore"):  # beyond float64 is as far as can be
        return _Neighbours(careful_distances(rows), n - m - 2).choose(m, n_chosen)


class _Neighbours:
    """Each row's squared distances in order, of which it counts the nearest ``n_near`` that are still there.

    Attributes:
        near: (n, n) the distances of each row in order; its own is infinite and last.
    """

    def __init__(self, distances: PairDistances, n_near: int) -> None:
        n = len(distances.rows)
        index = np.uint16 if n <= np.iinfo(np.uint16).max else np.uint32
        self.near = np.empty((n, n), distances.squares.dtype)
        # Row i of the order has the neighbours of i; column i of the rank has the places of all rows in it. So the
        # places of one row among the neighbours of all lie side by side.
        self._order, self._rank = np.empty((n, n), index), np.empty((n, n), index)
        places = np.arange(n, dtype=index)[:, None]
        farthest = np.finfo(np.float64).max / (8 * n)
        for start in range(0, n, distances.block_rows):
            stop = min(start + distances.block_rows, n)
            block = distances.less_own_square(start, stop)
            block += distances.squares[start:stop, None]
            np.maximum(block, 0, out=block)
            if block.dtype == np.float64:
                # Beyond the range is as far as can be added up and taken away again.
                np.nan_to_num(block, copy=False, nan=farthest, posinf=farthest)
            np.fill_diagonal(block[:, start:], np.inf)
            order = np.argsort(block, axis=1)
            self._order[start:stop] = order
            np.put_along_axis(self._rank[:, start:stop], order.T, places, axis=0)
            block.sort(axis=1)
            self.near[start:stop] = block
        self._there = np.ones(n, bool)
        self._n_near = n_near

    def choose(self, m: int, n_chosen: int) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """Choose the best, take it away, and go on among the others."""
        n = len(self.near)
        lines = np.arange(n)
        near, order, begins = self.near.reshape(-1), self._order.reshape(-1), lines * n
        # The last neighbour that each row counts, as a position in `near` and `order`.
        last = begins + (self._n_near - 1)
        scores = self._sums(lines)
        too_low = _FALLEN * scores
        chosen: list[int] = []
        at_choice = np.empty(n)
        for left in range(n - 1, n - 1 - n_chosen, -1):
            # Two updates that are each other's nearest tie, when that is all that counts.
            best = int(scores.argmin()) if self._n_near > 1 else least(scores)
            chosen.append(best)
            at_choice[best], scores[best] = scores[best], np.inf
            self._there[best] = False
            n_near = max(1, left - m - 2)
            if n_near == self._n_near:
                there = np.flatnonzero(self._there)
                scores[there] = self._sums(there)
                continue
            self._n_near = n_near
            place = begins + self._rank[best]
            # One neighbour fewer: the one taken away if it counted, else the farthest that did.
            scores -= near[np.minimum(place, last)]
            gone = np.flatnonzero(place >= last)
            while len(gone):
                before = last[gone] - 1
                last[gone] = before
                gone = gone[~self._there[order[before]]]
            fallen = scores < too_low
            if fallen.any():
                scores[fallen] = self._sums(lines[fallen])
                too_low[fallen] = _FALLEN * scores[fallen]
        at_choice[self._there] = scores[self._there]
        return np.array(chosen), at_choice

    def _sums(self, lines: NDArray[np.intp]) -> NDArray[np.float64]:
        """The score of each of these rows, from the distances themselves."""
        there = self._there[self._order[lines]]
        counted = there & (np.cumsum(there, axis=1, dtype=np.int32) <= self._n_near)
        sums: NDArray[np.float64] = np.where(counted, self.near[lines], 0).sum(axis=1, dtype=np.float64)
        return sums


def _mean_of_middle(rows: NDArray[np.floating], chosen: NDArray[np.intp], n_middle: int) -> NDArray[np.float64]:
    """(d,): the mean of each coordinate's n_middle values that are nearest to its median; the lower of two as near."""
    n, dim = len(chosen), rows.shape[1]
    vector = np.empty(dim)
    for columns, block in column_blocks(rows, np.sort(chosen)):
        block.sort(axis=1)
        lines = np.arange(len(block))
        middle = block[:, (n - 1) // 2] * 0.5 + block[:, n // 2] * 0.5
        # The nearest values lie side by side; their first is where the next one to the right is not nearer than it.
        first, beyond = np.zeros(len(block), np.intp), np.full(len(block), n - n_middle)
        while (first < beyond).any():
            at = (first + beyond) // 2
            in_reach = np.minimum(at + n_middle, n - 1)
            right = (at < beyond) & (block[lines, in_reach] - middle < middle - block[lines, at])
            first, beyond = np.where(right, at + 1, first), np.where(right, beyond, np.minimum(at, beyond))
        starts = lines * n + first
        # Every other stretch is a line's middle; those in between are of no use, and may hold sums beyond the range.
        bounds = np.column_stack([starts, starts + n_middle]).reshape(-1)
        flat = np.append(block.reshape(-1), 0) if bounds[-1] == block.size else block.reshape(-1)
        with np.errstate(over="ignore", invalid="ignore"):
            vector[columns] = np.add.reduceat(flat, bounds, dtype=np.float64)[::2]
    return vector / n_middle
