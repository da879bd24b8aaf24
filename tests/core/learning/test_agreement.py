"""What clicks on a list say of documents, and by how much a model leads."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sampled_lists import even_reversals, reversals_of

from foltr.core.errors import DataError
from foltr.core.learning.agreement import Preferences, agreement, preferences
from foltr.core.learning.comparison import Comparison
from foltr.core.learning.linear import sample_plackett_luce
from foltr.core.learning.pdgd import score_gradient

K = 10


def clicks_at(*positions, length=K):
    clicks = np.zeros(length, np.bool_)
    clicks[list(positions)] = True
    return clicks


def test_a_click_is_preferred_over_what_was_seen_and_not_clicked():
    """All above the last click, and the first after it. Of scores 1, 0 the second first has e^0 / (e^1 + e^0)."""
    said = preferences(even_reversals(K), clicks_at(1, 3))
    pairs = set(zip(said.preferred.tolist(), said.other.tolist(), strict=True))
    assert pairs == {(1, 0), (1, 2), (1, 4), (3, 0), (3, 2), (3, 4)}
    rho = 1 / (math.e + 1)
    for clicked in (0, 1):
        said = preferences(reversals_of([1.0, 0.0], [0, 1]), clicks_at(clicked, length=2))
        np.testing.assert_allclose(said.weight, [rho])


@given(st.integers(0, 2**32 - 1))
def test_the_pairs_and_weights_are_those_pdgd_learns_from(seed):
    """Summed with the slope of the logistic function, they are its gradient."""
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=15)
    ranking, clicks = sample_plackett_luce(scores, K, rng), rng.random(K) < 0.3
    reversals, shown = reversals_of(scores, ranking), scores[ranking]
    said = preferences(reversals, clicks)
    gradient = np.zeros(K)
    for high, low, weight in zip(said.preferred, said.other, said.weight, strict=True):
        decay = math.exp(-abs(shown[high] - shown[low]))
        slope = decay / (1 + decay) ** 2
        gradient[high] += weight * slope
        gradient[low] -= weight * slope
    np.testing.assert_allclose(gradient, score_gradient(scores, ranking, clicks, reversals), atol=1e-12)


def test_agreement_is_the_share_of_pairs_in_the_users_order():
    """By hand, of three documents; neither zeros nor a broken model gains."""
    ranking = np.array([2, 0, 3])
    said = Preferences(np.array([0, 0]), np.array([1, 2]), np.array([0.25, 0.75]))
    scores = np.array([2.0, 9.0, 1.0, -1.0])
    assert agreement(scores, ranking, said) == pytest.approx(0.75 - 0.25)
    assert agreement(1e30 * scores, ranking, said) == agreement(scores, ranking, said)
    assert agreement(-scores, ranking, said) == pytest.approx(-agreement(scores, ranking, said))
    ranking, said = np.array([0, 1]), Preferences(np.array([0]), np.array([1]), np.ones(1))
    assert agreement(np.zeros(5), ranking, said) == 0.0
    assert agreement(np.full(5, np.nan), ranking, said) == 0.0
    assert agreement(np.array([np.nan, -1e300, 0.0]), ranking, said) == -1.0
    assert agreement(np.zeros(2), ranking, Preferences(np.zeros(0, int), np.zeros(0, int), np.zeros(0))) == 0.0
    for length in (2, 4):
        with pytest.raises(DataError, match="each pair has one"):
            preferences(even_reversals(3), clicks_at(0, length=length))


@pytest.mark.parametrize(
    ("newest", "anchor", "opinion"), [(1.0, 0.5, 1), (0.6, 0.6, 0), (0.5, 1.0, -1), (-1.0, 1.0, -1)]
)
def test_a_better_model_is_not_found_worse_by_users_of_its_lists(newest, anchor, opinion):
    """It has chosen the lists, and so has placed all of each near its top: that must not count against it."""
    # A model has so much of what users want in its scores, and the rest is noise.
    rng = np.random.default_rng(7)
    known = Comparison()
    for _ in range(600):
        wanted, noise = rng.normal(size=50), rng.normal(size=(2, 50))
        scores = [share * wanted + (1 - abs(share)) * own for share, own in zip((newest, anchor), noise, strict=True)]
        scores = [2.0 * each for each in scores]
        ranking = sample_plackett_luce(scores[0], K, rng)
        clicks = rng.random(K) < np.where(wanted[ranking] > 0.5, 0.6, 0.05)
        said = preferences(reversals_of(scores[0], ranking), clicks)
        if said.total > 0.0:
            known = known.with_list(*(agreement(each, ranking, said) for each in scores), said.total)
    assert known.opinion == opinion
