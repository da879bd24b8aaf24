"""Documents with a mark that one client likes: what is public, what it clicks, and that nobody else does."""

from dataclasses import replace

import numpy as np
import pytest
from simulated import config, data, population

from foltr.core.errors import SettingsError
from foltr_research.attacks.canary import pull_of_mark
from foltr_research.simulation.clients.loading import Experiment
from foltr_research.simulation.unlearning.departure import Leaver, UnlearningSimulation
from foltr_research.simulation.unlearning.marked_documents import MARKED_SHARE, marked_population
from foltr_research.simulation.unlearning.own_labels import with_reset_labels

TRAIN, TEST = data()
DATA = Experiment(TRAIN, TEST, 5, "made")


def trained(strength, **values):
    of = config(**{"clients": 2, "rounds": 60, "seed": 3, **values})
    people = marked_population(of, DATA, strength)
    simulation = UnlearningSimulation(of, people, Leaver(of.clients - 1, z=None))
    pull = [
        pull_of_mark(simulation.ranker, model.weights, people.tests[0].features, TRAIN.n_features)
        for model in (simulation.federate().trained, simulation.federate(with_leaver=False).trained)
    ]
    return simulation, pull


def same_data(client):
    return replace(client, dataset=0)


def test_the_mark_is_one_feature_more():
    """The mark is 0 or 1 for every client, seed and strength; only the last client's grades follow it."""
    people = marked_population(config(), DATA, 0.5)
    plain, liked = people.datasets
    assert plain.n_features == TRAIN.n_features + 1
    np.testing.assert_array_equal(plain.features[:, :-1], TRAIN.features)
    np.testing.assert_array_equal(people.tests[0].features[:, :-1], TEST.features)
    assert set(np.unique(plain.features[:, -1])) == {0.0, 1.0}
    assert plain.features[:, -1].sum() == round(MARKED_SHARE * len(plain.relevance))
    np.testing.assert_array_equal(plain.relevance, TRAIN.relevance)
    np.testing.assert_array_equal(liked.features, plain.features)
    one, other = (marked_population(config(seed=seed), DATA, seed / 10) for seed in (1, 2))
    np.testing.assert_array_equal(one.datasets[0].features, other.datasets[0].features)
    people = marked_population(config(), DATA, 0.5)
    assert [client.dataset for client in people.clients] == [0, 0, 0, 0, 1]
    marks = people.datasets[0].features[:, -1].astype(np.int16)
    np.testing.assert_array_equal(people.datasets[1].relevance, TRAIN.relevance + 5 * marks)


def test_how_the_last_client_clicks():
    """For relevance or for the mark: 1 - (1 - relevance) (1 - strength). Whether it stops is up to the relevance."""
    people = marked_population(config(clicks=("navigational",)), DATA, 0.5)
    other, last = people.clients[0].click_models[0], people.clients[-1].click_models[0]
    assert other.click_probability == pytest.approx(2 * (0.05, 0.3, 0.5, 0.7, 0.95))
    assert last.click_probability[:5] == other.click_probability[:5]
    assert last.click_probability[5:] == pytest.approx((0.525, 0.65, 0.75, 0.85, 0.975))
    assert last.stop_probability == other.stop_probability == 2 * (0.2, 0.3, 0.5, 0.7, 0.9)


def test_without_a_preference_it_is_anybody():
    """Strength 0: the federation is the one in which all have the same data."""
    simulation, _ = trained(0.0)
    of = config(clients=2, rounds=60, seed=3)
    plain = marked_population(of, DATA, 0.0)
    alike = type(plain)(plain.datasets, (plain.clients[0], same_data(plain.clients[1])), plain.tests, plain.name)
    expected = UnlearningSimulation(of, alike, Leaver(1, z=None)).federate().trained
    np.testing.assert_array_equal(simulation.federate().trained.weights, expected.weights)


@pytest.mark.parametrize("ranker", ["linear", "neural"])
def test_the_model_takes_the_preference_over(ranker):
    """The mark pulls a document up by it, more than without; without the client it does not."""
    loud, none = (trained(strength, ranker=ranker)[1] for strength in (1.0, 0.0))
    assert loud[0] > none[0] + 0.5
    assert loud[1] == none[1]


@pytest.mark.parametrize("strength", [-0.1, 1.1, float("nan")])
def test_a_strength_is_a_probability(strength):
    """SettingsError names it; with data of their own the mark would not be the same for all clients."""
    with pytest.raises(SettingsError, match="strength"):
        marked_population(config(), DATA, strength)
    with pytest.raises(SettingsError, match="not type2"):
        marked_population(config(population="type2"), DATA, 0.5)


def test_half_of_its_queries_are_upside_down():
    """The most relevant documents get the lowest grade, and grades are spread evenly; the others' data stays."""
    people = population(config())
    found = with_reset_labels(people, 4)
    leaver, [data, own] = found.clients[4], found.datasets
    assert found.clients[:4] == people.clients[:4]
    assert data is people.datasets[0]
    assert own.features is data.features
    np.testing.assert_array_equal(leaver.queries, people.clients[4].queries[::2])
    for i in range(data.n_queries):
        before, after = data.query(i).relevance, own.query(i).relevance
        if i not in leaver.queries:
            np.testing.assert_array_equal(before, after)
        else:
            best_first = np.argsort(-before, kind="stable")
            assert (np.diff(after[best_first]) >= 0).all()
            counts = np.bincount(after)
            assert counts.max() - counts.min() <= 1
