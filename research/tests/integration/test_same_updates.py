"""One implementation of every method: the simulator and the service make the same updates from the same seeds."""

import asyncio

import numpy as np
import pytest
from support.sampled_lists import sampled
from support.waiting import PATIENCE_S

from foltr.broker.address import BrokerAddress
from foltr.cli.fleet.fleet import Fleet
from foltr.core.aggregation.rule_spec import MEAN, read_rule
from foltr.core.data.sources import LoadedData
from foltr.core.data.synthetic import split_queries, synthetic_dataset
from foltr.core.methods.bodies import unpack_body
from foltr.core.methods.registry import body_spec, initial_weights, make_aggregation, ranker_for
from foltr.core.numerics.streams import first_model_rng
from foltr.core.protocol.fields import pack_vector, unpack_vector
from foltr.core.protocol.updates import DenseDelta, PartDelta
from foltr.federator.plan import FederationPlan
from foltr.federator.round import RoundPolicy
from foltr.federator.service import FederatorService
from foltr.storage.models import list_models
from foltr.storage.rounds import stream_updates
from foltr_research.attacks.registry import read_attack
from foltr_research.cli.collusion import run_attacked
from foltr_research.simulation.blocks.block_runners import block_runner
from foltr_research.simulation.clients.attackers import with_poisoned_clicks
from foltr_research.simulation.clients.crowd import Crowd
from foltr_research.simulation.clients.population import client_name, iid_population
from foltr_research.simulation.learners import Defence, Federation
from foltr_research.simulation.runners import ReferenceRunner

N_CLIENTS, N_ROUNDS, INTERACTIONS, SEED = 3, 8, 4, 17
D = 8
FULL = {"knowledge": "full"}
POLICY = {"logging_policy": pack_vector(np.linspace(-1, 1, D))}
# The method, its parameters, the ranker, the click model; with hostile clients the attack, its parameters and the rule.
FEDERATIONS = {
    "fpdgd": ("fpdgd", {}, "linear", "navigational"),
    "fpdgd-neural": ("fpdgd", {}, "neural", "informational"),
    "fpdgd-paper": ("fpdgd-paper", {"n_clients": N_CLIENTS}, "linear", "perfect"),
    "fedprox": ("fedprox", {"mu": 0.5}, "linear", "pbm-1"),
    "fedper": ("fedper", {}, "neural", "navigational"),
    "fpdgd-personal": ("fpdgd-personal", {}, "linear", "navigational"),
    "foltr-es": ("foltr-es", {"noise_scale": 0.1}, "linear", "informational"),
    "foltr-es-relu": ("foltr-es", {"noise_scale": 0.1}, "relu", "perfect"),
    "foltr-es-sigmoid": ("foltr-es", {"noise_scale": 0.1}, "neural", "perfect"),
    "fedips": ("fedips", {"learning_rate": 0.01, **POLICY}, "linear", "fedips-1"),
    "fedips-estimated": ("fedips", {"propensities": "estimated", **POLICY}, "linear", "fedips-1"),
    "fedavg": ("fedavg", {"learning_rate": 0.01, **POLICY}, "linear", "fedips-1"),
    "lie": ("fpdgd", {}, "linear", "navigational", "lie", {"z": 1.5}, "multi-krum"),
    "lie-of-all": ("fpdgd", {}, "neural", "informational", "lie", {**FULL, "jitter": 0.1}, "nnm+trimmed-mean"),
    "fang": ("fpdgd", {}, "linear", "perfect", "fang-trimmed-mean", FULL, "trimmed-mean"),
    "fang-krum": ("fpdgd", {}, "linear", "perfect", "fang-krum", FULL, "krum"),
    "min-max": ("fedprox", {}, "linear", "navigational", "min-max", {"perturbation": "std"}, "multi-krum"),
    "part": ("fedper", {}, "neural", "navigational", "sign-flip", {}, "median"),
    "clicks": ("fpdgd", {}, "linear", "navigational", "clicks", {}, "multi-krum"),
    "adaptive": ("fpdgd", {}, "linear", "navigational", "min-max", {}, "adaptive"),
    "adaptive-neural": ("fpdgd", {}, "neural", "perfect", "scaled", {"z": 30}, "adaptive"),
    "personal-clicks": (
        "fedips",
        {"learning_rate": 0.01, **POLICY},
        "linear",
        "fedips-1",
        "clicks",
        {},
        "trimmed-mean",
    ),
}
N_ATTACKED, N_ATTACKERS = 7, 2
# All over Mosquitto, two over iotcore: what a method sends does not depend on the broker that carries it.
OVER_IOTCORE = [("iotcore_broker", "fpdgd"), ("iotcore_broker", "lie")]


@pytest.fixture
def data():
    whole = synthetic_dataset(np.random.default_rng(5), n_queries=30, docs_per_query=(8, 30), n_features=D)
    return LoadedData(*split_queries(whole, 20), "synthetic")


async def served(data, training, ranker, clicks, attack, rule, broker, database):
    """The updates of each round, and the models, read from the database after a run over MQTT."""
    n_clients = N_CLIENTS if attack is None else N_ATTACKED
    address = BrokerAddress.parse(broker)
    plan = FederationPlan(
        "same",
        D,
        RoundPolicy(n_clients, n_clients, 0, 30, rule=rule),
        training,
        chosen_ranker=ranker,
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
        stores={client_name(i): ":memory:" for i in range(1, n_clients + 1)},
        give_up_after_s=PATIENCE_S,
    )
    running = fleet.run() if attack is None else run_attacked(fleet, attack, N_ATTACKERS, rule)
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        group.create_task(FederatorService(plan, database, address, give_up_after_s=PATIENCE_S).run())
        group.create_task(running)
    models = await list_models(database, "same")
    rounds = []
    for number in range(1, N_ROUNDS + 1):
        rows = [row async for row in stream_updates(database, "same", number)]
        dim = len(unpack_vector(models[0].weights))
        rounds.append([(unpack_body(row.encoding, row.body, dim), row.n_interactions) for row in rows])
    return rounds, [unpack_vector(model.weights) for model in models]


def simulated(data, training, ranker, clicks, attack, rule, monkeypatch, *, n_clients, blocks=False):
    """The same by the simulator, in one process."""
    rounds = []

    def recording(*args, **options):
        aggregation, updates = make_aggregation(*args, **options), []
        add, add_rows = aggregation.add, getattr(aggregation, "add_rows", None)
        rounds.append(updates)

        def recorded_add(body, n_interactions, staleness_weight=1.0, client_id=""):
            updates.append((body, n_interactions))
            add(body, n_interactions, staleness_weight, client_id)

        def recorded_add_rows(values, n_interactions, client_ids):
            spec = body_spec(training, ranker)
            for row, n in zip(values, n_interactions.tolist(), strict=True):
                part = {"dim": spec.dim, "values": pack_vector(row)}
                updates.append((PartDelta(start=spec.start, **part) if spec.kind == "part" else DenseDelta(**part), n))
            add_rows(values, n_interactions, client_ids)

        aggregation.add, aggregation.add_rows = recorded_add, recorded_add_rows
        return aggregation

    monkeypatch.setattr("foltr_research.simulation.learners.make_aggregation", recording)
    population = iid_population(data.train, data.test, n_clients, [clicks], INTERACTIONS)
    if attack is not None and attack.name == "clicks":
        population = with_poisoned_clicks(population, N_ATTACKERS)
    crowd = Crowd(population, SEED, training.serp_length)
    runner = block_runner(population, crowd, training, ranker) if blocks else None
    runner = runner or ReferenceRunner(population, crowd, training, ranker)
    first = initial_weights(training, ranker, first_model_rng(SEED))
    n_attackers = 0 if attack is None else N_ATTACKERS
    learner = Federation(population, runner, training, ranker, first, SEED, None, Defence(rule, attack, n_attackers))
    models = [first]
    for number in range(1, N_ROUNDS + 1):
        learner.round(number)
        models.append(learner.state()["model"])
    return rounds, models


@pytest.mark.parametrize("migrated_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("mqtt_broker", "name"),
    [*OVER_IOTCORE, *(("mosquitto_server", name) for name in FEDERATIONS)],
    indirect=["mqtt_broker"],
)
async def test_rounds_are_the_same_bit_for_bit(name, data, mqtt_broker, database, monkeypatch):
    """Every update, crafted or honest, and every model over MQTT is the simulator's, which may have run in blocks."""
    method, parameters, kind, clicks, *hostile = FEDERATIONS[name]
    training = sampled(method, parameters, INTERACTIONS)
    ranker = ranker_for("neural", D, 5, "relu") if kind == "relu" else ranker_for(kind, D, 5)
    attack = read_attack(*hostile[:2]) if hostile else None
    rule = read_rule(hostile[2], byzantine=N_ATTACKERS) if hostile else MEAN
    federation, n_clients = (data, training, ranker, clicks), N_ATTACKED if hostile else N_CLIENTS
    updates, models = simulated(*federation, attack, rule, monkeypatch, n_clients=n_clients)
    _, models_of_blocks = simulated(*federation, attack, rule, monkeypatch, n_clients=n_clients, blocks=True)
    (honest, *_), _ = simulated(*federation, None, rule, monkeypatch, n_clients=n_clients)
    stored, stored_models = await served(*federation, attack, rule, mqtt_broker, database)
    assert [len(round_) for round_ in stored] == [n_clients] * N_ROUNDS
    assert stored == updates
    np.testing.assert_array_equal(stored_models, models)
    np.testing.assert_array_equal(models_of_blocks, models)
    changed = [sent != learned for sent, learned in zip(updates[0], honest, strict=True)]
    assert changed == ([True] * N_ATTACKERS + [False] * (N_ATTACKED - N_ATTACKERS) if hostile else [False] * N_CLIENTS)
    assert (models[-1] != models[0]).any()
