"""One implementation of every method: the simulator and the service make the same updates from the same seeds."""

import asyncio

import numpy as np
import pytest

from broker.address import BrokerAddress
from federator.plan import FederationPlan
from federator.round import RoundPolicy
from federator.service import FederatorService
from foltr.cli.fleet import Fleet
from foltr.messages import pack_vector, unpack_vector
from foltr.methods.bodies import unpack_body
from foltr.methods.registry import initial_weights, make_aggregation, ranker_for, training_for
from foltr.simulation.block_runners import block_runner
from foltr.simulation.crowd import Crowd
from foltr.simulation.population import client_name, iid_population
from foltr.simulation.runners import ReferenceRunner
from foltr.sources import LoadedData
from foltr.streams import first_model_rng
from foltr.synthetic import split_queries, synthetic_dataset
from storage.models import list_models
from storage.rounds import stream_updates

N_CLIENTS, N_ROUNDS, INTERACTIONS, SEED = 3, 20, 4, 17
D = 8
POLICY = {"logging_policy": pack_vector(np.linspace(-1, 1, D))}
# The method, its parameters, the ranker, the click model.
FEDERATIONS = {
    "fpdgd": ("fpdgd", {}, "linear", "navigational"),
    "fpdgd-neural": ("fpdgd", {}, "neural", "informational"),
    "fpdgd-paper": ("fpdgd-paper", {"n_clients": N_CLIENTS}, "linear", "perfect"),
    "fedprox": ("fedprox", {"mu": 0.5}, "linear", "pbm-1"),
    "fedper": ("fedper", {}, "neural", "navigational"),
    "fpdgd-personal": ("fpdgd-personal", {}, "linear", "navigational"),
    "foltr-es": ("foltr-es", {"noise_scale": 0.1}, "linear", "informational"),
    "foltr-es-neural": ("foltr-es", {"noise_scale": 0.1}, "neural", "perfect"),
    "fedips": ("fedips", {"learning_rate": 0.01, **POLICY}, "linear", "fedips-1"),
    "fedips-estimated": ("fedips", {"propensities": "estimated", **POLICY}, "linear", "fedips-1"),
    "fedavg": ("fedavg", {"learning_rate": 0.01, **POLICY}, "linear", "fedips-1"),
}


class _Recorded:
    """An aggregation that keeps the updates it is given."""

    def __init__(self, aggregation):
        self.aggregation, self.bodies = aggregation, []

    def add(self, body, n_interactions, discount=1.0):
        self.bodies.append((body, n_interactions))
        self.aggregation.add(body, n_interactions, discount)

    def finish(self, base, state):
        return self.aggregation.finish(base, state)


@pytest.fixture
def data():
    whole = synthetic_dataset(np.random.default_rng(5), n_queries=30, docs_per_query=(8, 30), n_features=D)
    return LoadedData(*split_queries(whole, 20), "synthetic")


def simulated(data, training, ranker, clicks, blocks):
    """The updates of each round, and the models, in one process."""
    population = iid_population(data.train, data.test, N_CLIENTS, [clicks], INTERACTIONS)
    crowd = Crowd(population, SEED, training.serp_length)
    runner = block_runner(population, crowd, training, ranker) if blocks else None
    runner = runner or ReferenceRunner(population, crowd, training, ranker)
    model, state = initial_weights(training, ranker, first_model_rng(SEED)), None
    rounds, models = [], [model]
    for version in range(N_ROUNDS):
        recorded = _Recorded(make_aggregation(training, ranker))
        runner.run(model, version, np.arange(N_CLIENTS), recorded if not blocks else recorded.aggregation)
        model, state = recorded.finish(model, state)
        rounds.append(recorded.bodies)
        models.append(model)
    return rounds, models


async def served(data, training, ranker, clicks, broker, database):
    """The same over MQTT, as the database has it."""
    address = BrokerAddress.parse(broker)
    plan = FederationPlan(
        "same",
        D,
        RoundPolicy(N_CLIENTS, N_CLIENTS, 0, 30),
        training,
        ranker=ranker,
        seed=SEED,
        stop_after_round=N_ROUNDS,
    )
    fleet = Fleet(
        broker_url=broker,
        federation="same",
        data=data,
        clicks=clicks,
        interactions=INTERACTIONS,
        seed=SEED,
        stores={client_name(i): ":memory:" for i in range(1, N_CLIENTS + 1)},
        give_up_after_s=10.0,
    )
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(FederatorService(plan, database, address, give_up_after_s=10).run())
        group.create_task(fleet.run())
    models = sorted(await list_models(database, "same"), key=lambda model: model.version)
    rounds = []
    for number in range(1, N_ROUNDS + 1):
        rows = [row async for row in stream_updates(database, "same", number)]
        dim = len(unpack_vector(models[0].weights))
        rounds.append([(unpack_body(row.encoding, row.body, dim), row.n_interactions) for row in rows])
    return rounds, [unpack_vector(model.weights) for model in models]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("name", FEDERATIONS)
async def test_twenty_rounds_are_the_same_bit_for_bit(name, data, mqtt_broker, database):
    """Every update and every model of 20 rounds over MQTT is the simulator's, which may also have run in blocks."""
    method, parameters, kind, clicks = FEDERATIONS[name]
    training = training_for(method, parameters, INTERACTIONS)
    ranker = ranker_for(kind, D, 5)
    updates, models = simulated(data, training, ranker, clicks, blocks=False)
    _, models_of_blocks = simulated(data, training, ranker, clicks, blocks=True)
    stored, stored_models = await served(data, training, ranker, clicks, mqtt_broker, database)
    assert [len(round_) for round_ in stored] == [N_CLIENTS] * N_ROUNDS
    assert stored == updates
    np.testing.assert_array_equal(stored_models, models)
    np.testing.assert_array_equal(models_of_blocks, models)
    assert (models[-1] != models[0]).any()
