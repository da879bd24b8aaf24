"""What an outsider makes of models: the pull of a mark, likelihood ratios of shadows, rates with intervals."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foltr.core.errors import DataError
from foltr.core.methods.base import scores_of
from foltr.core.protocol.trainings import LinearRankerSpec, NeuralRankerSpec
from foltr_research.attacks.canary import (
    LEAST_SHADOWS,
    area_under_curve,
    likelihood_ratios,
    pull_of_mark,
    threshold,
    wilson,
)

RATIOS = st.lists(st.sampled_from([-1.0, 0.0, 0.5, 2.0]), min_size=1, max_size=12)
FEATURES = np.array([[0.0, 1.0], [1.0, 0.0], [0.5, 1.0], [0.5, 0.0]], np.float32)


def normal(seed, n, mean=0.0, k=1):
    return np.random.default_rng(seed).normal(mean, 1.0, (n, k))


def test_the_pull_of_a_ranker():
    """The weight of the mark, or the mean difference of scores, over the deviation of those without it."""
    deviation = 2.0 * np.sqrt((0.25 + 0.25) / 4)
    found = pull_of_mark(LinearRankerSpec(n_features=2), np.array([2.0, -3.0]), FEATURES, 1)
    assert found == pytest.approx(-3.0 / deviation)
    ranker = NeuralRankerSpec(n_features=2, hidden=3)
    weights, features = np.random.default_rng(1).normal(size=ranker.n_weights), FEATURES.copy()
    marked, plain = FEATURES.copy(), FEATURES.copy()
    marked[:, 1], plain[:, 1] = 1, 0
    scores = [scores_of(ranker, weights, of).astype(np.float64) for of in (marked, plain)]
    expected = (scores[0] - scores[1]).mean() / scores[1].std()
    assert pull_of_mark(ranker, weights, features, 1) == pytest.approx(expected, rel=1e-5)
    np.testing.assert_array_equal(features, FEATURES)
    with pytest.raises(DataError, match="one score"):
        pull_of_mark(LinearRankerSpec(n_features=2), np.array([0.0, 1.0]), FEATURES, 1)


def test_the_ratio_of_two_normal_distributions():
    """N(2, 1) over N(0, 1) at x is exp(2 x - 2); both signs tell, units do not matter, few shadows are refused."""
    base = normal(1, 4_000)
    shadows = (base - base.mean()) / base.std(ddof=1)
    found = likelihood_ratios(shadows + 2.0, shadows, np.array([[0.0], [1.0], [3.0]]))
    np.testing.assert_allclose(found, [-2.0, 0.0, 4.0], atol=1e-3)
    lower = likelihood_ratios(normal(1, 50, -3.0), normal(2, 50), np.array([[-3.0], [0.0]]))
    assert lower[0] > 0.0 > lower[1]
    wider = likelihood_ratios(5.0 * normal(1, 50), normal(2, 50), np.array([[-6.0], [0.0], [6.0]]))
    assert min(wider[0], wider[2]) > 0.0 > wider[1]
    shadows = normal(1, 40, 1.0, k=2), normal(2, 40, k=2)
    seen, unit = normal(3, 5, k=2), np.array([1e-6, 1e6])
    plain = likelihood_ratios(*shadows, seen)
    np.testing.assert_allclose(likelihood_ratios(*(of * unit for of in shadows), seen * unit), plain, rtol=1e-6)
    few, many = normal(1, LEAST_SHADOWS - 1), normal(2, LEAST_SHADOWS)
    for shadows in ((few, many), (many, few)):
        with pytest.raises(DataError, match=rf"shadows of shape \({LEAST_SHADOWS - 1}, 1\)"):
            likelihood_ratios(*shadows, many)


def test_what_goes_together_tells():
    """Two numbers that say nothing one by one: with the canary their difference is large."""

    def seen(seed, more):
        common = normal(seed, 60)
        return np.hstack((common, common + 0.05 * normal(seed + 1, 60) + more))

    shadows, judged = (seen(1, 0.5), seen(3, 0.0)), (seen(5, 0.5), seen(7, 0.0))
    both = [likelihood_ratios(*shadows, one) for one in judged]
    alone = [likelihood_ratios(shadows[0][:, 1:], shadows[1][:, 1:], one[:, 1:]) for one in judged]
    assert area_under_curve(*both).estimate > 0.99
    assert area_under_curve(*alone).estimate < 0.9


def test_a_canary_that_is_not_there_is_not_told():
    """Federations alike: over 100 attacks the area is a half in the mean, and its interval holds that nearly always."""
    areas = []
    for seed in range(100):
        with_canary, without, one, other = (normal([seed, of], 30, k=2) for of in range(4))
        areas.append(
            area_under_curve(
                *(likelihood_ratios(with_canary, without, judged) for judged in (one, other)), resamples=200
            )
        )
    assert np.mean([area.estimate for area in areas]) == pytest.approx(0.5, abs=0.02)
    assert sum(area.low <= 0.5 <= area.high for area in areas) >= 87


def test_the_threshold_is_kept_in_the_mean():
    """Of 39 shadows the second highest: one of 40 likely places in 20 is above it; 18 are too few."""
    assert threshold(np.arange(39.0), 0.05) == 37.0
    above = [np.mean(normal(of, 500) > threshold(normal(of + 1_000, 39)[:, 0], 0.05)) for of in range(400)]
    assert np.mean(above) == pytest.approx(2 / 40, abs=0.005)
    assert threshold(np.arange(19.0), 0.05) == 18.0
    with pytest.raises(DataError, match=r"18 shadows are too few for a false positive rate of 0\.05"):
        threshold(np.arange(18.0), 0.05)


def test_wilsons_interval():
    """By hand for 2 of 4: (1/2 +- 1.96 / 1.96 * ...) around the middle; all of 50 is not certainly all."""
    z2 = 1.959964**2
    half = 1.959964 / (1 + z2 / 4) * (0.25 / 4 + z2 / 64) ** 0.5
    found = wilson(2, 4)
    assert (found.low, found.high) == pytest.approx((0.5 - half, 0.5 + half))
    assert wilson(50, 50).low == pytest.approx(1 / (1 + z2 / 50))
    assert (wilson(0, 50).low, wilson(50, 50).high) == pytest.approx((0.0, 1.0))
    assert str(wilson(50, 50)) == "1.00 [0.93, 1.00]"


@given(one=RATIOS, other=RATIOS)
def test_the_area_is_the_share_of_pairs_won(one, other):
    """Ties count half, swapping the sides turns it round, and the interval holds it."""
    pairs = [1.0 if mine > theirs else 0.5 if mine == theirs else 0.0 for mine in one for theirs in other]
    found = area_under_curve(np.array(one), np.array(other), resamples=50)
    assert found.estimate == pytest.approx(np.mean(pairs))
    turned = area_under_curve(np.array(other), np.array(one), resamples=50)
    assert turned.estimate == pytest.approx(1.0 - found.estimate)
    assert 0.0 <= found.low <= found.high <= 1.0
