"""Metrics say how good a ranking is: nDCG@k offline and online, and the reciprocal rank of clicks.

Conventions are those of the published FOLTR code: gain 2^grade - 1, discount 1 / log2(rank + 1), and a mean
over only those queries that have a relevant document. The result says how many queries that were.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foltr.core.data.dataset import RankingDataset
from foltr.core.errors import DataError
from foltr.core.learning.evolution_strategies import reciprocal_rank_index
from foltr.core.learning.linear import score
from foltr.core.numerics.compiled import compiled

# 2^grade is exact in float64 and its sums stay sensible up to here; real collections use at most 5 grades.
_HIGHEST_GRADE = 62


@dataclass(frozen=True, slots=True)
class MeanNdcg:
    """Mean nDCG@k and its number of queries.

    Attributes:
        mean: over the queries with a relevant document.
        n_evaluated: how many those are.
        n_queries: how many queries the data set has.
    """

    mean: float
    n_evaluated: int
    n_queries: int


def dcg_at_k(ranked_relevance: NDArray[np.integer], k: int = 10) -> float:
    """Return sum_{i=1..k} (2^r_i - 1) / log2(i + 1).

    Args:
        ranked_relevance: (n,) integer grades in ranked order.
        k: the cut-off.
    """
    return float(dcg(ranked_relevance, k))


def ndcg_at_k(
    ranked_relevance: NDArray[np.integer], k: int = 10, candidates: NDArray[np.integer] | None = None
) -> float:
    """Return DCG@k divided by the best DCG@k that the query's documents allow; 0 if none is relevant.

    Args:
        ranked_relevance: (n,) integer grades in ranked order.
        k: the cut-off.
        candidates: (docs,) grades of all the query's documents in any order, needed where the ranking shows
            only some of them; otherwise the ranking itself.
    """
    return float(ndcg(ranked_relevance, ranked_relevance if candidates is None else candidates, k))


def mean_ndcg_at_k(weights: NDArray[np.floating], dataset: RankingDataset, k: int = 10) -> MeanNdcg:
    """Evaluate a linear ranker over a data set; equal scores keep the document order.

    Args:
        weights: (d,).
        dataset: with d features.
        k: the cut-off.

    Raises:
        DataError: no query has a relevant document, or the weights do not fit.
    """
    if weights.shape != (dataset.n_features,):
        raise DataError(f"{dataset.name} has {dataset.n_features} features, the ranker {weights.shape}")
    return mean_ndcg_of_scores(score(weights, dataset.features), dataset, k)


def mean_ndcg_of_scores(scores: NDArray[np.floating], dataset: RankingDataset, k: int = 10) -> MeanNdcg:
    """Evaluate any ranker over a data set from its scores; as `mean_ndcg_at_k`.

    Args:
        scores: (docs,) finite scores of all documents, in the data set's order.
        dataset: whose relevance and queries count.
        k: the cut-off.
    """
    if k < 1:
        raise DataError(f"nDCG@{k} is undefined; expected a cut-off of at least 1")
    if scores.shape != dataset.relevance.shape:
        raise DataError(f"{dataset.name} has {dataset.relevance.shape[0]} documents, scores {scores.shape}")
    total, n_evaluated = _sum_of_ndcg(scores, dataset.relevance, dataset.offsets, k)
    if n_evaluated == 0:
        raise DataError(f"{dataset.name}: no query has a relevant document, so nDCG@{k} is undefined")
    if not math.isfinite(total):
        raise DataError(f"{dataset.name}: scores must be finite numbers to rank by")
    return MeanNdcg(float(total) / n_evaluated, int(n_evaluated), dataset.n_queries)


def reciprocal_rank(clicks: NDArray[np.bool_]) -> float:
    """Return 1 / rank of the highest clicked result, 0 without a click (thesis, Section 3.1: MaxRR).

    Args:
        clicks: (k,) bool in the order shown.
    """
    rank = reciprocal_rank_index(clicks)
    return 1.0 / rank if rank else 0.0


@compiled
def ideal_dcg_by_query(relevance: NDArray[np.integer], offsets: NDArray[np.int64], k: int) -> NDArray[np.float64]:
    """Return the best possible DCG@k of each query, 0 without a relevant document: the divisor of nDCG.

    Args:
        relevance: (docs,) integer grades of all documents.
        offsets: (queries + 1,) int64, as in `RankingDataset`.
        k: the cut-off.

    Returns:
        (queries,) float64.
    """
    ideal = np.empty(offsets.shape[0] - 1, np.float64)
    for q in range(ideal.shape[0]):
        ideal[q] = _ideal_dcg(relevance[offsets[q] : offsets[q + 1]], k)
    return ideal


@compiled
def dcg(ranked_relevance: NDArray[np.integer], k: int) -> float:
    """The kernel of `dcg_at_k`."""
    total = 0.0
    for i in range(min(k, ranked_relevance.shape[0])):
        total += (2.0 ** ranked_relevance[i] - 1.0) / math.log2(i + 2)
    return total


@compiled
def _ideal_dcg(relevance: NDArray[np.integer], k: int) -> float:
    """The DCG@k of the grades sorted downwards: counting them is cheaper than sorting."""
    counts = np.zeros(_HIGHEST_GRADE + 1, np.int64)
    highest = 0
    for i in range(relevance.shape[0]):
        grade = relevance[i]
        if grade < 0 or grade > _HIGHEST_GRADE:
            raise DataError("a relevance grade is negative or absurdly high")
        counts[grade] += 1
        highest = max(highest, grade)
    total = 0.0
    rank = 0
    for grade in range(highest, 0, -1):
        for _ in range(min(counts[grade], k - rank)):
            total += (2.0**grade - 1.0) / math.log2(rank + 2)
            rank += 1
    return total


@compiled
def ndcg(ranked_relevance: NDArray[np.integer], candidates: NDArray[np.integer], k: int) -> float:
    """The kernel of `ndcg_at_k`."""
    ideal = _ideal_dcg(candidates, k)
    return dcg(ranked_relevance, k) / ideal if ideal > 0.0 else 0.0


@compiled
def _sum_of_ndcg(
    scores: NDArray[np.floating], relevance: NDArray[np.integer], offsets: NDArray[np.int64], k: int
) -> tuple[float, int]:
    """Return the sum of nDCG@k over the queries with a relevant document, and their number."""
    best_scores = np.empty(k, np.float64)
    best_relevance = np.empty(k, np.int64)
    total = 0.0
    n_evaluated = 0
    for q in range(offsets.shape[0] - 1):
        start, end = offsets[q], offsets[q + 1]
        ideal = _ideal_dcg(relevance[start:end], k)
        if ideal == 0.0:
            continue
        # One pass that keeps the k best so far in order: most documents fail the first comparison.
        held = 0
        for i in range(start, end):
            value = scores[i]
            if not math.isfinite(value):
                return np.nan, 1
            if held == k and value <= best_scores[k - 1]:
                continue
            held = min(held + 1, k)
            at = held - 1
            # Strictly smaller only, so that equal scores keep the document order.
            while at > 0 and best_scores[at - 1] < value:
                best_scores[at] = best_scores[at - 1]
                best_relevance[at] = best_relevance[at - 1]
                at -= 1
            best_scores[at] = value
            best_relevance[at] = relevance[i]
        total += dcg(best_relevance[:held], k) / ideal
        n_evaluated += 1
    return total, n_evaluated
