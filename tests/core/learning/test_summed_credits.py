"""Credits in secure sums speak for a model only if they exceed noise and a tenth of liars, however often one looks."""

import math

import numpy as np
import pytest

from foltr.core.learning.credits import LIARS, OPENS_AT, STAKES, Credits, CreditSum, summed
from foltr.core.learning.gate import SHARED_LIKELY_ABOVE, SHARED_PROMISING_FROM
from foltr.core.secure.accounting import default_vote_weight, least_variance

N_HISTORIES, N_ROUNDS = 10_000, 200
BOUND = 256
DEVIATION = math.sqrt(
    2  # helpers
    * least_variance(
        BOUND,
        epsilon=8.0,
        delta=1e-6,
        participations=20,
        norm_proofs=True,
        vote_weight=64,
        evaluation_weight=32,
        credit_weight=default_vote_weight(BOUND),
    )
) / default_vote_weight(BOUND)
"""The noise of a sum under the default policy, in credits."""


def highest_growth(totals, n):
    """(histories,) the highest growth after any of the rounds, (histories, rounds), each of n clients."""
    scores = (totals - math.ceil(LIARS * n)) / math.sqrt(n + DEVIATION**2)
    found, rounds = np.cumsum(scores, axis=1), np.arange(1, totals.shape[1] + 1)
    return np.mean([np.exp(np.minimum(s * found - s * s * rounds / 2, 700.0)) for s in STAKES], axis=0).max(axis=1)


def test_sums_by_hand() -> None:
    """A tenth of the clients, rounded up, is subtracted, and each round counts in its own standard errors."""
    assert summed([]) == Credits()
    assert summed([CreditSum(16, 11.0, 3.0)]) == Credits((11.0 - 2.0) / 5.0, 1.0)
    both = [CreditSum(16, 11.0, 3.0), CreditSum(144, 67.0, 5.0)]
    assert summed(both) == Credits(9.0 / 5.0 + 52.0 / 13.0, 2.0)


def test_what_follows_does_not_speak_against_the_model() -> None:
    """Once gates are open, few lists are mixed, and sums stay below the tenth; what opened none is no reason to mix."""
    strong = [CreditSum(100, 60.0, 10.0)] * 3
    assert summed(strong).growth >= OPENS_AT
    assert summed([*strong, *[CreditSum(100, 0.0, 10.0)] * 50]) == summed(strong)
    lucky = [CreditSum(100, 40.0, 10.0), *[CreditSum(100, 0.0, 10.0)] * 50]
    assert summed(lucky[:1]).score > SHARED_LIKELY_ABOVE
    assert summed(lucky).score < SHARED_PROMISING_FROM


def test_the_histories_here_are_judged_as_by_the_device() -> None:
    rng = np.random.default_rng(3)
    totals = rng.normal(25.0, 30.0, (20, 40))
    found = [summed([CreditSum(100, total, DEVIATION) for total in row]).growth for row in totals]
    assert (np.array(found) >= OPENS_AT).tolist() == (highest_growth(totals, 100) >= OPENS_AT).tolist()
    assert 0 < np.mean(np.array(found) >= OPENS_AT) < 1


@pytest.mark.parametrize("n", [100, 1000])
@pytest.mark.parametrize("with_credits", [0.0, 0.3, 1.0], ids=["noise alone", "few lists", "all have lists"])
@pytest.mark.parametrize("share_of_liars", [0.0, LIARS], ids=["honest", "a tenth lie"])
def test_at_most_one_federation_in_a_hundred_believes_in_a_model_that_is_no_better(
    n: int, with_credits: float, share_of_liars: float
) -> None:
    """Of ten thousand, each looked at after each of 200 rounds; a liar claims 1 each time."""
    rng, n_liars = np.random.default_rng(n), math.ceil(share_of_liars * n)
    active = rng.binomial(n - n_liars, with_credits, (N_HISTORIES, N_ROUNDS))
    totals = 2.0 * rng.binomial(active, 0.5) - active + n_liars
    totals += rng.normal(0.0, DEVIATION, totals.shape)
    assert np.mean(highest_growth(totals, n) >= OPENS_AT) <= 0.01


def test_noise_alone_opens_nothing_even_if_nobody_is_taken_for_a_liar() -> None:
    rng = np.random.default_rng(5)
    totals = rng.normal(0.0, DEVIATION, (N_HISTORIES, N_ROUNDS)) + math.ceil(LIARS * 100)
    assert np.mean(highest_growth(totals, 100) >= OPENS_AT) <= 0.01


def test_a_better_model_is_believed_in_within_the_rounds_of_a_policy() -> None:
    """Of 100 clients a round with a mean credit of 0.3: half of all federations by round 20, nearly all by round 60."""
    rng, n = np.random.default_rng(7), 100
    totals = rng.binomial(n, 0.3, (1000, 60)) + rng.normal(0.0, DEVIATION, (1000, 60))
    assert np.mean(highest_growth(totals[:, :20], n) >= OPENS_AT) >= 0.5
    assert np.mean(highest_growth(totals, n) >= OPENS_AT) >= 0.99


def test_more_liars_than_a_tenth_open_gates_and_that_is_said() -> None:
    """What docs/devices.md says of them: three tenths have a useless model believed in."""
    rng, n = np.random.default_rng(9), 100
    totals = np.full((200, 60), 30.0) + rng.normal(0.0, DEVIATION, (200, 60))
    assert np.mean(highest_growth(totals, n) >= OPENS_AT) >= 0.9
