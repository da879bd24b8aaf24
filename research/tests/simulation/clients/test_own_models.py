"""Clients with models of their own: whose newest model they take, by which history, and what they go on from."""

import numpy as np
import pytest
from simulated import config, population

from foltr.core.evaluation.click_models import click_model
from foltr.core.protocol.trainings import LinearRankerSpec
from foltr_research.simulation.clients.acceptance import FEWEST_LISTS, LEVEL, MOST_LISTS
from foltr_research.simulation.clients.own_models import OwnModels

PEOPLE = population(config())
USER = click_model("perfect", 5)
FIRST = np.zeros(8, np.float32)


def models(level=LEVEL):
    return OwnModels(PEOPLE, LinearRankerSpec(n_features=8), FIRST, level)


def feature(i):
    return np.eye(8, dtype=np.float32)[i]


def clicked(found, client, liked, n_lists=FEWEST_LISTS, begin=0):
    """A client whose user clicks, list by list, the document that a model would put first."""
    data = PEOPLE.datasets[0]
    for i in range(begin, begin + n_lists):
        pick = i % data.n_queries
        query = data.query(pick)
        ranking = np.random.default_rng(i).permutation(len(query.relevance))[:10]
        best = np.argmax((query.features @ liked)[ranking])
        found.take_list(client, pick, USER, ranking, query.relevance[ranking], np.arange(len(ranking)) == best)
    return found


def test_a_client_takes_what_explains_its_own_clicks():
    """Its own, and nobody else's; then what it has learned is what the next must be better than."""
    found = clicked(models(), 0, feature(2))
    assert found.judge(0, feature(2)).accepted
    assert found.model_under(0, feature(2)) is not found.model_under(1, feature(2))
    assert np.array_equal(found.model_under(1, feature(2)), FIRST)
    assert not found.judge(0, -feature(2)).accepted
    found.keep(0, feature(2))
    assert not found.judge(0, feature(2)).accepted
    assert np.array_equal(found.model_under(0, feature(5)), feature(2))


def test_what_is_no_number_is_not_taken():
    """Nor is anything said of it but that."""
    found = clicked(models(), 0, feature(2))
    assert not found.judge(0, np.full(8, np.nan, np.float32)).accepted


def test_the_newest_lists_count_and_those_without_a_click_do_not():
    """A user who has changed its mind is believed when the old lists are gone."""
    found = clicked(models(), 0, feature(2))
    query = PEOPLE.datasets[0].query(0)
    ranking = np.arange(len(query.relevance))[:10]
    found.take_list(0, 0, USER, ranking, query.relevance[ranking], np.zeros(len(ranking), np.bool_))
    assert found.judge(0, feature(2)).n_lists == FEWEST_LISTS
    clicked(found, 0, -feature(2), n_lists=MOST_LISTS, begin=FEWEST_LISTS)
    assert found.judge(0, feature(2)).n_lists == MOST_LISTS
    assert found.judge(0, -feature(2)).accepted


def test_the_level_is_the_test_s():
    """A gain too small for one is enough for the other."""
    found = [clicked(clicked(models(level), 0, feature(2), 22), 0, -feature(2), 18, begin=22) for level in (0.05, 0.5)]
    for one in found:
        one.keep(0, -feature(2))
    gains = [one.judge(0, feature(2)) for one in found]
    assert gains[0].gain == gains[1].gain > 0.0
    assert [one.accepted for one in gains] == [False, True]


@pytest.mark.parametrize("n_lists", [0, 35])
def test_its_state_is_all_there_is(n_lists):
    """Another one goes on from it alike, also from the empty one."""
    found = clicked(models(), 3, feature(1), n_lists=n_lists)
    found.keep(2, feature(4))
    again = models()
    again.restore(found.state())
    assert again.judge(3, feature(1)) == found.judge(3, feature(1))
    assert np.array_equal(again.model_under(2, FIRST), feature(4))
