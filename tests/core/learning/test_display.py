"""Every exploration says truly how probable its lists are, and PDGD learns from each without a bias."""

import functools
import itertools
import math
import sys

import numpy as np
import pytest

from foltr.core.evaluation.click_models import ClickModel, click_model
from foltr.core.learning.display import (
    MOST_COMPARED,
    best_list,
    exchange_probabilities,
    interleaved_list,
    pair_index,
    sampled_list,
    sometimes_sampled_list,
    standardised,
    swapped_list,
)
from foltr.core.learning.linear import rank_by_score
from foltr.core.learning.pdgd import clicked_reversals, score_gradient
from foltr.core.numerics.compiled import COMPILED, plain_functions
from foltr.core.protocol.explorations import SAFE

SCORES = np.array([0.2, 0.7, -0.2, 0.5, 0.1])
BASE = np.array([4, 1, 0, 3, 2])


def _order(n):
    return rank_by_score(SCORES[:n], n)


def _base(n, k):
    return BASE[n > BASE][:k]


EXPLORATIONS = {
    "none": lambda n, k, _rng: best_list(SCORES[:n], k),
    "sampling": lambda n, k, rng: sampled_list(SCORES[:n], k, rng),
    "sampling of standardised scores": lambda n, k, rng: sampled_list(SCORES[:n], k, rng, 3.0),
    "share": lambda n, k, rng: sometimes_sampled_list(SCORES[:n], k, rng, 0.6, 3.0),
    "share of all": lambda n, k, rng: sometimes_sampled_list(SCORES[:n], k, rng, 1.0, 3.0),
    "swaps": lambda n, k, rng: swapped_list(_order(n)[:k], rng, 0.3),
    "interleaving": lambda n, k, rng: interleaved_list(_order(n)[:k], _base(n, k), rng)[0],
    "interleaving of equal lists": lambda n, k, rng: interleaved_list(_order(n)[:k], _order(n)[:k], rng)[0],
}
CERTAIN = ("none", "interleaving of equal lists")
SHAPES = [(4, 4), (4, 3), (5, 5), (5, 2), (3, 1), (2, 2), (1, 1)]
_DRAWS = 8_000


@functools.cache
def _lists_of(which, n, k):
    """Draw until every list that the exploration shows was drawn: by ranking, how often and what it says of itself."""
    rng, counts, said = np.random.default_rng(4), {}, {}
    for _ in range(_DRAWS):
        shown = EXPLORATIONS[which](n, k, rng)
        ranking = tuple(shown.ranking.tolist())
        counts[ranking] = counts.get(ranking, 0) + 1
        first = said.setdefault(ranking, shown)
        assert shown.log_probability == first.log_probability
        assert shown.reversals.tobytes() == first.reversals.tobytes()
    return counts, said


def test_a_list_says_how_probable_it_is_and_each_exchange():
    """Probabilities sum to 1 and are how often lists come; a reversal is P(R*) / (P(R) + P(R*)), or 0."""
    for n, k in SHAPES:
        for which in EXPLORATIONS:
            counts, said = _lists_of(which, n, k)
            probability = {ranking: math.exp(shown.log_probability) for ranking, shown in said.items()}
            assert sum(probability.values()) == pytest.approx(1.0, abs=1e-12), (n, k, which)
            for ranking, count in counts.items():
                deviation = math.sqrt(probability[ranking] * (1.0 - probability[ranking]) / _DRAWS)
                assert abs(count / _DRAWS - probability[ranking]) <= 4.5 * deviation + 1e-12, (n, k, which)
            for ranking, shown in said.items():
                assert len(set(ranking)) == k, (n, k, which)
                expected = []
                for upper, lower in itertools.combinations(range(k), 2):
                    exchanged = list(ranking)
                    exchanged[upper], exchanged[lower] = ranking[lower], ranking[upper]
                    other = probability.get(tuple(exchanged), 0.0)
                    expected.append(other / (probability[ranking] + other))
                np.testing.assert_allclose(shown.reversals, expected, rtol=1e-9, atol=1e-12)


def chance_of_clicks(user: ClickModel, grades: list[int], clicks: list[bool]) -> float:
    """Of these clicks exactly, by a user who reads from the top and may stop at each document."""
    chance = 0.0
    for last in range(len(clicks)):  # the last position examined
        if any(clicks[last + 1 :]):
            continue
        examined = 1.0
        for i in range(last + 1):
            click, stop = user.click_probability[grades[i]], user.stop_probability[grades[i]]
            examined *= click if clicks[i] else 1.0 - click
            goes_on = i < last or last == len(clicks) - 1
            if clicks[i]:
                examined *= (1.0 - stop if i < last else 1.0) if goes_on else stop
            elif not goes_on:
                examined = 0.0
        chance += examined
    return chance


def expected_gradient(which, n, k, user, grades):
    """Over all lists and all clicks, of the score of each document; the learner's scores are its own."""
    learner = np.random.default_rng(7).normal(size=n)
    total = np.zeros(n)
    for ranking, shown in _lists_of(which, n, k)[1].items():
        for clicks in itertools.product([False, True], repeat=k):
            chance = chance_of_clicks(user, [grades[document] for document in ranking], list(clicks))
            gradient = score_gradient(learner, np.array(ranking), np.array(clicks), shown.reversals)
            total[list(ranking)] += math.exp(shown.log_probability) * chance * gradient
    return total


def test_documents_that_users_like_equally_neither_gain_nor_lose():
    """Clicks that depend on the position alone teach nothing, whatever was shown more often at the top."""
    for model in ["perfect", "informational"]:
        for n, k in [(4, 4), (5, 3)]:
            for which in EXPLORATIONS:
                np.testing.assert_allclose(
                    expected_gradient(which, n, k, click_model(model, 3), [1] * n), 0.0, atol=1e-15
                )


def test_the_better_document_gains():
    """Of four documents the one that users like gains, or nothing is learned of it; what it gains the others lose."""
    for model in ["perfect", "informational"]:
        for which in [name for name in EXPLORATIONS if name not in CERTAIN]:
            gained = []
            for better in range(4):
                grades = [0] * 4
                grades[better] = 2
                gradient = expected_gradient(which, 4, 4, click_model(model, 3), grades)
                assert gradient.sum() == pytest.approx(0.0, abs=1e-15), (model, which)
                assert np.delete(gradient, better).max() <= 1e-15, (model, which)
                gained.append(gradient[better])
            if which == "interleaving":  # both lists begin and end alike: there it compares nothing
                assert gained[1] == gained[2] == pytest.approx(0.0, abs=1e-15), (model, which)
                gained = [gained[0], gained[3]]
            assert min(gained) > 1e-4, (model, which)
    for which in CERTAIN:  # its clicks say nothing that PDGD could free of the order's bias
        assert not expected_gradient(which, 4, 4, click_model("perfect", 3), [0, 2, 0, 1]).any()


def test_swaps_exchange_neighbours_as_rarely_as_it_costs_who_wants_the_upper_one():
    rng, best = np.random.default_rng(3), np.arange(10)
    lists = np.array([swapped_list(best, rng, 0.1).ranking for _ in range(4000)])
    assert np.abs(lists - best).max() <= 1
    exchanged = np.mean(lists[:, :-1] == best[1:], axis=0)
    # Half of the lists have the other pairing.
    assert exchanged == pytest.approx(np.array([0.1, 0.3, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0.5]) / 2, abs=0.03)
    assert exchange_probabilities(5, 0.04) == pytest.approx([0.04, 0.12, 0.24, 0.4])
    pairs = list(itertools.combinations(range(7), 2))
    assert [pair_index(upper, lower, 7) for upper, lower in pairs] == list(range(21))


@pytest.mark.parametrize("right_at_first", [0.3, 0.75, 0.95, 1.0])
def test_the_default_exploration_costs_at_most_one_thousandth_of_reciprocal_rank(right_at_first):
    """Exactly, over all lists that may be shown, however often the order is right at the first place."""
    wanted = np.append(right_at_first, np.full(9, (1.0 - right_at_first) / 9))
    gained = 1.0 / np.arange(1, 10) - 1.0 / np.arange(2, 11)  # by the lower document of a pair
    costs = exchange_probabilities(10, SAFE.probability) / 2 * gained * (wanted[:-1] - wanted[1:])
    assert costs.sum() == pytest.approx(SAFE.probability / 4 * (wanted[0] - wanted[-1]))
    assert costs.sum() <= 0.001


def test_interleaving_takes_turns():
    """Of two lists without a common document each adds one to every two positions."""
    rng = np.random.default_rng(3)
    for _ in range(20):
        ranking = interleaved_list(np.array([0, 1, 2]), np.array([3, 4, 5]), rng)[0].ranking
        assert len({int(document) // 3 for document in ranking[:2]}) == 2
        for own in (ranking[ranking < 3], ranking[ranking >= 3]):
            assert (np.diff(own) > 0).all()


def test_a_temperature_is_of_standardised_scores():
    """Neither learning rate nor scale changes which list is drawn; equal scores leave the documents as given."""
    for scale in [1e-6, 1.0, 1e6]:
        for shift in [0.0, 5.0]:
            expected = sampled_list(SCORES, 5, np.random.default_rng(2), 0.3)
            drawn = sampled_list(SCORES * scale + shift * scale, 5, np.random.default_rng(2), 0.3)
            np.testing.assert_array_equal(drawn.ranking, expected.ranking)
            assert drawn.log_probability == pytest.approx(expected.log_probability, rel=1e-6), (scale, shift)
            untempered = sampled_list(SCORES * scale, 5, np.random.default_rng(2)).log_probability
            as_they_are = sampled_list(SCORES, 5, np.random.default_rng(2)).log_probability
            assert (untempered == pytest.approx(as_they_are)) is (scale == 1.0), (scale, shift)
    np.testing.assert_array_equal(standardised(np.full(4, 7.0)), standardised(np.array([3.0, 2.0, 1.0, 0.0])))
    np.testing.assert_allclose(np.std(standardised(np.full(4, 7.0))), 1.0)
    np.testing.assert_array_equal(standardised(np.array([7.0])), [0.0])
    np.testing.assert_array_equal(standardised(np.zeros(0)), np.zeros(0))


def test_only_the_first_positions_are_compared(rng):
    """A list of a hundred has reversals of the first fifty, the same that clicks there are learned by, to the bit."""
    n, k = 120, 100
    scores, clicks = rng.normal(size=n), rng.random(k) < 0.3
    shown = sampled_list(scores, k, rng)
    others = (
        sometimes_sampled_list(scores, k, rng, 0.5, 0.3),
        swapped_list(np.arange(k), rng, 0.5),
        interleaved_list(rng.permutation(n)[:k], np.arange(k), rng)[0],
        best_list(scores, k),
    )
    for one in (shown, *others):
        assert one.ranking.shape == (k,)
        assert one.reversals.shape == (MOST_COMPARED * (MOST_COMPARED - 1) // 2,)
        assert ((one.reversals >= 0.0) & (one.reversals <= 1.0)).all()
    by_clicks = clicked_reversals(scores, shown.ranking, clicks)
    np.testing.assert_array_equal(by_clicks[by_clicks > 0.0], shown.reversals[by_clicks > 0.0])
    gradient = score_gradient(scores, shown.ranking, clicks, shown.reversals)
    np.testing.assert_array_equal(gradient, score_gradient(scores, shown.ranking, clicks, by_clicks))
    assert gradient[:MOST_COMPARED].any()
    assert not gradient[MOST_COMPARED:].any()


def test_thousand_documents_are_interleaved_while_a_user_waits(rng):
    """By plain functions, as in the threads of an application, where it took seconds: by the lines that are run."""
    n_lines = 0

    def count(_frame, event, _argument):
        nonlocal n_lines
        n_lines += event == "line"
        return count

    with plain_functions():
        sys.settrace(count)
        try:
            interleaved_list(rng.permutation(1000), np.arange(1000), rng)
        finally:
            sys.settrace(None)
    assert n_lines < 300_000


@pytest.mark.skipif(not COMPILED, reason="numba is not installed or switched off")
def test_kernels_without_a_compiler_give_the_same_reversals(rng):
    from foltr.core.learning import display

    model, base = rng.permutation(12), rng.permutation(12)
    ranking = interleaved_list(model, base, rng)[0].ranking
    plain = display._draft_reversals.py_func(model, base, ranking, 12)  # noqa: SLF001
    np.testing.assert_allclose(plain[1], display._draft_reversals(model, base, ranking, 12)[1], rtol=1e-14)  # noqa: SLF001
    scores = rng.normal(size=15)
    drawn = sampled_list(scores, 12, rng).ranking
    plain = display.plackett_luce_log_odds.py_func(scores, drawn)
    np.testing.assert_allclose(plain[1], display.plackett_luce_log_odds(scores, drawn)[1], rtol=1e-12, atol=1e-12)
