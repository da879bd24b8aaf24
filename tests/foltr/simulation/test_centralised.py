"""The warm-up before a federation: PDGD in one place, on the data that everybody has."""

import dataclasses

import numpy as np
import pytest
from simulated import config, data

from foltr.errors import SettingsError
from foltr.protocol.trainings import LinearRankerSpec, PdgdTraining
from foltr.simulation.centralised import CentralPdgd, warmed_up
from foltr.simulation.clients.crowd import Crowd
from foltr.simulation.clients.partitions import split_shared
from foltr.simulation.clients.population import iid_population
from foltr.simulation.federated import run


def warm_up_population():
    """Somebody who could be the user of the warm-up, on its data."""
    train, test = data()
    return dataclasses.replace(iid_population(train, test, 1, ("navigational",), 50), warm_up=train)


def warmed(n_interactions: int):
    """(d,) the first model after a warm-up."""
    training, ranker = PdgdTraining(), LinearRankerSpec(n_features=8)
    return warmed_up(warm_up_population(), training, ranker, np.zeros(8, np.float32), 3, n_interactions)


def test_a_warm_up_is_the_same_in_parts(monkeypatch):
    """However few interactions fit into memory at once, none is left out or drawn again: the same bits."""
    whole = warmed(170)
    assert not np.array_equal(whole, warmed(120))
    for at_a_time in (50, 85, 169):
        monkeypatch.setattr("foltr.simulation.centralised.INTERACTIONS_AT_A_TIME", at_a_time)
        assert np.array_equal(warmed(170), whole)


def test_a_run_does_not_repeat_the_draws_of_its_warm_up():
    """Even with the same user, the learner after the warm-up explores by other draws."""
    people = warm_up_population()
    people = dataclasses.replace(people, clients=(dataclasses.replace(people.clients[0], name="warm-up"),))
    ranker, first = LinearRankerSpec(n_features=8), np.zeros(8, np.float32)

    def learned(name):
        crowd = Crowd(people, 3, 10)
        learner = CentralPdgd(people, crowd, 10, 0.1, ranker, first, 3, None, batch=False, **name)
        learner.round(1)
        return learner.weights

    assert np.array_equal(learned({"name": "warm-up learner"}), warmed(50))
    assert not np.array_equal(learned({}), warmed(50))


def test_warm_up_trains_the_first_model():
    """Data sharing: the first model is better than none, and is learned from the common data only."""
    train, test = data()
    rest, shared = split_shared(np.random.default_rng(1), train, 0.5)
    of = config(shared_fraction=0.5, warm_up_interactions=200, rounds=1)
    people = dataclasses.replace(iid_population(rest, test, 5, ("perfect",), 4), warm_up=shared)
    warm, cold = run(of, people), run(of.changed(warm_up_interactions=0), people)
    assert warm.ndcg_at_10[0][1] > cold.ndcg_at_10[0][1]
    with pytest.raises(SettingsError, match="no shared data"):
        run(of, dataclasses.replace(people, warm_up=None))
