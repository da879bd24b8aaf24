"""Bulyan: choose by repeated Krum, then average the middle of each coordinate.

El Mhamdi, Guerraoui & Rouault, "The hidden vulnerability of distributed learning in Byzantium" (2018), section 4: theta
= n - 2m updates are chosen, each by Krum among the remaining ones; each coordinate of the result is the mean of the
beta = theta - 2m chosen values nearest to their median. Resists m attackers if n >= 4m + 3.
"""

import numpy as np
from numpy.typing import NDArray

from foltr.core.aggregation.coordinates import column_blocks
from foltr.core.aggregation.distances import PairDistances, careful_distances, plain_distances
from foltr.core.aggregation.krum import least
from foltr.core.aggregation.round_report import RuleResult

# Scores are updated by subtraction. One that falls below this part of its last full sum is inexact, and summed again.
_FALLEN = 1e-3


def bulyan(rows: NDArray[np.floating], m: int) -> RuleResult:
    """Bulyan of rows (n, d), float32 or float64, finite; n >= 4m + 1.

    Distances and their order, n^2 numbers of 6 bytes in all, are kept: more than the updates if d < 1.5 n. ``shares``
    has 1 / theta for each chosen update, whose values may be among the middle ones. If Krum among the rest has no
    neighbour to judge by (m = 1, the last choice), it uses the nearest.
    """
    n = len(rows)
    n_chosen, n_middle = n - 2 * m, n - 4 * m
    if n_middle < 1:
        raise ValueError(f"m = {m} of n = {n}: 4 * m must be below n")
    chosen, scores = _chosen(rows, m, n_chosen)
    shares = np.zeros(n)
    shares[chosen] = 1 / n_chosen
    return RuleResult(_mean_of_middle(rows, chosen, n_middle), shares, scores)


def _chosen(rows: NDArray[np.floating], m: int, n_chosen: int) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """Return the chosen rows in order, and for each row (n,) its score when it was chosen or left."""
    n = len(rows)
    if m == 0:
        return np.arange(n), np.zeros(n)
    plain = plain_distances(rows)
    if plain is not None:
        # The last choices depend on the fewest neighbours, so those must be accurate too.
        neighbours = _Neighbours(plain, n - m - 2, max(1, m - 1))
        if not plain.are_doubtful(neighbours.fewest_means):
            return neighbours.choose(m, n_chosen)
        del neighbours
    with np.errstate(over="ignore", invalid="ignore"):  # treat sums beyond float64 as infinite
        return _Neighbours(careful_distances(rows), n - m - 2, 1).choose(m, n_chosen)


class _Neighbours:
    """Each row's squared distances, of which it counts the ``n_near`` nearest remaining ones.

    Args:
        n_fewest: over how many of the nearest to return the mean.

    Attributes:
        fewest_means: (n,) the mean distance to so many nearest.
    """

    def __init__(self, distances: PairDistances, n_near: int, n_fewest: int) -> None:
        n = len(distances.rows)
        # All at once, since all are kept: the product of the rows with themselves costs half of other products.
        self._distances = distances.products()
        dtype = self._distances.dtype
        # By distance, ties by number, so two comparisons tell whether a neighbour is counted.
        self._order = np.empty((n, n), np.uint16 if n <= np.iinfo(np.uint16).max else np.uint32)
        self.fewest_means = np.empty(n, dtype)
        self._scores = np.empty(n)
        of_fewest = np.full(n_fewest, 1 / n_fewest, dtype)
        # Half of the usual rows at a time, because keys are twice as long.
        sorting = _Sorting(self._distances, max(1, distances.block_rows // 2))
        for start in range(0, n, sorting.block_rows):
            stop = min(start + sorting.block_rows, n)
            distances.complete(self._distances, start, stop)
            near = sorting.sort(start, stop, self._order[start:stop])
            self.fewest_means[start:stop] = near[:, :n_fewest] @ of_fewest
            near[:, n_near:] = 0
            self._scores[start:stop] = near.sum(axis=1, dtype=np.float64)
        self._gone = np.zeros(n, bool)
        self._n_near = n_near

    def choose(self, m: int, n_chosen: int) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        """Choose the best, remove it, and continue with the rest."""
        distances, scores = self._distances, self._scores
        n = len(distances)
        lines = np.arange(n)
        flat, order = distances.reshape(-1), self._order.reshape(-1)
        # Each row's last counted neighbour: its place in the order, its number and its distance.
        begins = lines * n
        last = begins + (self._n_near - 1)
        edge_row = order[last]
        edge = flat[begins + edge_row].astype(np.float64)
        too_low = _FALLEN * scores
        lost, is_last, is_behind, fallen = np.empty(n), np.empty(n, bool), np.empty(n, bool), np.empty(n, bool)
        chosen: list[int] = []
        at_choice = np.empty(n)
        for left in range(n - 1, n - 1 - n_chosen, -1):
            # With one neighbour, two updates that are each other's nearest tie.
            best = int(scores.argmin()) if self._n_near > 1 else least(scores)
            chosen.append(best)
            at_choice[best], scores[best] = scores[best], np.inf
            self._gone[best] = True
            n_near = max(1, left - m - 2)
            if n_near == self._n_near:
                there = np.flatnonzero(~self._gone)
                scores[there] = self._sums(there)
                continue
            self._n_near = n_near
            # A row instead of the equal column: contiguous memory is read faster.
            taken = distances[best].astype(np.float64)
            # Its score is final: it loses nothing, and its last neighbour is never needed again.
            taken[best], edge[best] = 0, np.inf
            # One neighbour fewer: the removed one if it counted, else the farthest that did.
            np.minimum(taken, edge, out=lost)
            scores -= lost
            # If the removed one is the last counted neighbour, or behind it, the one before becomes the last.
            np.equal(edge_row, best, out=is_last)
            edge_row[best] = best
            np.greater(taken, edge, out=is_behind)
            gone = np.logical_or(is_behind, is_last, out=is_behind).nonzero()[0]
            if np.count_nonzero(np.equal(lost, edge, out=is_last)) != len(gone):
                # At the same distance, the number decides whether it comes before or after.
                gone = (is_behind | (is_last & (edge_row < best))).nonzero()[0]
            if len(gone):
                place = last.take(gone)
                place -= 1
                rows = order.take(place)
                while np.count_nonzero(stepping := self._gone.take(rows)):
                    place -= stepping
                    rows = order.take(place)
                last[gone] = place
                edge_row[gone] = rows
                edge[gone] = flat.take(begins.take(gone) + rows)
            np.less(scores, too_low, out=fallen)
            if np.count_nonzero(fallen):
                scores[fallen] = self._sums(lines[fallen])
                too_low[fallen] = _FALLEN * scores[fallen]
        at_choice[~self._gone] = scores[~self._gone]
        return np.array(chosen), at_choice

    def _sums(self, lines: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the score of each of these rows, from the distances themselves."""
        order = self._order[lines]
        there = ~self._gone[order]
        counted = there & (np.cumsum(there, axis=1, dtype=np.int32) <= self._n_near)
        near = np.take_along_axis(self._distances[lines], order.astype(np.intp), axis=1)
        sums: NDArray[np.float64] = np.where(counted, near, 0).sum(axis=1, dtype=np.float64)
        return sums


class _Sorting:
    """Sorts rows of squared distances (n, n), some at a time, reusing its memory.

    Args:
        distances: sorting a row sets values that rounding made negative to 0, and its distance to itself to infinity.
    """

    def __init__(self, distances: NDArray[np.floating], block_rows: int) -> None:
        n = len(distances)
        self.block_rows = block_rows
        self._distances = distances
        self._numbers = np.arange(n, dtype=np.uint64)
        if distances.dtype == np.float32:
            self._keys, self._near = np.empty((block_rows, n), np.uint64), np.empty((block_rows, n), np.uint32)

    def sort(self, start: int, stop: int, order: NDArray[np.integer]) -> NDArray[np.floating]:
        """Return some rows in order, in a buffer that the caller may overwrite; ties are ordered by number.

        Args:
            order: (stop - start, n), receives the numbers.
        """
        block = self._distances[start:stop]
        if block.dtype != np.float32:
            return self._sort_by_index(block, start, order)
        # Floats of one sign order like integers. So distance and number are sorted as one integer, which is faster than
        # sorting an index. A negative float is a negative integer, and so is -0.
        np.maximum(block.view(np.int32), 0, out=block.view(np.int32))
        np.fill_diagonal(block[:, start:], np.inf)
        keys, near = self._keys[: stop - start], self._near[: stop - start]
        keys[:] = block.view(np.uint32)
        keys <<= 32
        keys |= self._numbers
        keys.sort(axis=1)
        order[:] = keys
        keys >>= 32
        near[:] = keys
        return near.view(np.float32)

    def _sort_by_index(
        self, block: NDArray[np.floating], start: int, order: NDArray[np.integer]
    ) -> NDArray[np.floating]:
        np.maximum(block, 0, out=block)
        # Values beyond this are clipped, so that sums and differences stay finite.
        farthest = np.finfo(np.float64).max / (8 * block.shape[1])
        np.nan_to_num(block, copy=False, nan=farthest, posinf=farthest)
        np.fill_diagonal(block[:, start:], np.inf)
        places = np.argsort(block, axis=1, kind="stable")
        order[:] = places
        return np.take_along_axis(block, places, axis=1)


def _mean_of_middle(rows: NDArray[np.floating], chosen: NDArray[np.intp], n_middle: int) -> NDArray[np.float64]:
    """Return (d,) the mean of each coordinate's n_middle values nearest to its median; ties go to the lower one."""
    n, dim = len(chosen), rows.shape[1]
    vector = np.empty(dim)
    for columns, block in column_blocks(rows, np.sort(chosen)):
        block.sort(axis=1)
        lines = np.arange(len(block))
        middle = block[:, (n - 1) // 2] * 0.5 + block[:, n // 2] * 0.5
        # The nearest values are contiguous; they begin at the first one not farther than the next to the right of the
        # range.
        first, beyond = np.zeros(len(block), np.intp), np.full(len(block), n - n_middle)
        while (first < beyond).any():
            at = (first + beyond) // 2
            in_reach = np.minimum(at + n_middle, n - 1)
            right = (at < beyond) & (block[lines, in_reach] - middle < middle - block[lines, at])
            first, beyond = np.where(right, at + 1, first), np.where(right, beyond, np.minimum(at, beyond))
        starts = lines * n + first
        # Every second range is a line's middle; the others are unused, and may hold sums beyond the range.
        bounds = np.column_stack([starts, starts + n_middle]).reshape(-1)
        flat = np.append(block.reshape(-1), 0) if bounds[-1] == block.size else block.reshape(-1)
        with np.errstate(over="ignore", invalid="ignore"):
            vector[columns] = np.add.reduceat(flat, bounds, dtype=np.float64)[::2]
    return vector / n_middle
