"""Blocks of clients do what devices do one interaction at a time, to the last bit."""

import dataclasses

import numpy as np
import pytest
from simulated import config, data, population, simulated, with_quantities
from support.sampled_lists import sampled

from foltr.core.errors import SettingsError
from foltr.core.methods.registry import initial_weights, make_aggregation
from foltr.core.numerics.streams import client_streams
from foltr.core.protocol.explorations import read_exploration
from foltr.core.protocol.fields import unpack_vector
from foltr.core.protocol.updates import DenseDelta
from foltr_research.simulation.blocks.block_runners import block_runner
from foltr_research.simulation.clients.crowd import Crowd
from foltr_research.simulation.clients.population import Population
from foltr_research.simulation.config import resolve
from foltr_research.simulation.federated import run
from foltr_research.simulation.runners import MAX_REPETITIONS, ReferenceRunner

IN_BLOCKS = [
    ("fpdgd", "linear", {}),
    ("fpdgd", "neural", {}),
    ("fedprox", "linear", {"mu": 0.5}),
    ("fedprox", "neural", {"mu": 0.5}),
    ("fpdgd-paper", "linear", {}),
    ("fpdgd-paper", "neural", {}),
    ("fedper", "neural", {}),
    ("foltr-es", "linear", {"noise_scale": 0.1}),
    ("foltr-es", "neural", {}),
    ("foltr-es", "sigmoid", {}),
    ("foltr-es", "linear", {"antithetic": False, "truth_probability": 0.5}),
    ("fedips", "linear", {}),
    ("fedips", "linear", {"position_bias": 0.5}),
    ("fedavg", "linear", {}),
]


@pytest.mark.parametrize(("method", "ranker", "parameters"), IN_BLOCKS)
def test_blocks_equal_the_reference(method, ranker, parameters):
    """Several rounds with a subset of clients: the same models, online metrics and evaluations, bit for bit."""
    units = {"ranker": "neural", "activation": ranker} if ranker == "sigmoid" else {"ranker": ranker}
    of = config(
        method=method, **units, hidden=3, parameters=parameters, clients=7, participants=5, clicks="navigational"
    )
    reference, block = (simulated(of, runner=kind) for kind in ("reference", "block"))
    assert np.array_equal(reference.weights, block.weights)
    assert not np.array_equal(reference.weights, np.zeros_like(reference.weights))
    one, other = reference.outcome(), block.outcome()
    # A mean over lists is the same but for the order in which it is added up.
    for curve in ("online_per_round", "max_rr"):
        assert one.pop(curve) == pytest.approx(other.pop(curve), abs=1e-12)
    assert one.pop("online_ndcg") == pytest.approx(other.pop("online_ndcg"), abs=1e-12)
    assert one == other


@pytest.mark.parametrize("clicks", [("fedips-1",), ("pbm-1.5",), ("perfect", "informational", "navigational")])
@pytest.mark.parametrize("method", ["fpdgd", "fedips", "foltr-es"])
def test_blocks_equal_the_reference_for_all_kinds_of_users(method, clicks):
    """Personal click models and several click models for each client draw alike."""
    of = config(method=method, clicks=clicks)
    reference, block = (simulated(of, runner=kind) for kind in ("reference", "block"))
    assert np.array_equal(reference.weights, block.weights)


@pytest.mark.parametrize("method", ["fpdgd", "foltr-es"])
def test_blocks_equal_the_reference_with_quantities_and_data_sets(method):
    """Clients with different numbers of interactions and two data sets, in one round."""
    of = config(method=method, interactions=2)
    one, other = data(), data(n_queries=30)
    people = population(of)
    clients = [
        dataclasses.replace(client, dataset=i % 2, queries=client.queries[: 10 + i])
        for i, client in enumerate(people.clients)
    ]
    people = with_quantities(Population((one[0], other[0]), tuple(clients), (one[1],), "mixed"), 2, 5, 3)
    training = sampled(method, {}, 2).model_copy(update={"max_interactions": 5})
    reference, block = (run(of, people, training=training, runner=kind) for kind in ("reference", "block"))
    assert np.array_equal(reference.weights, block.weights)


def test_blocks_are_cut_without_a_trace(monkeypatch):
    """However few clients fit into a block; estimated propensities and personal weights are the reference's."""
    of = config(ranker="neural", hidden=3, method="fedper")
    whole = simulated(of)
    monkeypatch.setattr("foltr_research.simulation.blocks.base_runner.INTERACTIONS_AT_A_TIME", 5)
    assert np.array_equal(simulated(of).weights, whole.weights)
    for method, parameters in (("fedips", {"propensities": "estimated"}), ("fpdgd-personal", {})):
        of = config(method=method, parameters=parameters)
        training, ranker = resolve(of, 8)
        people = population(of)
        assert block_runner(people, Crowd(people, 1, training.serp_length), training, ranker) is None
        assert simulated(of).interactions == 80
        make_aggregation(training, ranker)


def test_a_client_draws_what_the_contract_says():
    """The first query, click model and clicks are of its own streams; its update is the same alone as among others."""
    of = config(clicks=("perfect", "navigational"))
    people = population(of)
    intentions = Crowd(people, of.seed, 10).intend(np.array([2]))
    user = client_streams(of.seed, "device-003").user
    draws = user.random((of.interactions, 22))
    queries = people.clients[2].queries
    assert intentions.picks[0].tolist() == [queries[int(u * len(queries))] for u in draws[:, 0]]
    assert intentions.models[0].tolist() == [int(u * 2) for u in draws[:, 1]]
    assert np.array_equal(intentions.draws[0], draws)
    of = config()
    people = population(of)
    training, ranker = resolve(of, 8)
    base = initial_weights(training, ranker, np.random.default_rng(0))

    class Kept:
        def __init__(self):
            self.bodies = []

        def add(self, body, n_interactions, staleness_weight=1.0, client_id=""):  # noqa: ARG002 (it only keeps)
            self.bodies.append(body)

    alone, among = Kept(), Kept()
    ReferenceRunner(people, Crowd(people, 1, 10), training, ranker).run(base, 0, np.array([3]), alone)
    ReferenceRunner(people, Crowd(people, 1, 10), training, ranker).run(base, 0, np.arange(5), among)
    assert alone.bodies == [among.bodies[3]]
    assert isinstance(alone.bodies[0], DenseDelta)
    assert np.any(unpack_vector(alone.bodies[0].values))


def test_clicks_are_collected_until_there_are_enough(monkeypatch):
    """FedIPS' m: lists are shown again with fresh clicks until there are m, or for so many repetitions."""
    of = config(method="fedips", clicks="pbm-2", interactions=2, clicks_per_round=6, rounds=1)
    few = simulated(of.changed(clicks_per_round=1))
    many = simulated(of)
    assert few.interactions < many.interactions <= of.clients * MAX_REPETITIONS * of.interactions
    assert np.any(many.weights)
    monkeypatch.setattr("foltr_research.simulation.runners.MAX_REPETITIONS", 3)
    of = config(method="fedavg", clients=1, rounds=1, clicks_per_round=5, interactions=2)
    train, test = data()
    irrelevant = dataclasses.replace(train, relevance=np.zeros_like(train.relevance))
    people = dataclasses.replace(population(of), datasets=(irrelevant,), tests=(test,))
    assert run(of, people).interactions == 6


@pytest.mark.parametrize("exploration", ["swaps:0.2", "share:0.3", "interleaving", "sampling:0.5"])
def test_another_exploration_is_run_by_the_reference(exploration):
    """Blocks sample as in the papers; what is asked for by name is played list by list, and is learned from."""
    of = config(exploration=exploration)
    assert resolve(of, 8)[0].exploration == read_exploration(exploration)
    with pytest.raises(SettingsError, match="not run in blocks"):
        simulated(of, runner="block")
    played = simulated(of)
    # The first model has documents as they are given: two equal lists leave interleaving nothing to compare.
    assert bool(played.weights.any()) is (exploration != "interleaving")
    assert not np.array_equal(played.weights, simulated(config()).weights)
    assert not simulated(config(exploration="none")).weights.any()


@pytest.mark.parametrize(("method", "allowed"), [("fpdgd", True), ("local", False), ("foltr-es", False)])
def test_the_papers_exploration_is_by_default_and_by_name_the_same(method, allowed):
    """Sampling, by name or not; another is refused of a method that is run without, or has lists of its own."""
    if method != "foltr-es":
        of = config(method=method)
        assert np.array_equal(simulated(of).weights, simulated(config(method=method, exploration="sampling")).weights)
    if not allowed:
        with pytest.raises(SettingsError, match="exploration"):
            simulated(config(method=method, exploration="swaps:0.1"))
