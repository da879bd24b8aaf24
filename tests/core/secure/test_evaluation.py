"""What lists have earned becomes numbers of 0 or u: each has its mean, one draw decides all, and none is above another
that it could not be above."""

import os

import numpy as np
import pytest

from foltr.core.secure.accounting import N_EVALUATION
from foltr.core.secure.evaluation import encode_evaluation, longest_evaluation

WEIGHT = 32


def drawing(share):
    """Random bytes that are so large a part of the largest number."""
    return lambda n: min(2**64 - 1, int(share * 2**64)).to_bytes(n, "little")


def test_each_number_has_its_mean_and_is_nothing_or_the_weight(rng):
    """Of many devices with the same means: within four standard errors of a coin with that probability."""
    means, n = np.array([0.9, 0.37, 0.5]), 20_000
    numbers = np.array([encode_evaluation(means, WEIGHT, rng.bytes) for _ in range(n)])
    assert set(np.unique(numbers)) == {0, WEIGHT}
    errors = np.sqrt(means * (1 - means) / n)
    assert (np.abs(numbers.mean(axis=0) / WEIGHT - means) < 4 * errors).all()


def test_one_draw_decides_all_three(rng):
    """So nothing is earned without a click, and the difference of two has the variance of their difference alone."""
    means, n = (0.6, 0.5, 0.45), 5_000
    clicked, reward, base = np.array([encode_evaluation(means, 1, rng.bytes) for _ in range(n)]).T
    assert (clicked >= reward).all()
    assert (reward >= base).all()
    difference = reward - base
    assert difference.var() == pytest.approx(0.05 * 0.95, abs=0.01)
    asked = []
    encode_evaluation(means, 1, lambda n: asked.append(n) or bytes(n))
    assert len(asked) == 1


def test_what_is_sure_is_sure_and_a_probability_is_the_mean_to_the_last_digit():
    """Of a mean of nothing nobody hears anything; a quarter of all draws is below a quarter."""
    for share in [0.0, 0.25, 0.5, 1.0]:
        assert encode_evaluation((1.0, 0.0, 1.0), WEIGHT, drawing(share)).tolist() == [WEIGHT, 0, WEIGHT], share
    for share, earned in [(0.24, True), (0.25, False), (0.26, False)]:
        assert encode_evaluation((0.25,) * 3, WEIGHT, drawing(share)).tolist() == [WEIGHT * earned] * 3, (share, earned)


def test_who_says_nothing_looks_like_who_was_not_clicked():
    """And where a policy asks for no evaluation there is no number of one."""
    assert encode_evaluation(None, WEIGHT, os.urandom).tolist() == [0, 0, 0]
    assert encode_evaluation((0.0, 0.0, 0.0), WEIGHT, os.urandom).tolist() == [0, 0, 0]
    assert encode_evaluation((1.0, 1.0, 1.0), 0, os.urandom).size == 0


def test_the_longest_is_what_noise_is_made_for():
    """All three at the weight, as of lists whose first document was clicked in both orders."""
    assert longest_evaluation(WEIGHT).tolist() == encode_evaluation((1.0,) * 3, WEIGHT, os.urandom).tolist()
    assert longest_evaluation(WEIGHT).size == N_EVALUATION
    assert longest_evaluation(0).size == 0
