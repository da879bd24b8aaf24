from math import log2

import numpy as np
import pytest

from foltr.core.data.dataset import RankingDataset
from foltr.core.errors import DataError
from foltr.core.evaluation.metrics import (
    dcg_at_k,
    ideal_dcg_by_query,
    mean_ndcg_at_k,
    mean_ndcg_of_scores,
    ndcg_at_k,
    reciprocal_rank,
)
from foltr.core.learning.linear import rank_by_score


def dataset(relevance: list[list[int]], features: np.ndarray | None = None) -> RankingDataset:
    flat = np.array([grade for query in relevance for grade in query], np.int16)
    return RankingDataset(
        "by hand",
        np.zeros((len(flat), 1), np.float32) if features is None else features,
        flat,
        np.cumsum([0, *map(len, relevance)]).astype(np.int64),
        np.arange(len(relevance), dtype=np.int64),
    )


def test_dcg_and_ndcg_by_hand() -> None:
    """Gain 2^r - 1, discount log2(rank + 1); the best documents count even if they are not shown."""
    relevance = np.array([0, 3, 1, 4])
    assert dcg_at_k(relevance, 3) == pytest.approx(7 / log2(1 + 2) + 1 / log2(1 + 3))
    assert dcg_at_k(relevance) == pytest.approx(7 / log2(1 + 2) + 1 / log2(1 + 3) + 15 / log2(1 + 4))
    shown = np.array([1, 0, 2])
    assert ndcg_at_k(shown) == pytest.approx((1 + 3 / log2(4)) / (3 + 1 / log2(3)))
    assert ndcg_at_k(shown, 2, np.array([0, 1, 2, 4])) == pytest.approx(1 / (15 + 3 / log2(3)))
    assert ndcg_at_k(np.array([2, 1, 1, 0])) == pytest.approx(1.0)
    assert ndcg_at_k(np.array([0, 0])) == 0.0
    with pytest.raises(DataError, match="grade"):
        ndcg_at_k(np.array([-1, 1]))
    data = dataset([[0, 1, 2], [0, 0]])
    expected = [3 + 1 / log2(3), 0.0]
    assert ideal_dcg_by_query(data.relevance, data.offsets, 10).tolist() == pytest.approx(expected)
    assert ideal_dcg_by_query(data.relevance, data.offsets, 1).tolist() == [3.0, 0.0]
    assert reciprocal_rank(np.array([False, False, True, True])) == 1 / 3
    assert reciprocal_rank(np.zeros(10, bool)) == 0.0


def test_mean_ndcg_leaves_out_queries_without_a_relevant_document() -> None:
    """No relevant document, no cut-off, wrong shapes and diverged scores are errors with a reason."""
    data = dataset([[0, 1], [0, 0, 0], [2, 0]])
    result = mean_ndcg_of_scores(np.array([2.0, 1, 3, 2, 1, 2, 1]), data)
    assert result.mean == pytest.approx((1 / log2(3) + 1) / 2)
    assert (result.n_evaluated, result.n_queries) == (2, 3)
    data = dataset([[0, 1]])
    with pytest.raises(DataError, match="no query has a relevant document"):
        mean_ndcg_of_scores(np.zeros(2), dataset([[0, 0]]))
    with pytest.raises(DataError, match="at least 1"):
        mean_ndcg_of_scores(np.zeros(2), data, 0)
    with pytest.raises(DataError, match="2 documents"):
        mean_ndcg_of_scores(np.zeros(3), data)
    with pytest.raises(DataError, match="1 features"):
        mean_ndcg_at_k(np.zeros(2), data)
    with pytest.raises(DataError, match="finite"):
        mean_ndcg_of_scores(np.array([np.nan, 1.0]), data)


def test_mean_ndcg_is_the_mean_of_ndcg(rng: np.random.Generator) -> None:
    """The one-pass evaluation equals ranking each query by itself, ties included."""
    for k in [1, 3, 10, 50]:
        relevance = [rng.integers(0, 3, size=n).tolist() for n in rng.integers(1, 40, size=25)]
        n_docs = sum(map(len, relevance))
        features = rng.integers(0, 3, size=(n_docs, 2)).astype(np.float32)
        data = dataset(relevance, features)
        weights = np.array([1.0, 2.0])
        expected = []
        for i in range(data.n_queries):
            x, grades = data.query(i)
            if grades.any():
                expected.append(ndcg_at_k(grades[rank_by_score(x @ weights, len(grades))], k))
        result = mean_ndcg_at_k(weights, data, k)
        assert result.mean == pytest.approx(np.mean(expected)), k
        assert result.n_evaluated == len(expected), k


def test_it_agrees_with_scikit_learn(rng):
    """An independent implementation finds the same nDCG, once it is given gains of 2^grade - 1 and no ties."""
    for k in [1, 5, 10, 30]:
        # Not when this module is collected: it takes more than a second in each worker.
        from sklearn.metrics import ndcg_score

        for _ in range(20):
            grades, scores = rng.integers(0, 5, 25), rng.permutation(25).astype(np.float32)
            grades[0] = 4
            ranked = grades[rank_by_score(scores, 25)]
            assert ndcg_at_k(ranked, k) == pytest.approx(ndcg_score([2.0**grades - 1], [scores], k=k), rel=1e-12), k
