"""PDGD in one place: rounds in one go, and the warm-up before a federation on the data that everybody has."""

import dataclasses

import numpy as np
import pytest
from simulated import config, data, population, simulated, with_quantities

from foltr.core.errors import DataError, SettingsError
from foltr.core.protocol.trainings import LinearRankerSpec, PdgdTraining
from foltr_research.simulation.centralised import CentralPdgd, warmed_up
from foltr_research.simulation.checkpoint import CheckpointPlan
from foltr_research.simulation.clients.crowd import Crowd
from foltr_research.simulation.clients.partitions import split_shared
from foltr_research.simulation.clients.population import iid_population
from foltr_research.simulation.federated import run


def warm_up_population():
    """Somebody who could be the user of the warm-up, on its data."""
    train, test = data()
    return dataclasses.replace(iid_population(train, test, 1, ("navigational",), 50), warm_up=train)


def warmed(n_interactions: int):
    """(d,) the first model after a warm-up."""
    training, ranker = PdgdTraining(), LinearRankerSpec(n_features=8)
    return warmed_up(warm_up_population(), training, ranker, np.zeros(8, np.float32), 3, n_interactions)


def test_a_warm_up_is_the_same_in_parts(monkeypatch):
    """However few interactions fit into memory; the learner after it explores by other draws, even of one user."""
    whole = warmed(170)
    assert not np.array_equal(whole, warmed(120))
    for at_a_time in (50, 85, 169):
        monkeypatch.setattr("foltr_research.simulation.centralised.INTERACTIONS_AT_A_TIME", at_a_time)
        assert np.array_equal(warmed(170), whole)
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


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"clients": 1, "interactions": 1},
        {"participants": 2, "clicks": "informational"},
        {"ranker": "neural", "hidden": 4},
        {"attack": "clicks", "attackers": 2},
    ],
)
def test_many_rounds_in_one_go_are_those_rounds(values, monkeypatch):
    """However many rounds are made before somebody looks: each one's figures, and the model, are the same bits."""
    of = config(method="pdgd", rounds=30, eval_every=30, **values)
    people = with_quantities(population(of), 12, 1, 3) if of.clients > 1 else population(of)
    made = []
    rounds = CentralPdgd.rounds

    def watched(self, first, last):
        made.append(last - first + 1)
        return rounds(self, first, last)

    monkeypatch.setattr(CentralPdgd, "rounds", watched)
    results = []
    for at_a_time in (1, 200, 512):
        monkeypatch.setattr("foltr_research.simulation.centralised._STEPS_AT_A_TIME", at_a_time)
        made.clear()
        results.append(run(of, people))
        assert (max(made) == 1) == (at_a_time == 1)
    for other in results[1:]:
        assert other.outcome() == results[0].outcome()
        assert np.array_equal(other.weights, results[0].weights)


def test_somebody_is_asked_to_stop_and_told_between_short_rounds(tmp_path):
    """Evaluations, checkpoints and requests to stop end a stretch of rounds; a run goes on to the same bits."""
    of = config(method="pdgd", clients=1, interactions=1, rounds=2000, eval_every=700)
    told, path = [], tmp_path / "run.checkpoint"
    with pytest.raises(KeyboardInterrupt):
        simulated(of, checkpoint=CheckpointPlan(path, every=900), stop=lambda: True, on_round=told.append)
    assert [progress.round for progress in told] == [0, 512]
    resumed = simulated(of, checkpoint=CheckpointPlan(path, every=900, resume=True), on_round=told.append)
    assert {700, 900, 1400, 1800, 2000} <= {progress.round for progress in told[3:]}
    whole = simulated(of)
    assert resumed.outcome() == whole.outcome()
    assert np.array_equal(resumed.weights, whole.weights)


def test_an_error_says_in_which_rounds_it_was(monkeypatch):
    """Of several rounds made in one go nobody knows in which one weights grew without bounds."""
    rounds = CentralPdgd.rounds

    def grow(self, first, last):
        if first == last:  # what compiles the kernels
            return rounds(self, first, last)
        raise DataError("scores must be finite numbers to learn from")

    monkeypatch.setattr(CentralPdgd, "rounds", grow)
    with pytest.raises(DataError, match=r"rounds 1 to 50: .*lower the learning rate"):
        simulated(config(method="pdgd", clients=1, interactions=1, rounds=100, eval_every=50))
