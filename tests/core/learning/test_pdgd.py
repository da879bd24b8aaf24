import itertools

import numpy as np
import pytest
from support import paper_formulas
from support.sampled_lists import even_reversals, reversals_of

from foltr.core.errors import DataError
from foltr.core.learning.pdgd import clicked_reversals, linear_step, pdgd_gradient, pdgd_step, score_gradient
from foltr.core.learning.plackett_luce import plackett_luce_denominators, reversal_log_odds, reversal_weight


def test_reversal_weight_is_the_ratio_of_ranking_probabilities(rng: np.random.Generator) -> None:
    """rho from the denominators equals P(R*) / (P(R) + P(R*)) multiplied out, for every pair of positions."""
    for docs, k in [(2, 2), (5, 5), (6, 4), (9, 3)]:
        scores = rng.normal(scale=2.0, size=docs)
        ranking = rng.permutation(docs)[:k]
        shown_scores, log_denominators = plackett_luce_denominators(scores, ranking)
        for a, b in itertools.combinations(range(k), 2):
            expected = paper_formulas.rho(scores, ranking.tolist(), a, b)
            log_odds = reversal_log_odds(shown_scores, log_denominators, a, b)
            assert reversal_weight(log_odds) == pytest.approx(expected, rel=1e-12), (docs, k)


@pytest.mark.parametrize("docs", [10, 30])
def test_gradient_is_the_published_algorithm(rng: np.random.Generator, docs: int) -> None:
    """The gradient equals a slow transcription, and that the differences of the objective, for many clicks."""
    for _ in range(20):
        features = rng.random((docs, 7), dtype=np.float32)
        weights = rng.normal(size=7).astype(np.float32)
        ranking = rng.permutation(docs)[:10]
        clicks = rng.random(10) < rng.choice([0.1, 0.5, 0.9])
        seen = (weights.astype(np.float64), features, ranking.tolist(), clicks.tolist())
        expected = paper_formulas.linear_pdgd_gradient(*seen)
        np.testing.assert_allclose(pdgd_gradient(weights, features, ranking, clicks), expected, rtol=2e-5, atol=1e-7)
        differences = paper_formulas.pdgd_gradient(paper_formulas.linear, *seen)
        np.testing.assert_allclose(expected, differences, rtol=1e-6, atol=1e-9)


def test_one_click_prefers_over_those_above_and_the_next_below() -> None:
    clicks = np.array([False, True, False, False, False])
    gradient = score_gradient(np.zeros(8), np.arange(5), clicks, even_reversals(5))
    assert gradient[1] > 0 > gradient[0]
    assert gradient[2] < 0
    assert gradient[3:].tolist() == [0.0, 0.0]
    for clicks in (np.zeros(4, bool), np.ones(4, bool)):
        assert not pdgd_gradient(np.zeros(6), np.eye(6, dtype=np.float32), np.arange(4), clicks).any()
    # Equal scores: both rankings are equally likely, the slope of the logistic function is 1/4.
    assert gradient.tolist() == pytest.approx([-0.5 * 0.25, 2 * 0.5 * 0.25, -0.5 * 0.25, 0, 0])


def test_scores_far_apart_neither_overflow_nor_cancel(rng: np.random.Generator) -> None:
    """Scores in the thousands give finite weights that do not change when all scores are shifted."""
    scores = rng.normal(scale=3.0, size=20)
    ranking, clicks = np.arange(10), rng.random(10) < 0.5

    def gradient_of_own(scores: np.ndarray) -> np.ndarray:
        return score_gradient(scores, ranking, clicks, clicked_reversals(scores, ranking, clicks))

    np.testing.assert_allclose(gradient_of_own(scores + 4096.0), gradient_of_own(scores), rtol=1e-8, atol=1e-12)
    wild = gradient_of_own(scores * 1000.0)
    assert np.isfinite(wild).all()
    assert np.abs(wild).max() <= 25 * 0.25


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_step_moves_along_the_gradient_in_a_new_array(rng: np.random.Generator, dtype: type) -> None:
    """w + eta * gradient, in the type of w; the argument stays as it was; given scores spare the scoring."""
    features = rng.random((12, 5), dtype=np.float32)
    weights = rng.normal(size=5).astype(dtype)
    before = weights.copy()
    ranking, clicks = np.arange(10), rng.random(10) < 0.5
    after = pdgd_step(weights, features, ranking, clicks, 0.1)
    expected = weights + 0.1 * pdgd_gradient(weights, features, ranking, clicks)
    np.testing.assert_allclose(after, expected.astype(dtype), rtol=1e-6)
    assert after.dtype == dtype
    assert (weights == before).all()


def test_fedprox_pulls_towards_the_base(rng: np.random.Generator) -> None:
    """w + eta (g - mu (w - base)); without mu, or at the base, it is the plain step to the bit."""
    features = rng.random((12, 5), dtype=np.float32)
    weights, base = rng.normal(size=(2, 5))
    ranking, clicks = np.arange(10), np.arange(10) % 3 == 1
    plain = pdgd_step(weights, features, ranking, clicks, 0.1)
    pulled = pdgd_step(weights, features, ranking, clicks, 0.1, 0.5, base)
    np.testing.assert_allclose(pulled, plain - 0.1 * 0.5 * (weights - base), rtol=1e-12)
    assert (pdgd_step(weights, features, ranking, clicks, 0.1, 0.0, base) == plain).all()
    assert (pdgd_step(weights, features, ranking, clicks, 0.1, 0.5, weights) == plain).all()
    with pytest.raises(DataError, match="base"):
        pdgd_step(weights, features, ranking, clicks, 0.1, 0.5, base[:3])


@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0, 300.0, 3000.0, 1e5])
def test_reversals_of_clicks_are_those_of_the_list(rng: np.random.Generator, scale: float) -> None:
    """Of probabilities or of their logarithms, the weights of pairs differ by rounding, however far scores differ."""
    for _ in range(200):
        docs = int(rng.integers(2, 130))
        k = int(rng.integers(2, min(docs, 20) + 1))
        scores = (rng.normal(size=docs) * scale + rng.choice([0.0, 1000.0])).astype(rng.choice(["f4", "f8"]))
        ranking, clicks = rng.permutation(docs)[:k], rng.random(k) < 0.4
        found, expected = clicked_reversals(scores, ranking, clicks), reversals_of(scores, ranking)
        upper, lower = np.triu_indices(k, 1)
        compared = (clicks[upper] != clicks[lower]) & (lower < clicks.nonzero()[0].max(initial=-2) + 2)
        np.testing.assert_allclose(found[compared], expected[compared], rtol=1e-11, atol=1e-280)


def test_wrong_interactions_are_refused() -> None:
    """What compiled code could turn into a wrong read of memory or a silent NaN is an error with a reason."""
    for ranking, clicks, score_of_first, complaint in [
        ([0, 9], [True, False], 0.0, "candidates"),
        ([-1, 0], [True, False], 0.0, "candidates"),
        ([1, 1], [True, False], 0.0, "twice"),
        ([0, 1, 2], [True, False], 0.0, "one entry for each"),
        ([0, 1], [True, False], np.nan, "finite"),
        ([0, 1], [True, False], np.inf, "finite"),
        ([1, 2], [True, False], np.nan, "finite"),
    ]:
        scores = np.zeros(4)
        scores[0] = score_of_first
        with pytest.raises(DataError, match=complaint):
            clicked_reversals(scores, np.array(ranking), np.array(clicks))
        if 0 in ranking or complaint != "finite":  # of documents not shown a gradient needs no score
            with pytest.raises(DataError, match=complaint):
                score_gradient(scores, np.array(ranking), np.array(clicks), even_reversals(len(ranking)))
    for n in [0, 2, 4]:
        with pytest.raises(DataError, match="each pair"):
            score_gradient(np.zeros(4), np.arange(3), np.array([True, False, False]), np.full(n, 0.5))
    features, ranking, clicks = np.zeros((4, 2), np.float32), np.arange(2), np.array([True, False])
    with pytest.raises(DataError, match="features"):
        linear_step(np.zeros(3), features, ranking, clicks, np.zeros(4), np.ones(1), 0.1, 0.0, np.zeros(3))
