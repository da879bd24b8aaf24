"""Offline metrics by name, e.g. ``ndcg@5``, ``mrr@10``, ``err@10``, ``map``, ``maxrr``: of each query, and their mean.

A metric is a function of one ranking (`MetricFunction`), so one of your own is an entry in `METRIC_FUNCTIONS`. Every
mean is over the queries with a relevant document (a grade of at least 1), as in the published FOLTR code. Equal scores
keep the document order.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foltr.core.data.dataset import RankingDataset
from foltr.core.errors import DataError, SettingsError
from foltr.core.evaluation.metrics import ndcg
from foltr.core.installed_plugins import also_installed
from foltr.core.numerics.compiled import compiled

MetricFunction = Callable[[NDArray[np.int16], NDArray[np.int16], int], float]
"""(docs,) grades of all the query's documents in ranked order, the same grades sorted downwards, and the cut-off k."""

NDCG_AT_10 = "ndcg@10"
MAX_RR = "maxrr"
_SERP_LENGTH = 10
_HIGHEST_GRADE = 4
_WHOLE_RANKING = 2**31 - 1
_NAME = re.compile(r"([^@]+)(?:@([1-9][0-9]{0,5}))?")


@dataclass(frozen=True)
class Metric:
    """A metric with its cut-off.

    Attributes:
        name: as in settings and results.
        function: see `MetricFunction`.
        k: how many documents from the top it looks at.
    """

    name: str
    function: MetricFunction
    k: int


@compiled
def reciprocal_rank_of_relevant(ranked: NDArray[np.int16], ideal: NDArray[np.int16], k: int) -> float:  # noqa: ARG001
    """Return 1 / rank of the first relevant document among the first k, else 0 (Voorhees, TREC-8, 1999).

    With k = 10 this is also the offline MaxRR of the thesis' Figure 3.7. Its text defines MaxRR by clicks, but the
    published code (`ielab/fpdgd-ictir2021`, `average_mrr_at_k`) takes a grade of at least 1 for a click.
    """
    for i in range(min(k, ranked.shape[0])):
        if ranked[i] > 0:
            return 1.0 / (i + 1)
    return 0.0


@compiled
def expected_reciprocal_rank(ranked: NDArray[np.int16], ideal: NDArray[np.int16], k: int) -> float:  # noqa: ARG001
    """Return sum_i R_i / i * prod_{j<i} (1 - R_j) with R = (2^r - 1) / 2^4 (Chapelle et al., CIKM 2009, Eq. 4).

    The paper divides by 2 to the highest grade of the data. Here that is always 4, as in TREC's ``gdeval.pl``, so
    that exported runs get the same values from other tools; on data with grades 0 to 2 no value is above 0.4.
    """
    unsatisfied = 1.0
    total = 0.0
    for i in range(min(k, ranked.shape[0])):
        satisfied = (2.0 ** ranked[i] - 1.0) / 2.0**_HIGHEST_GRADE
        total += unsatisfied * satisfied / (i + 1)
        unsatisfied *= 1.0 - satisfied
    return total


@compiled
def average_precision(ranked: NDArray[np.int16], ideal: NDArray[np.int16], k: int) -> float:
    """Return the mean of precision at each relevant document's rank; those below rank k, if any, count 0.

    Relevant is a grade of at least 1 (trec_eval's ``map`` and ``map_cut``).
    """
    n_relevant = 0
    while n_relevant < ideal.shape[0] and ideal[n_relevant] > 0:
        n_relevant += 1
    found = 0
    total = 0.0
    for i in range(min(k, ranked.shape[0])):
        if ranked[i] > 0:
            found += 1
            total += found / (i + 1)
    return total / n_relevant if n_relevant else 0.0


METRIC_FUNCTIONS: dict[str, MetricFunction] = {
    # Gain 2^r - 1, discount log2(rank + 1) (Burges et al., ICML 2005); trec_eval's has the gain r.
    "ndcg": ndcg,
    "mrr": reciprocal_rank_of_relevant,
    "err": expected_reciprocal_rank,
    "map": average_precision,
}


def read_metric(name: str) -> Metric:
    """Return the metric of a name: a key of `METRIC_FUNCTIONS` with or without ``@k``, or ``maxrr``, which is mrr@10.

    Without a cut-off the whole ranking counts.

    Raises:
        SettingsError: there is no such metric.
    """
    if name == MAX_RR:
        return Metric(name, reciprocal_rank_of_relevant, _SERP_LENGTH)
    found = _NAME.fullmatch(name)
    if found is None or found[1] not in METRIC_FUNCTIONS:
        known = ", ".join((*METRIC_FUNCTIONS, MAX_RR))
        raise SettingsError(
            f"metric: unknown {name!r}; known are {known}, all but maxrr with a cut-off, e.g. ndcg@5"
            + also_installed("foltr.metrics", METRIC_FUNCTIONS)
        )
    return Metric(name, METRIC_FUNCTIONS[found[1]], int(found[2]) if found[2] else _WHOLE_RANKING)


def ranked_rows(scores: NDArray[np.floating], dataset: RankingDataset) -> NDArray[np.int64]:
    """Return (docs,) rows of a data set, each query's from its best document to its worst.

    Raises:
        DataError: not a finite score for each document.
    """
    if scores.shape != dataset.relevance.shape or not np.isfinite(scores).all():
        raise DataError(f"{dataset.name}: expected {dataset.relevance.shape[0]} finite scores to rank by")
    return np.lexsort((-scores, _query_of_rows(dataset)))


def values_by_query(
    metrics: Sequence[Metric], scores: NDArray[np.floating], dataset: RankingDataset
) -> dict[str, NDArray[np.float64]]:
    """Return each metric's value for each query.

    Args:
        scores: (docs,) of all documents, in the data set's order.

    Returns:
        by name (queries,) float64, NaN for a query without a relevant document.

    Raises:
        DataError: as `ranked_rows`, or a metric's value is not a finite number.
    """
    ranked = dataset.relevance[ranked_rows(scores, dataset)]
    ideal = dataset.relevance[np.lexsort((-dataset.relevance, _query_of_rows(dataset)))]
    values = {metric.name: np.full(dataset.n_queries, np.nan) for metric in metrics}
    for q, (start, end) in enumerate(zip(dataset.offsets[:-1], dataset.offsets[1:], strict=True)):
        if ideal[start] == 0:
            continue
        for metric in metrics:
            value = metric.function(ranked[start:end], ideal[start:end], metric.k)
            if not np.isfinite(value):
                raise DataError(f"metric {metric.name}: {value} for query {dataset.query_ids[q]} of {dataset.name}")
            values[metric.name][q] = value
    return values


def means_over_queries(values: Mapping[str, NDArray[np.float64]]) -> dict[str, float]:
    """Return the mean of each metric over the queries with a relevant document.

    Args:
        values: as `values_by_query` returns them, with at least one such query.
    """
    return {name: float(np.nanmean(of_queries)) for name, of_queries in values.items()}


def _query_of_rows(dataset: RankingDataset) -> NDArray[np.int64]:
    return np.repeat(np.arange(dataset.n_queries), np.diff(dataset.offsets))
