"""A device's test of new models: what explains clicks, whatever is shown where, and how often it errs."""

import math

import numpy as np
import pytest

from foltr.core.evaluation.click_models import click_model, clicks_from_draws, examined
from foltr.core.learning.linear import sample_plackett_luce
from foltr_research.simulation.clients.acceptance import FEWEST_LISTS, LEVEL, ClickedList, explained, judge, t_quantile

N_DOCUMENTS, K = 15, 10


def clicked(*documents, p=1.0):
    return ClickedList(np.array(documents, np.int64), np.full(len(documents), p))


def gains(scores, *lists):
    """By one model, of lists that share their candidates."""
    scores = np.asarray(scores, np.float64)
    return explained(scores[None], np.tile([0, len(scores)], (len(lists), 1)), lists)[0]


def histories(rng, n_lists, user, n_grades=3):
    """Grades, and lists with a click on each, shown at random; half of the documents and more are useless."""
    relevance, lists = [], []
    while len(lists) < n_lists:
        grades = rng.integers(0, n_grades, N_DOCUMENTS) * rng.integers(0, 2, N_DOCUMENTS)
        ranking = sample_plackett_luce(np.zeros(N_DOCUMENTS), K, rng)
        clicks = clicks_from_draws(click_model(user, n_grades), grades[ranking], rng.random(2 * K))
        if clicks.any():
            propensities = examined(click_model(user, n_grades), grades[ranking], clicks)
            lists.append(ClickedList(ranking[clicks], propensities[clicks]))
            relevance.append(grades)
    return np.array(relevance), lists


def judged(scores_kept, scores_new, lists, **how):
    scores = np.stack([np.ravel(scores_kept), np.ravel(scores_new)]).astype(np.float64)
    ends = N_DOCUMENTS * np.arange(1, len(lists) + 1)
    return judge(*explained(scores, np.stack([ends - N_DOCUMENTS, ends], axis=1), lists), **how)


def test_a_click_is_worth_its_discounted_rank_over_its_propensity():
    """Also one below what is shown; a list's clicks are added up."""
    found = gains([0.3, 0.9, 0.1], clicked(1), clicked(2, p=0.5), clicked(0, 1))
    assert found == pytest.approx([1.0, 2.0 / 2.0, 1.0 / math.log2(3) + 1.0])


def test_equal_scores_are_worth_what_chance_is_and_no_number_is_last():
    """So zeros neither profit by the order in which candidates come, nor lose."""
    assert gains([0.0] * 3, clicked(0), clicked(2)) == pytest.approx([(1.0 + 1.0 / math.log2(3) + 0.5) / 3] * 2)
    assert gains([math.nan, 0.0, 1.0], clicked(0)) == pytest.approx([0.5])


def test_no_click_weighs_more_than_twenty():
    """However unlikely it was that its position was looked at."""
    assert gains([1.0, 0.0], clicked(0, p=1e-6)) == pytest.approx([20.0])


@pytest.mark.parametrize("user", ["navigational", "informational", "pbm-1"])
def test_what_helps_is_accepted_and_what_harms_refused(user):
    """By two hundred lists of any user; the same model as before is no better."""
    rng = np.random.default_rng(3)
    relevance, lists = histories(rng, 200, user)
    some = relevance + rng.normal(size=relevance.shape) * 2.0
    assert judged(some, relevance, lists).accepted
    assert not judged(some, -relevance, lists).accepted
    assert not judged(relevance, some, lists).accepted
    assert not judged(some, some, lists).accepted


@pytest.mark.parametrize("level", [LEVEL, 0.2])
def test_the_level_is_kept(level):
    """Of 400 models that are as bad as the one before about as many are accepted as the level says."""
    rng = np.random.default_rng(4)
    _, lists = histories(rng, 100, "informational")
    pairs = rng.normal(size=(400, 2, 100, N_DOCUMENTS))
    share = np.mean([judged(*pair, lists, level=level).accepted for pair in pairs])
    assert abs(share - level) < 3 * math.sqrt(level * (1 - level) / 400)


@pytest.mark.parametrize("user", ["informational", "pbm-1"])
def test_where_documents_were_shown_is_corrected_for(user):
    """A model that repeats the order shown, of documents that are all alike, explains no more than one by chance."""
    rng = np.random.default_rng(5)
    order, chance, lists = [], [], []
    while len(lists) < 2000:
        ranking = rng.permutation(N_DOCUMENTS)
        grades = np.full(N_DOCUMENTS, 1 if user == "informational" else 2)
        clicks = clicks_from_draws(click_model(user, 3), grades, rng.random(2 * N_DOCUMENTS))
        if clicks.any():
            lists.append(ClickedList(ranking[clicks], examined(click_model(user, 3), grades, clicks)[clicks]))
            order.append(-np.argsort(ranking))
            chance.append(rng.random(N_DOCUMENTS))
    assert abs(judged(chance, order, lists).t) < 2.5
    uncorrected = [ClickedList(one.clicked, np.ones(len(one.clicked))) for one in lists]
    assert judged(chance, order, uncorrected).t > 5.0


def test_too_few_lists_accept_nothing():
    """However clear they are; nor does an empty history."""
    lists = [clicked(0)] * FEWEST_LISTS
    better, worse = gains([1.0, 0.0], *lists), gains([0.0, 1.0], *lists)
    assert judge(worse, better).accepted
    assert not judge(better, worse).accepted
    assert not judge(worse[1:], better[1:]).accepted
    nothing = explained(np.zeros((2, 0)), np.zeros((0, 2), np.int64), [])
    assert judge(*nothing).n_lists == 0


def test_at_the_level_of_one_half_the_mean_decides():
    """A gain of any size will do, and none will not."""
    rng = np.random.default_rng(6)
    kept = rng.random(50)
    for gain, accepted in ((0.001, True), (-0.001, False)):
        noise = rng.normal(size=50)
        assert judge(kept, kept + noise - noise.mean() + gain, level=0.5).accepted is accepted


def test_quantiles_of_student():
    """From the tables: one-sided 5 % and 1 %."""
    assert t_quantile(0.95, 29) == pytest.approx(1.6991, abs=1e-4)
    assert t_quantile(0.99, 199) == pytest.approx(2.3452, abs=1e-4)
    assert t_quantile(0.5, 30) == 0.0


def test_models_are_judged_by_order_alone():
    """Scores of another size say the same."""
    relevance, lists = histories(np.random.default_rng(7), 50, "navigational")
    assert judged(relevance, 100.0 * relevance + 3.0, lists).gain == 0.0
