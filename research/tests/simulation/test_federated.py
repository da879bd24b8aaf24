"""A run is a function of its configuration and its data; every method learns, and what is reported is what was done."""

import dataclasses
import os
import sys

import numpy as np
import pytest
from simulated import config, data, population, simulated
from support.completed_process import completed

from foltr.core.data.dataset import select_queries
from foltr.core.errors import DataError, SettingsError
from foltr.core.evaluation.metrics import mean_ndcg_at_k
from foltr.core.learning.lambdarank import logging_policy
from foltr.core.methods.registry import METHODS, initial_weights
from foltr.core.numerics.streams import first_model_rng
from foltr.core.protocol.trainings import LinearRankerSpec
from foltr_research.cli.simulate import _run
from foltr_research.simulation.checkpoint import CheckpointPlan
from foltr_research.simulation.clients.intents import synthetic_intents
from foltr_research.simulation.clients.loading import load_experiment, population_for
from foltr_research.simulation.clients.partitions import intent_population, label_skew_population
from foltr_research.simulation.clients.population import Population, iid_population
from foltr_research.simulation.config import resolve
from foltr_research.simulation.evaluation import Evaluator
from foltr_research.simulation.federated import run
from foltr_research.simulation.learners import Federation, participants_of
from foltr_research.simulation.method_names import SIMULATOR_METHODS
from foltr_research.simulation.results import online_performance


def everything(method: str) -> dict[str, object]:
    return {"method": method, **({"ranker": "neural", "hidden": 3} if method == "fedper" else {})}


@pytest.mark.parametrize("method", [*METHODS, *SIMULATOR_METHODS])
def test_the_same_configuration_gives_the_same_result(method):
    """Every method, twice: equal in everything but the times; another seed is another run."""
    of = config(**everything(method))
    one, other = simulated(of), simulated(of)
    assert one.outcome() == other.outcome()
    assert np.array_equal(one.weights, other.weights)
    assert [number for number, _ in one.ndcg_at_10] == [0, 2, 4]
    assert method == "lambdarank" or one.ndcg_at_10 != simulated(of.changed(seed=2)).ndcg_at_10


LINEAR = ("fpdgd", "fedprox", "fpdgd-personal", "fedips", *SIMULATOR_METHODS)
NEURAL = ("fpdgd", "pdgd", "pdgd-batch", "local", "fedper")


@pytest.mark.parametrize(
    ("ranker", "method"), [*(("linear", one) for one in LINEAR), *(("neural", one) for one in NEURAL)]
)
def test_methods_learn(ranker, method):
    """The ranker in use is better at the end than at the beginning; a hidden layer learns in every kind of runner."""
    parameters = {"learning_rate": 0.05} if method == "fedips" else {}
    of = config(method=method, ranker=ranker, hidden=4, parameters=parameters, interactions=10, eval_every=30)
    result = simulated(of.changed(rounds=20 if ranker == "linear" else 30))
    assert result.final_ndcg > result.ndcg_at_10[0][1] + (0.05 if ranker == "linear" else 0.0)


def test_rounds_are_evaluated_as_often_as_asked():
    """Round 0, every so many, and the last, the final model's; the online one is a discounted sum of rounds."""
    result = simulated(config(rounds=5, eval_every=3))
    assert [number for number, _ in result.ndcg_at_10] == [0, 3, 5]
    assert result.final_ndcg == mean_ndcg_at_k(result.weights, data()[1]).mean
    assert result.ndcg_at_10_global is None
    result = simulated(config(rounds=5))
    assert len(result.online_per_round) == len(result.reciprocal_ranks) == 5
    assert result.online_ndcg == online_performance(result.online_per_round)
    assert 0 < result.online_ndcg < 5
    assert np.all((result.reciprocal_ranks >= 0) & (result.reciprocal_ranks <= 1))


def test_participants_are_drawn_for_each_round():
    """Another subset each round, from a stream that does not depend on what came before."""
    assert participants_of(1, 5, 10, None) is None
    drawn = [tuple(participants_of(1, number, 20, 5).tolist()) for number in range(1, 20)]
    assert len(set(drawn)) > 15
    assert all(len(set(chosen)) == 5 and sorted(chosen) == list(chosen) for chosen in drawn)
    result = simulated(config(participants=2))
    assert result.interactions == 4 * 2 * 4


def test_personal_rankers_are_evaluated_on_their_own_tests():
    """Where test sets differ, the value is the mean over clients, and the shared ranker's is told beside it."""
    collection = synthetic_intents(np.random.default_rng(3), n_queries=20, docs_per_query=20, n_features=8, agreement=0)
    of = config(method="fpdgd-personal", clients=4, population="type1", rounds=10, interactions=20)
    result = run(of, intent_population(collection, 4, ("perfect",), 20))
    assert result.ndcg_at_10_global is not None
    assert result.data["clients_evaluated"] == result.data["test_sets"] == 4
    shared = np.mean([mean_ndcg_at_k(result.weights, intent).mean for intent in collection.intents])
    assert result.ndcg_at_10_global[-1][1] == pytest.approx(shared)
    alone = run(of.changed(method="local"), intent_population(collection, 4, ("perfect",), 20))
    assert alone.final_ndcg > alone.ndcg_at_10_global[-1][1]


def test_the_first_model_has_a_stream_of_its_own():
    """A neural ranker begins with other numbers than generated data; the order in which clients are listed is none."""
    of = config(ranker="neural", hidden=3, method="local")
    training, ranker = resolve(of, 8)
    # Clients who learn alone share the first model and nothing else.
    first = simulated(of).weights
    assert np.array_equal(first, initial_weights(training, ranker, first_model_rng(of.seed)))
    assert not np.array_equal(first, initial_weights(training, ranker, np.random.default_rng(of.seed)))
    of = config()
    people = population(of)
    backwards = dataclasses.replace(people, clients=people.clients[::-1])
    assert np.array_equal(run(of, people).weights, run(of, backwards).weights)


def test_a_logging_policy_shows_the_lists():
    """With a logging fraction, what users see does not change with the model."""
    of = config(method="fedavg", logging_fraction=0.5, parameters={"learning_rate": 0.1})
    slow = of.changed(parameters={"learning_rate": 1e-6})
    one, other = simulated(of), simulated(slow)
    assert np.array_equal(one.online_per_round, other.online_per_round)
    assert not np.array_equal(one.weights, other.weights)


LOGGED = {"method": "fedips", "logging_fraction": 0.5, "clients": 5, "rounds": 1}


def policies_of(monkeypatch) -> list:
    """What logging policies are trained on from now on."""
    trained = []

    def remembered(dataset, rng, fraction):
        trained.append(dataset)
        return logging_policy(dataset, rng, fraction)

    monkeypatch.setattr("foltr_research.simulation.federated.logging_policy", remembered)
    return trained


def test_a_logging_policy_knows_the_whole_training_set(monkeypatch):
    """The data that are passed, else the only data set there is; not one client's labels or parts of queries."""
    trained = policies_of(monkeypatch)
    train, test = data()
    of = config(**LOGGED)
    run(of, population(of))
    halves = (select_queries(train, np.arange(10)), select_queries(train, np.arange(10, 20)))
    clients = [
        dataclasses.replace(client, dataset=i % 2, queries=np.arange(10))
        for i, client in enumerate(population(of).clients)
    ]
    apart = Population(halves, tuple(clients), (test,), "halves")
    run(of, apart, logging_data=train)
    assert [dataset.relevance.tolist() for dataset in trained] == [train.relevance.tolist()] * 2
    dealt = label_skew_population(np.random.default_rng(1), train, test, 1, 5, ("perfect",), 4, 5)
    for people in (apart, dealt):
        with pytest.raises(SettingsError, match="pass the training set it was made from as logging_data"):
            run(of, people)


@pytest.mark.parametrize(
    "values",
    [
        {"data": "synthetic-intents", "population": "type1", "clients": 4},
        {"population": "type2", "shared_fraction": 0.2},
    ],
)
def test_the_command_trains_the_logging_policy_before_data_is_shared_out(monkeypatch, values):
    """Merged labels for intents; every query, with all of its documents, where labels are dealt out or data shared."""
    trained = policies_of(monkeypatch)
    of = config(**{**LOGGED, **values})
    assert _run(of, None).interactions > 0
    assert [dataset is load_experiment(of).train for dataset in trained] == [True]


def test_a_checkpoint_of_another_runner_is_refused(tmp_path):
    """What devices keep is packed in another way by each kind of runner; one line says which is which."""
    for i, (one, other) in enumerate((("reference", "block"), ("block", "reference"))):
        plan = CheckpointPlan(tmp_path / f"{i}.checkpoint")
        simulated(config(), checkpoint=plan, runner=one)
        resumed = dataclasses.replace(plan, resume=True)
        with pytest.raises(SettingsError, match=f"the checkpoint is of runner {one}, this run's is {other}"):
            simulated(config(), checkpoint=resumed, runner=other)


@pytest.mark.parametrize("words", ["scores must be finite numbers to rank by", "there is no such query"])
def test_errors_of_a_round_say_what_to_do(monkeypatch, words):
    """Weights that grew without bounds come from too large steps; no other error is given that advice."""
    learn = Federation.round

    def fail(self, number):
        if number == 3:
            raise DataError(words)
        return learn(self, number)

    monkeypatch.setattr(Federation, "round", fail)
    advice = "; lower the learning rate" if "finite" in words else ""
    with pytest.raises(DataError) as refused:
        simulated(config())
    assert str(refused.value) == f"round 3: {words}{advice}"


def test_what_cannot_be_run_is_refused():
    """Grades outside the click table, tests with nothing relevant, another number of clients, no such runner."""
    train, test = data()
    with pytest.raises(DataError, match="knows grades 0 to 2"):
        run(config(), iid_population(train, test, 5, ("perfect",), 4, n_grades=3))
    train, test = data()
    nothing = dataclasses.replace(test, relevance=np.zeros_like(test.relevance))
    with pytest.raises(DataError, match="no query has a relevant document"):
        run(config(), iid_population(train, nothing, 5, ("perfect",), 4))
    with pytest.raises(SettingsError, match="clients: 6, but the population has 5"):
        run(config(clients=6), population(config()))
    with pytest.raises(SettingsError, match="not run in blocks"):
        simulated(config(method="fpdgd-personal"), runner="block")


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"population": "type2", "labels_per_client": 1},
        {"population": "type2+type4", "labels_per_client": 2},
        {"population": "type3", "clicks": ("perfect", "navigational")},
        {"population": "type4"},
        {"data": "synthetic-intents", "population": "type1", "clients": 4},
        {"data": "synthetic-intents", "population": "type1-iid-per-intent", "clients": 4, "intent_agreement": 0.0},
        {"data": "synthetic-intents", "population": "type1+type4", "clients": 4},
        {"shared_fraction": 0.2, "shared_alpha": 0.5, "warm_up_interactions": 20},
        {"data": "synthetic-nonlinear", "shared_fraction": 0.2, "warm_up_interactions": 20},
    ],
)
def test_every_population_runs(values):
    """What a configuration names is loaded, shared out and run."""
    of = config(**{"clients": 10, "rounds": 1, **values})
    experiment = load_experiment(of)
    result = run(of, population_for(of, experiment), description=experiment.description)
    assert result.interactions > 0
    assert result.data["description"] == experiment.description


def test_threads_change_nothing():
    """However many threads BLAS may use, a neural ranker ends at the same bits."""
    script = (
        "from foltr_research.simulation.config import SimulationConfig\n"
        "from foltr_research.simulation.sweeps.sweep import run_config\n"
        "config = SimulationConfig(ranker='neural', clients=3, rounds=2)\n"
        "print(run_config(config).outcome())\n"
    )
    outcomes = {
        completed(
            [sys.executable, "-c", script], env={**os.environ, "OPENBLAS_NUM_THREADS": threads}, check=True
        ).stdout
        for threads in ("1", "4")
    }
    assert len(outcomes) == 1


def test_62500_clients_fit_into_memory():
    """62,500 clients of 5 interactions: a round runs, below 1.5 GB in all."""
    import resource

    of = config(clients=62_500, interactions=5, rounds=1)
    result = simulated(of)
    assert result.interactions == 312_500
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 1.5e6  # kB


def test_the_shared_ranker_is_evaluated_as_often_as_there_are_clients():
    """Its value is the mean over clients, not over test sets: a test set of three clients counts three times."""
    train, test = data()
    tests = (select_queries(test, np.arange(10)), select_queries(test, np.arange(10, 20)))
    people = iid_population(train, test, 4, ("perfect",), 4)
    clients = [dataclasses.replace(client, test=0 if i else 1) for i, client in enumerate(people.clients)]
    people = dataclasses.replace(people, clients=tuple(clients), tests=tests)

    class Fixed:
        weights = np.linspace(-1, 1, 8).astype(np.float32)

        def ranker_of(self, client):  # noqa: ARG002 (everybody's is the shared one)
            return self.weights

    first, second = (mean_ndcg_at_k(Fixed.weights, one).mean for one in tests)
    assert first != pytest.approx(second)
    for personal in (False, True):
        found = Evaluator(people, LinearRankerSpec(n_features=8), 1, personal=personal).evaluate(Fixed())
        assert found.ndcg == found.ndcg_global == pytest.approx((3 * first + second) / 4)
