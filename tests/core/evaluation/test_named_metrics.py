"""Metrics by name have the values of their papers, and their means leave out queries without a relevant document."""

from math import log2

import numpy as np
import pytest

from foltr.core.data.dataset import RankingDataset
from foltr.core.errors import DataError, SettingsError
from foltr.core.evaluation import named_metrics
from foltr.core.evaluation.metrics import mean_ndcg_of_scores
from foltr.core.evaluation.named_metrics import means_over_queries, ranked_rows, read_metric, values_by_query


def dataset(*relevance: list[int]) -> RankingDataset:
    flat = np.array([grade for query in relevance for grade in query], np.int16)
    return RankingDataset(
        "by hand",
        np.zeros((len(flat), 1), np.float32),
        flat,
        np.cumsum([0, *map(len, relevance)]).astype(np.int64),
        np.arange(len(relevance), dtype=np.int64),
    )


def value(name: str, *grades: int) -> float:
    scores = -np.arange(len(grades), dtype=np.float32)
    return float(values_by_query([read_metric(name)], scores, dataset(list(grades)))[name][0])


def test_values_by_hand() -> None:
    """Grades 0, 3, 1, 4 in ranked order."""
    for name, expected in {
        "ndcg@2": (7 / log2(3)) / (15 + 7 / log2(3)),
        "ndcg": (7 / log2(3) + 1 / log2(4) + 15 / log2(5)) / (15 + 7 / log2(3) + 1 / log2(4)),
        "mrr": 1 / 2,
        "mrr@1": 0.0,
        "err@2": 7 / 16 / 2,
        "err": 7 / 16 / 2 + 9 / 16 * 1 / 16 / 3 + 9 / 16 * 15 / 16 * 15 / 16 / 4,
        "map": (1 / 2 + 2 / 3 + 3 / 4) / 3,
        "map@3": (1 / 2 + 2 / 3) / 3,
    }.items():
        assert value(name, 0, 3, 1, 4) == pytest.approx(expected, rel=1e-12), name


def test_max_rr_looks_at_ten_documents() -> None:
    """A relevant document at rank 11 counts for mrr only; equal scores keep the document order."""
    late = [0] * 10 + [2]
    assert value("maxrr", *late) == value("mrr@10", *late) == 0.0
    assert value("mrr", *late) == 1 / 11
    assert value("maxrr", *[0] * 9, 1) == 1 / 10
    rows = ranked_rows(np.array([1.0, 2.0, 2.0, 0.0, 0.0, 3.0]), dataset([0, 1, 0], [1, 0, 0]))
    assert rows.tolist() == [1, 2, 0, 5, 3, 4]


def test_queries_without_a_relevant_document_do_not_count(rng: np.random.Generator) -> None:
    """NaN for each of them; the mean of nDCG is that of the one-pass evaluation, ties included."""
    data = dataset([0, 0], *(rng.integers(0, 3, size=n).tolist() for n in rng.integers(1, 40, size=25)))
    scores = rng.integers(0, 3, size=len(data.relevance)).astype(np.float32)
    names = ("ndcg@10", "ndcg@3", "map")
    found = values_by_query([read_metric(name) for name in names], scores, data)
    assert all(np.isnan(found[name][0]) for name in names)
    for k in (3, 10):
        expected = mean_ndcg_of_scores(scores, data, k)
        assert means_over_queries(found)[f"ndcg@{k}"] == pytest.approx(expected.mean, rel=1e-12)
        assert np.isfinite(found["map"]).sum() == expected.n_evaluated


def test_wrong_names_and_scores_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one's own: a function of the ranked grades, the best order's and k, of finite values."""
    for wrong in ("ndgc@10", "ndcg@0", "ndcg@", "maxrr@5", "", "NDCG@10", "ndcg@10 "):
        with pytest.raises(SettingsError, match="known are ndcg, mrr, err, map, maxrr"):
            read_metric(wrong)
    for scores in (np.zeros(3), np.array([np.inf, 0.0])):
        with pytest.raises(DataError, match="2 finite scores"):
            ranked_rows(scores, dataset([0, 1]))

    def precision(ranked: np.ndarray, ideal: np.ndarray, k: int) -> float:
        assert sorted(ranked, reverse=True) == ideal.tolist()
        return float((ranked[:k] > 0).sum() / k)

    monkeypatch.setitem(named_metrics.METRIC_FUNCTIONS, "precision", precision)
    monkeypatch.setitem(named_metrics.METRIC_FUNCTIONS, "broken", lambda *_: float("nan"))
    assert value("precision@4", 0, 3, 1, 4, 1) == 3 / 4
    with pytest.raises(DataError, match="broken: nan for query 0"):
        value("broken", 0, 1)
