from math import exp, log2
from pathlib import Path

import numpy as np
import pytest

from foltr.core.data.dataset import RankingDataset
from foltr.core.data.letor import load_split
from foltr.core.errors import DataError, SettingsError
from foltr.core.evaluation.metrics import mean_ndcg_at_k, ndcg_at_k
from foltr.core.learning.lambdarank import fit_lambdarank, lambdarank_gradient, logging_policy, score_lambdas


def literal_lambdas(scores: np.ndarray, relevance: np.ndarray, k: int) -> np.ndarray:
    """All pairs, the change of nDCG by really swapping them and evaluating twice (Burges 2010, Section 4)."""
    order = np.argsort(-scores, kind="stable").tolist()
    lambdas = np.zeros(len(scores))
    for i in range(len(scores)):
        for j in range(len(scores)):
            if relevance[i] <= relevance[j]:
                continue
            swapped = [{i: j, j: i}.get(d, d) for d in order]
            change = abs(ndcg_at_k(relevance[order], k, relevance) - ndcg_at_k(relevance[swapped], k, relevance))
            push = change / (1.0 + exp(scores[i] - scores[j]))
            lambdas[i] += push
            lambdas[j] -= push
    return lambdas


def graded(rng: np.random.Generator, n_queries: int = 60, docs: int = 12, d: int = 5) -> RankingDataset:
    """Grades 0 to 2 that a linear ranker can explain, but for some noise."""
    features = rng.random((n_queries * docs, d), dtype=np.float32)
    quality = features @ np.linspace(-1.0, 1.0, d) + rng.normal(scale=0.2, size=len(features))
    relevance = np.digitize(quality, np.quantile(quality, [0.7, 0.9])).astype(np.int16)
    offsets = np.arange(n_queries + 1, dtype=np.int64) * docs
    return RankingDataset("graded", features, relevance, offsets, np.arange(n_queries, dtype=np.int64))


def test_one_pair_by_hand() -> None:
    """The change of nDCG times the logistic slope; a hopeless pair pushes in full, a settled one not at all."""
    lambdas = score_lambdas(np.array([0.5, 0.0]), np.array([0, 1]), 10)
    expected = (1 - 1 / log2(3)) / (1 + exp(-0.5))
    assert lambdas == pytest.approx([-expected, expected])
    hopeless = score_lambdas(np.array([5000.0, -5000.0]), np.array([0, 1]), 10)
    settled = score_lambdas(np.array([-5000.0, 5000.0]), np.array([0, 1]), 10)
    assert hopeless[1] == pytest.approx(1 - 1 / log2(3))
    assert settled == pytest.approx([0.0, 0.0])


def test_lambdas_are_the_published_ones(rng: np.random.Generator) -> None:
    """Equal to swapping each pair and evaluating nDCG@k twice, with ties in grades and in scores."""
    for k in [1, 3, 10, 40]:
        for _ in range(20):
            docs = int(rng.integers(1, 25))
            relevance = rng.integers(0, 4, docs)
            scores = rng.normal(size=docs).round(1)
            expected = literal_lambdas(scores, relevance, k)
            np.testing.assert_allclose(score_lambdas(scores, relevance, k), expected, rtol=1e-9, atol=1e-12)


def test_gradient_carries_the_lambdas_to_the_weights(rng: np.random.Generator) -> None:
    """The sum of feature rows, each times its document's lambda; equal grades teach nothing."""
    features = rng.random((20, 6), dtype=np.float32)
    weights, relevance = rng.normal(size=6), rng.integers(0, 3, 20)
    scores = (features @ weights.astype(np.float32)).astype(float)
    expected = literal_lambdas(scores, relevance, 5) @ features.astype(float)
    np.testing.assert_allclose(lambdarank_gradient(weights, features, relevance, 5), expected, rtol=1e-4, atol=1e-6)
    features = np.eye(4, dtype=np.float32)
    for grade in (0, 2):
        assert not lambdarank_gradient(np.ones(4), features, np.full(4, grade)).any()


def test_fitting_improves_ndcg_and_repeats_itself(rng: np.random.Generator) -> None:
    """Near the best on what a linear ranker can learn; the same generator gives the same weights."""
    train, test = graded(rng), graded(rng)
    weights = fit_lambdarank(train, np.random.default_rng(1), learning_rate=0.03)
    assert weights.dtype == np.float32
    # The weights behind the grades are the best there is, up to the noise in them.
    best = mean_ndcg_at_k(np.linspace(-1.0, 1.0, 5), test).mean
    assert mean_ndcg_at_k(np.zeros(5), test).mean < 0.8 * best
    assert mean_ndcg_at_k(weights, test).mean > 0.97 * best
    assert (weights == fit_lambdarank(train, np.random.default_rng(1), learning_rate=0.03)).all()
    assert (weights != fit_lambdarank(train, np.random.default_rng(2), learning_rate=0.03)).any()


def test_fitting_starts_from_given_weights_and_sees_only_given_queries(rng: np.random.Generator) -> None:
    """The other queries do not matter; the start is not overwritten."""
    data = graded(rng)
    start = rng.normal(size=5).astype(np.float32)
    before = start.copy()
    few = fit_lambdarank(data, np.random.default_rng(1), epochs=1, weights=start, queries=np.array([3, 7]))
    features = data.features.copy()
    features[: data.offsets[3]] = 0.5
    changed = RankingDataset("changed", features, data.relevance, data.offsets, data.query_ids)
    again = fit_lambdarank(changed, np.random.default_rng(1), epochs=1, weights=start, queries=np.array([3, 7]))
    assert (few == again).all()
    assert (few != start).any()
    assert (start == before).all()


def test_logging_policy_learns_from_a_sample(rng: np.random.Generator) -> None:
    """Worse than all queries, better than none; the same generator gives the same policy."""
    train, test = graded(rng, n_queries=300), graded(rng)
    policy = logging_policy(train, np.random.default_rng(1))
    assert (policy == logging_policy(train, np.random.default_rng(1))).all()
    level = mean_ndcg_at_k(policy, test).mean
    assert mean_ndcg_at_k(np.zeros(5), test).mean + 0.05 < level
    assert level < mean_ndcg_at_k(fit_lambdarank(train, rng), test).mean


def test_logging_policy_finds_the_one_query_that_teaches(rng: np.random.Generator) -> None:
    """A sample without a preference is replaced, whatever the seed; a set without any is refused."""
    data = graded(rng)
    relevance = np.zeros_like(data.relevance)
    relevance[data.offsets[17]] = 1
    lonely = RankingDataset("lonely", data.features, relevance, data.offsets, data.query_ids)
    expected = fit_lambdarank(lonely, np.random.default_rng(0), queries=np.array([17]))
    for seed in range(5):
        assert (logging_policy(lonely, np.random.default_rng(seed)) == expected).all()
    hopeless = RankingDataset("hopeless", data.features, np.zeros_like(relevance), data.offsets, data.query_ids)
    with pytest.raises(DataError, match="hopeless: no query"):
        logging_policy(hopeless, rng)
    data = graded(rng, n_queries=3)
    with pytest.raises(DataError, match="one grade"):
        score_lambdas(np.zeros(3), np.zeros(2, np.int16), 10)
    with pytest.raises(DataError, match="finite"):
        score_lambdas(np.array([0.0, np.nan]), np.array([0, 1]), 10)
    with pytest.raises(DataError, match="5 features"):
        fit_lambdarank(data, rng, weights=np.zeros(4))
    for wrong in ({"learning_rate": 0.0}, {"learning_rate": np.nan}, {"epochs": 0}, {"k": 0}):
        with pytest.raises(SettingsError):
            fit_lambdarank(data, rng, **wrong)
    for fraction in (0.0, 1.5, np.nan):
        with pytest.raises(SettingsError, match="fraction"):
            logging_policy(data, rng, fraction)


@pytest.mark.parametrize(("folder", "n_evaluated", "least"), [("MQ2008/Fold1", 105, 0.69), ("MSLR-sample", None, 0.38)])
def test_defaults_reach_the_level_of_ridge_regression(
    real_data, parsed_cache: Path, rng: np.random.Generator, folder: str, n_evaluated: int | None, least: float
) -> None:
    """The same defaults do on two unlike data sets; ridge regression has 0.706 and 0.404 there."""
    name, _, fold = folder.partition("/")
    split = load_split(real_data(name) / fold, cache_dir=parsed_cache)
    result = mean_ndcg_at_k(fit_lambdarank(split.train, rng), split.test)
    assert n_evaluated in (None, result.n_evaluated)
    assert result.mean > least
