"""A device's comparison of the newest model with the anchor: a fading mean, and the opinion it comes to."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foltr.core.learning.comparison import COMPARISON_DECAY, FEWEST_LISTS, VOTES_BEYOND, WORSE_BY, Comparison, Opinion


def after(differences, weights=None):
    known = Comparison()
    for i, difference in enumerate(differences):
        known = known.with_list(0.5 + difference / 2, 0.5 - difference / 2, 1.0 if weights is None else weights[i])
    return known


def test_the_mean_and_its_standard_error_are_those_of_a_ratio_of_fading_sums():
    """A list without a preference says nothing, and does not make what is known fade."""
    known, fading = after([-1.0, 0.0], [1.0, 3.0]), COMPARISON_DECAY
    mean = -fading / (fading + 3)
    n_lists = fading + 1
    residuals = (fading * (-1 - mean)) ** 2 + (3 * (0 - mean)) ** 2
    assert known.mean == pytest.approx(mean)
    assert known.n_lists == pytest.approx(n_lists)
    assert known.standard_error == pytest.approx(math.sqrt(n_lists / (n_lists - 1) * residuals) / (fading + 3))
    known = after([-1.0, 0.5])
    assert known.with_list(0.0, 0.0, 0.0) == known
    assert (Comparison().mean, Comparison().standard_error, Comparison().opinion) == (0.0, math.inf, Opinion.NONE)


@pytest.mark.parametrize("side", [-1.0, 1.0])
def test_what_it_takes_to_have_an_opinion(side):
    """Lists enough, in effect, and a mean beyond chance on one side."""
    alike = [side * 1.01 * WORSE_BY] * 200
    first = next(n for n in range(1, 200) if after(alike[:n]).opinion is not Opinion.NONE)
    assert after(alike[:first]).n_lists >= FEWEST_LISTS > after(alike[: first - 1]).n_lists
    assert after(alike).opinion == (Opinion.WORSE if side < 0 else Opinion.BETTER)
    slightly = after([side * 0.9 * WORSE_BY] * 200).opinion
    assert slightly == (Opinion.NONE if side < 0 else Opinion.BETTER)
    swinging = [side * (0.01 + swing) for _ in range(100) for swing in (-1.0, 1.0)]
    assert after(swinging).opinion is Opinion.NONE


def test_what_is_old_fades():
    """A model that is worse now is found worse, however long it was better; by chance as a normal deviate is beyond."""
    rng = np.random.default_rng(1)
    known = after(0.3 + 0.3 * rng.normal(size=2000))
    assert known.opinion is Opinion.BETTER
    for difference in -0.3 + 0.3 * rng.normal(size=600):
        known = known.with_list(0.5 + difference / 2, 0.5 - difference / 2, 1.0)
    assert known.opinion is Opinion.WORSE
    rng = np.random.default_rng(2)
    found = [after(rng.choice([-1.0, 0.0, 1.0], 60), rng.random(60)).opinion for _ in range(400)]
    by_chance = math.erfc(VOTES_BEYOND / math.sqrt(2))
    assert np.mean(np.array(found) != Opinion.NONE) < 2 * by_chance + 0.01


@given(st.lists(st.tuples(st.floats(-1, 1), st.floats(-1, 1), st.floats(0, 45)), max_size=60))
def test_what_is_kept_stays_finite_and_of_bounded_size(lists):
    """Whatever a user clicks: the mean is a difference of agreements, and the sums are bounded by the fading."""
    known = Comparison()
    for newest, anchor, weight in lists:
        known = known.with_list(newest, anchor, weight)
    assert all(math.isfinite(value) for value in known)
    assert -2.0 - 1e-9 <= known.mean <= 2.0 + 1e-9
    assert known.n_lists <= 1.0 / (1.0 - COMPARISON_DECAY)
