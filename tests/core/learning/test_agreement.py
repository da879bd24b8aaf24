"""What clicks on a list say of documents, and by how much a model leads."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sampled_lists import even_reversals, reversals_of

from foltr.core.errors import DataError
from foltr.core.learning.agreement import Preferences, preference_lead, preferences
from foltr.core.learning.linear import sample_plackett_luce
from foltr.core.learning.pdgd import score_gradient

K = 10


def clicks_at(*positions, length=K):
    clicks = np.zeros(length, np.bool_)
    clicks[list(positions)] = True
    return clicks


def test_a_click_is_preferred_over_what_was_seen_and_not_clicked():
    """That is everything above the last click, and the first one after it."""
    said = preferences(even_reversals(K), clicks_at(1, 3))
    pairs = set(zip(said.preferred.tolist(), said.other.tolist(), strict=True))
    assert pairs == {(1, 0), (1, 2), (1, 4), (3, 0), (3, 2), (3, 4)}


def test_of_two_documents_the_weight_is_the_probability_of_the_other_order():
    """Shown [a, b] with scores 1 and 0: b first has e^0 / (e^1 + e^0), and that is rho whichever was clicked."""
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


@pytest.mark.parametrize("clicks", [clicks_at(), np.ones(K, np.bool_)])
def test_no_click_and_nothing_but_clicks_say_nothing(clicks):
    said = preferences(even_reversals(K), clicks)
    assert (len(said.weight), said.total) == (0, 0.0)


def test_the_lead_is_the_share_of_all_candidates_between_the_two():
    """By hand, of four candidates of which three are shown: places from the last, 0, are 1/8, 3/8, 5/8, 7/8."""
    ranking = np.array([2, 0, 3])
    said = Preferences(np.array([0, 0]), np.array([1, 2]), np.array([0.25, 0.75]))
    scores = np.array([2.0, 9.0, 1.0, -1.0])  # places 5/8, 7/8, 3/8 and 1/8
    assert preference_lead(scores, ranking, said) == pytest.approx(0.25 * (3 / 8 - 5 / 8) + 0.75 * (3 / 8 - 1 / 8))
    assert preference_lead(1e30 * scores, ranking, said) == preference_lead(scores, ranking, said)
    assert preference_lead(-scores, ranking, said) == pytest.approx(-preference_lead(scores, ranking, said))


def test_what_says_nothing_has_no_lead():
    """Neither zeros nor a broken model gains; each pair has a reversal, and nothing else has one."""
    ranking, said = np.array([0, 1]), Preferences(np.array([0]), np.array([1]), np.ones(1))
    assert preference_lead(np.zeros(5), ranking, said) == 0.0
    assert preference_lead(np.full(5, np.nan), ranking, said) == 0.0
    assert preference_lead(np.array([np.nan, -1e300, 0.0]), ranking, said) == pytest.approx(-1 / 3)
    assert preference_lead(np.zeros(2), ranking, Preferences(np.zeros(0, int), np.zeros(0, int), np.zeros(0))) == 0.0
    for length in (2, 4):
        with pytest.raises(DataError, match="each pair has one"):
            preferences(even_reversals(3), clicks_at(0, length=length))


def test_a_click_anywhere_gives_no_model_a_lead():
    rng = np.random.default_rng(1)
    scores = rng.normal(size=25)
    leads, weights = [], []
    for _ in range(4000):
        ranking = sample_plackett_luce(scores, K, rng)
        said = preferences(reversals_of(scores, ranking), clicks_at(rng.integers(K)))
        leads.append(preference_lead(scores, ranking, said))
        weights.append(said.total)
    assert np.average(leads, weights=weights) == pytest.approx(0.0, abs=0.005)


def test_the_lead_tells_what_the_order_within_the_list_cannot():
    """A ruined model shows what another one places last: the clicked one is just as far before the skipped one."""
    said = Preferences(np.array([1]), np.array([0]), np.ones(1))
    ranking = np.array([0, 1])
    near, far = np.array([1.0, 2.0, 0.0, 0.0, 0.0]), np.array([0.0, 9.0, 1.0, 2.0, 3.0])
    assert near[ranking].argmax() == far[ranking].argmax() == 1
    assert preference_lead(far, ranking, said) > preference_lead(near, ranking, said) > 0.0
