"""Rules that choose whole updates by their distances: Krum, Multi-Krum and Bulyan.

Blanchard, El Mhamdi, Guerraoui & Stainer, "Machine learning with adversaries: Byzantine tolerant gradient descent"
(2017), section 4; El Mhamdi, Guerraoui & Rouault, "The hidden vulnerability of distributed learning in Byzantium"
(2018), section 4. Krum's score is their sum of *squared* distances; the thesis' section 5.3.1 writes distances.
Rows are (n, d), float32 or float64, finite. Ties go to the client that comes first; scores within a millionth are a
tie, because float32 and the processor's order of addition are not more precise.
"""

import numpy as np
from numpy.typing import NDArray

from foltr.core.aggregation.coordinates import combination
from foltr.core.aggregation.distances import PairDistances, careful_distances, plain_distances
from foltr.core.aggregation.round_report import RuleResult

_SAME_SCORE = 1e-6


def krum(rows: NDArray[np.floating], m: int) -> RuleResult:
    """The update whose n - m - 2 nearest others are nearest; guaranteed to resist m attackers if n >= 2m + 3."""
    scores = krum_scores(rows, m)
    chosen = least(scores)
    shares = np.zeros(len(rows))
    shares[chosen] = 1.0
    return RuleResult(rows[chosen].astype(np.float64), shares, scores)


def multi_krum(rows: NDArray[np.floating], weights: NDArray[np.float64], m: int) -> RuleResult:
    """The weighted mean of the n - m updates with the smallest Krum scores (the thesis, Equation 5.3 with f = n - m).

    Args:
        weights: (n,) float64, positive; they affect the mean but not the choice.
    """
    scores = krum_scores(rows, m)
    chosen = _in_order(scores)[: max(1, len(rows) - m)]
    shares = np.zeros(len(rows))
    shares[chosen] = weights[chosen] / weights[chosen].sum()
    return RuleResult(combination(rows, shares), shares, scores)


def krum_scores(rows: NDArray[np.floating], m: int) -> NDArray[np.float64]:
    """(n,): the sum of the squared distances to the n - m - 2 nearest others, at least one."""
    n = len(rows)
    n_near = min(max(1, n - m - 2), n - 1)
    if n_near == 0:
        return np.zeros(n)
    plain = plain_distances(rows)
    if plain is not None:
        scores = _scores(plain, n_near)
        if not plain.are_doubtful(scores / n_near):
            return scores
    with np.errstate(over="ignore", invalid="ignore"):  # treat sums beyond float64 as infinite
        scores = _scores(careful_distances(rows), n_near)
    return np.where(scores >= 0, scores, np.where(np.isnan(scores), np.inf, 0.0))


def least(scores: NDArray[np.float64]) -> int:
    """The first of those within a millionth of the smallest."""
    return int((scores <= scores.min() * (1 + _SAME_SCORE)).argmax())


def _in_order(scores: NDArray[np.float64]) -> NDArray[np.intp]:
    """Positions (n,) by score; ties keep their order."""
    order = np.argsort(scores, kind="stable")
    ordered = scores[order]
    with np.errstate(invalid="ignore"):  # between two infinities
        larger = ordered[1:] > ordered[:-1] * (1 + _SAME_SCORE)
    if larger.all():
        return order
    return order[np.lexsort((order, np.append(0, np.cumsum(larger))))]


def _scores(distances: PairDistances, n_near: int) -> NDArray[np.float64]:
    n = len(distances.rows)
    scores = np.empty(n)
    for start in range(0, n, distances.block_rows):
        stop = min(start + distances.block_rows, n)
        scores[start:stop] = _sums_of_nearest(distances, start, stop, n_near)
    scores += n_near * distances.squares.astype(np.float64)
    return scores


def _sums_of_nearest(distances: PairDistances, start: int, stop: int, n_near: int) -> NDArray[np.float64]:
    # A separate function, so that a block is freed before the next one is made.
    near = distances.less_own_square(start, stop)
    np.fill_diagonal(near[:, start:], np.inf)
    near.partition(n_near - 1, axis=1)
    sums: NDArray[np.float64] = np.add.reduce(near[:, :n_near], axis=1, dtype=np.float64)
    return sums
