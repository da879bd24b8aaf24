"""Rewards are what clicks say of relevance, in expectation over all ways in which a user may click one list."""

import itertools

import numpy as np
import pytest

from foltr.core.learning.ips import position_propensities
from foltr_research.simulation.counterfactual.rewards import (
    affine_rewards,
    doubly_robust_rewards,
    position_bias,
    relevance_step,
    trust_bias,
)

RANKING = np.array([2, 0, 3])
"""Three of four documents; 1 is not shown."""
RELEVANCE = np.array([0.9, 0.4, 0.1, 0.6])
EXAMINATION = position_propensities(1.0, 3)
TRUSTING = trust_bias(EXAMINATION)
LEAST = 0.1


def moments(rewards_of, bias):
    """Mean and variance of (4,) rewards over the eight ways to click."""
    chances = bias.alpha * RELEVANCE[RANKING] + bias.beta
    ways = [np.array(one) for one in itertools.product([False, True], repeat=3)]
    of_way = np.array([np.prod(np.where(way, chances, 1.0 - chances)) for way in ways])
    rewards = np.array([rewards_of(way) for way in ways])
    mean = of_way @ rewards
    return mean, of_way @ (rewards - mean) ** 2


def test_trust_bias_is_of_the_published_figures():
    """At rank 1 a relevant document is clicked with 0.98 and another with 0.65, at rank 3 with a third of 0.96 and
    0.65 / 3."""
    np.testing.assert_allclose((TRUSTING.alpha + TRUSTING.beta)[[0, 2]], [0.98, 0.96 / 3])
    np.testing.assert_allclose(TRUSTING.beta[[0, 2]], [0.65, 0.65 / 9])
    deep = trust_bias(np.ones(30))
    assert deep.beta[9] == deep.beta[29] == 0.065
    assert (deep.alpha + deep.beta)[19] == pytest.approx((deep.alpha + deep.beta)[29])


@pytest.mark.parametrize("bias", [position_bias(EXAMINATION), TRUSTING], ids=["position", "trust"])
def test_affine_rewards_are_unbiased(bias):
    """For each shown document their mean is its relevance; the other's is 0."""
    mean, _ = moments(lambda clicks: affine_rewards(4, RANKING, clicks, bias, LEAST), bias)
    np.testing.assert_allclose(mean, [0.9, 0.0, 0.1, 0.6], atol=1e-12)


def test_inverse_propensities_alone_do_not_undo_trust_bias():
    """They take what a user clicks at rank 1 by trust for relevance."""
    of_position = position_bias(EXAMINATION)
    mean, _ = moments(lambda clicks: affine_rewards(4, RANKING, clicks, of_position, LEAST), TRUSTING)
    assert mean[2] == pytest.approx(0.33 * 0.1 + 0.65)
    assert mean[2] > mean[3] > RELEVANCE[2]


@pytest.mark.parametrize("bias", [position_bias(EXAMINATION), TRUSTING], ids=["position", "trust"])
@pytest.mark.parametrize("regression", [RELEVANCE, 1.0 - RELEVANCE, np.full(4, 0.5)], ids=["true", "wrong", "flat"])
def test_doubly_robust_rewards_are_unbiased(bias, regression):
    """For shown documents with any regression; the other document has the regression's."""
    mean, _ = moments(lambda clicks: doubly_robust_rewards(regression, RANKING, clicks, bias, LEAST), bias)
    np.testing.assert_allclose(mean[RANKING], RELEVANCE[RANKING], atol=1e-12)
    assert mean[1] == pytest.approx(regression[1])


def test_a_true_regression_makes_up_for_propensities_that_are_cut_off():
    """With one the rewards stay right, and vary less; those of clicks alone are then too small."""
    bias = position_bias(EXAMINATION)
    mean, variance = moments(lambda clicks: doubly_robust_rewards(RELEVANCE, RANKING, clicks, bias, 0.8), bias)
    np.testing.assert_allclose(mean, RELEVANCE)
    cut_off, _ = moments(lambda clicks: affine_rewards(4, RANKING, clicks, bias, 0.8), bias)
    np.testing.assert_allclose(cut_off[RANKING] / RELEVANCE[RANKING], [1.0, 0.5 / 0.8, 1 / 3 / 0.8])
    _, whole = moments(lambda clicks: doubly_robust_rewards(RELEVANCE, RANKING, clicks, bias, LEAST), bias)
    assert (variance[[0, 3]] < whole[[0, 3]]).all()


def test_the_regression_settles_at_relevance():
    """Its mean step is zero if it predicts relevance, and towards it otherwise."""
    features = np.eye(4, dtype=np.float32)
    settled = np.append(np.log(RELEVANCE / (1.0 - RELEVANCE)), 0.0)
    step, _ = moments(lambda clicks: relevance_step(settled, features, RANKING, clicks, TRUSTING, 1.0), TRUSTING)
    np.testing.assert_allclose(step, settled, atol=1e-6)
    step, _ = moments(lambda clicks: relevance_step(np.zeros(5), features, RANKING, clicks, TRUSTING, 1.0), TRUSTING)
    np.testing.assert_array_equal(np.sign(step[:4]), [1.0, 0.0, -1.0, 1.0])
