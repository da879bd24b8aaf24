"""How well rounds do: their means with errors, and when the last three are below those before."""

import math

import numpy as np
import pytest

from foltr.core.aggregation.effectiveness import (
    RoundEvaluation,
    RoundReward,
    decline_in,
    reward_of_sums,
    reward_of_updates,
)


def rounds(*means: float, error: float = 0.01, n_updates: int = 50) -> list[RoundReward]:
    """Rounds on models 0, 1, 2, ..."""
    return [RoundReward(version, n_updates, mean, error) for version, mean in enumerate(means)]


def test_the_error_of_updates_is_that_of_their_mean():
    """By the sample variance; of one update nothing is known of it."""
    rewards = [0.5, 0.25, 1.0, 0.25]
    found = reward_of_updates(7, 4, sum(rewards), sum(each**2 for each in rewards))
    assert (found.base_version, found.n_updates, found.mean) == (7, 4, 0.5)
    assert found.standard_error == pytest.approx(np.std(rewards, ddof=1) / 2)
    assert reward_of_updates(7, 1, 0.5, 0.25).standard_error == math.inf
    assert reward_of_updates(7, 0, 0.0, 0.0).mean == 0.0
    assert reward_of_updates(7, 3, 0.1 + 0.1 + 0.1, 3 * 0.1**2).standard_error < 1e-8


def test_the_error_of_sums_has_the_draws_and_the_noise_in_it():
    """Devices draw 1 or 0; a mean that noise has carried outside of [0, 1] has the noise alone."""
    found = reward_of_sums(7, RoundEvaluation(100, 80.0, 50.0, 40.0, 3.0))
    assert (found.mean, found.standard_error) == (0.5, pytest.approx(math.sqrt(0.25 / 100 + 0.03**2)))
    assert reward_of_sums(7, RoundEvaluation(100, 80.0, -2.0, 40.0, 3.0)).standard_error == pytest.approx(0.03)


@pytest.mark.parametrize(
    ("means", "declined"),
    [
        pytest.param([0.5] * 5 + [0.4] * 3, True, id="three rounds"),
        pytest.param([0.5] * 4 + [0.4] * 3, False, id="too few before them"),
        pytest.param([0.5] * 6 + [0.4] * 2, False, id="two rounds"),
        pytest.param([0.5] * 5 + [0.4, 0.49, 0.4], False, id="one of the three is as before"),
        pytest.param([0.5] * 20 + [0.478] * 3, False, id="each a little, together not beyond doubt"),
        pytest.param([0.5] * 20 + [0.47] * 3, True, id="each a little, together beyond doubt"),
        pytest.param([0.5, 0.3, 0.5, 0.3, 0.5, 0.3] * 3 + [0.25] * 3, False, id="users of one day are not of another"),
        pytest.param([0.5] * 5 + [0.6] * 3, False, id="better"),
        pytest.param([0.9] * 5 + [0.5] * 20 + [0.49] * 3, False, id="older than twenty rounds is not looked at"),
    ],
)
def test_three_rounds_below_those_before_are_a_decline(means, declined):
    """Each by more than two standard errors of the difference, and all three together by more than four."""
    assert (decline_in(rounds(*means)) is not None) == declined


def test_the_model_to_serve_again_is_of_five_rounds_before():
    """Those of the rounds just before may be what users click on in the three."""
    decline = decline_in(rounds(*[0.5] * 12, *[0.25] * 3))
    assert decline is not None
    assert (decline.base_version, decline.n_reference) == (7, 12)
    assert decline.in_words.startswith("mean reward 0.250 in the last 3 rounds, 0.500 in the 12 before: ")
    exact = decline_in(rounds(*[0.5] * 5, *[0.25] * 3, error=0.0))
    assert exact is not None
    assert exact.in_words.endswith(" inf standard errors less")


def test_rounds_with_few_evaluations_are_passed_over():
    """Neither in the reference nor among the three."""
    few = rounds(0.0, n_updates=3)
    assert decline_in([*rounds(*[0.5] * 5), *few * 3]) is None
    found = decline_in([*few, *rounds(*[0.5] * 5), *few, *rounds(*[0.4] * 3), *few])
    assert found is not None
    assert (found.reference, found.n_reference) == (0.5, 5)


def test_where_nothing_changes_hardly_any_round_is_a_decline():
    """Of 2,000 rounds of 20 updates each, whose users differ, at most one."""
    rng = np.random.default_rng(7)
    rewards = rng.beta(2, 2, (2000, 20))
    means = [reward_of_updates(i, 20, row.sum(), (row**2).sum()) for i, row in enumerate(rewards)]
    assert sum(decline_in(means[:end]) is not None for end in range(1, len(means) + 1)) <= 1
