"""Exposure and its gradient are those of the Plackett-Luce model; bounds keep exposure near the safe one."""

import itertools

import numpy as np
import pytest

from foltr_research.simulation.counterfactual.exposure import (
    exposure,
    penalised_rewards,
    proximal_rewards,
    rank_weights,
    risk_of_estimate,
    utility_gradient,
)

SCORES = np.array([0.5, -0.3, 1.2, 0.0])
WEIGHTS = rank_weights(3)
SAMPLES, STEPS = 16, 500


def exact_exposure(scores, weights):
    """By every ranking of as many documents as there are weights."""
    found, strengths = np.zeros(len(scores)), np.exp(scores)
    for ranking in itertools.permutations(range(len(scores)), len(weights)):
        chance, left = 1.0, strengths.sum()
        for document in ranking:
            chance *= strengths[document] / left
            left -= strengths[document]
        found[list(ranking)] += chance * weights
    return found


def test_exposure_is_the_expected_weight_of_a_rank(rng):
    """Within the noise of the draws of what all rankings say; far scores have almost none."""
    noise = rng.gumbel(size=(20_000, 4))
    np.testing.assert_allclose(exposure(SCORES, WEIGHTS, noise), exact_exposure(SCORES, WEIGHTS), atol=0.01)
    one = exposure(np.array([0.0, 300.0, -200.0]), rank_weights(2), noise[:1, :3])
    np.testing.assert_allclose(one, [1 / np.log2(3), 1.0, 0.0], atol=1e-12)
    assert exposure(SCORES, WEIGHTS, noise[:3]).sum() == pytest.approx(WEIGHTS.sum())
    np.testing.assert_allclose(WEIGHTS, [1.0, 1 / np.log2(3), 0.5])


def test_the_gradient_is_that_of_the_utility(rng):
    """Within the noise of the draws of differences of the exact utility, for rewards of both signs."""
    rewards = np.array([1.0, -0.5, 0.2, 2.0])
    noise = rng.gumbel(size=(40_000, 4))
    steps = 1e-5 * np.eye(4)
    exact = [
        (exact_exposure(SCORES + one, WEIGHTS) - exact_exposure(SCORES - one, WEIGHTS)) @ rewards / 2e-5
        for one in steps
    ]
    found = utility_gradient(SCORES, rewards, WEIGHTS, noise)
    np.testing.assert_allclose(found, exact, atol=0.015)


def proximal_objective(exposed, safe, rewards, clip):
    """PRPO's objective (Gupta et al. 2024): rewards times relative exposures that are clipped on one side."""
    relative = exposed / safe
    clipped = np.where(rewards > 0, np.minimum(relative, 1 / clip), np.maximum(relative, clip))
    return (safe * clipped * rewards).sum()


def test_no_ranking_gains_more_than_the_bound_allows(rng):
    """By every ranking of four documents: what leaving the safe one can gain goes to zero as the bound closes."""
    weights = rank_weights(4)
    for rewards in rng.normal(size=(20, 4)):
        for clip in (0.5, 0.9, 1.0):
            safe = proximal_objective(weights, weights, rewards, clip)
            others = [
                proximal_objective(np.array(one), weights, rewards, clip) for one in itertools.permutations(weights)
            ]
            most = weights @ np.where(rewards > 0, (1 / clip - 1) * rewards, (clip - 1) * rewards)
            assert max(others) <= safe + most + 1e-12
            free = [np.array(one) @ rewards for one in itertools.permutations(weights)]
            assert max(others) - safe <= max(free) - weights @ rewards + 1e-12


def climbed(rewards, rng, clip=None):
    """Relative exposure where gradient ascent from the safe scores ends, for one score per document."""
    n = len(rewards)
    scores, weights = SCORES[:n].copy(), rank_weights(min(3, n))
    safe = exact_exposure(scores, weights)
    for _ in range(STEPS):
        followed = rewards / np.abs(rewards).max()
        if clip is not None:
            followed = proximal_rewards(followed, exact_exposure(scores, weights), safe, clip)
        scores += 0.05 * utility_gradient(scores, followed, weights, rng.gumbel(size=(SAMPLES, n)))
    return exact_exposure(scores, weights) / safe


@pytest.mark.parametrize("rewards", [(-1.0, 1.0), (-100.0, 0.01), (0.3, -5.0)])
def test_exposure_stays_within_the_bound(rng, rewards):
    """To a step's length, for rewards of either sign; without the bound the policy goes to the end."""
    rewards = np.array(rewards)
    for clip in (0.75, 0.9):
        relative = climbed(rewards, rng, clip)
        assert (relative > clip - 0.03).all()
        assert (relative < 1 / clip + 0.03).all()
    end = rank_weights(2)[1] / exact_exposure(SCORES[:2], rank_weights(2))
    assert (climbed(rewards, rng) < end + 0.06)[rewards < 0]


def test_the_bound_limits_what_any_rewards_can_do(rng):
    """As it closes, the exposure that moves goes to zero, and with it any change of utility; at 1 nothing is gained."""
    safe = exact_exposure(SCORES, WEIGHTS)
    for rewards in rng.normal(size=(3, 4)):
        wide, narrow = (np.abs(climbed(rewards, rng, clip) - 1.0) @ safe for clip in (0.7, 0.98))
        assert narrow < 0.08 < 0.3 < wide
    moved = safe[:3] + np.array([0.01, -0.01, 0.0])
    np.testing.assert_array_equal(proximal_rewards(np.array([1.0, -1.0, 0.0]), moved, safe[:3], 1.0), 0.0)


def test_rewards_within_the_bound_are_kept():
    """Beyond it only those are dropped that push farther."""
    safe = np.ones(6)
    exposed = np.array([2.1, 2.1, 0.4, 0.4, 1.9, 0.6])
    rewards = np.array([1.0, -1.0, 1.0, -1.0, 1.0, -1.0])
    np.testing.assert_array_equal(proximal_rewards(rewards, exposed, safe, 0.5), [0.0, -1.0, 1.0, 0.0, 1.0, -1.0])


def test_the_penalty_is_the_gradient_of_the_risk():
    """Differences of risk * sqrt(d2) by each exposure, the sum of safe ones held."""
    safe, exposed = np.array([1.0, 0.6, 0.4]), np.array([0.5, 0.6, 0.9])

    def risk_at(one):
        return 0.3 * np.sqrt((one**2 / safe).sum() / safe.sum())

    exact = [(risk_at(exposed + one) - risk_at(exposed - one)) / 2e-6 for one in 1e-6 * np.eye(3)]
    np.testing.assert_allclose(-penalised_rewards(np.zeros(3), exposed, safe, 0.3), exact, rtol=1e-6)
    equal = penalised_rewards(np.zeros(3), safe, safe, 0.3)
    np.testing.assert_allclose(equal, equal[0])


def test_the_risk_shrinks_with_the_log():
    """With the root of its lists; trust bias and certainty raise it."""
    assert risk_of_estimate(0.0, 2.0, 400, 0.5) == pytest.approx(0.1)
    assert risk_of_estimate(2.0, 2.0, 400, 0.5) == pytest.approx(0.3)
    assert risk_of_estimate(0.0, 2.0, 40_000, 0.5) == pytest.approx(0.01)
    assert risk_of_estimate(0.0, 2.0, 400, 0.05) > 0.4
