"""One implementation of every method: the simulator and the service make the same updates from the same seeds."""

import asyncio
from collections.abc import Iterable

import numpy as np
import pytest
from support.sampled_lists import sampled

from foltr.broker.address import BrokerAddress
from foltr.cli.fleet.fleet import Fleet
from foltr.core.aggregation.rule_spec import MEAN, read_rule
from foltr.core.data.sources import LoadedData
from foltr.core.data.synthetic import split_queries, synthetic_dataset
from foltr.core.methods.base import Memory
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
    "foltr-es-relu": ("foltr-es", {"noise_scale": 0.1}, "relu", "perfect"),
    "foltr-es-sigmoid": ("foltr-es", {"noise_scale": 0.1}, "neural", "perfect"),
    "fedips": ("fedips", {"learning_rate": 0.01, **POLICY}, "linear", "fedips-1"),
    "fedips-estimated": ("fedips", {"propensities": "estimated", **POLICY}, "linear", "fedips-1"),
    "fedavg": ("fedavg", {"learning_rate": 0.01, **POLICY}, "linear", "fedips-1"),
}


# With hostile clients: method, ranker, click model; attack and its parameters; rule.
ATTACKED = {
    "lie": ("fpdgd", "linear", "navigational", "lie", {"z": 1.5}, "multi-krum"),
    "lie-of-all": ("fpdgd", "neural", "informational", "lie", {"knowledge": "full", "jitter": 0.1}, "nnm+trimmed-mean"),
    "fang": ("fpdgd", "linear", "perfect", "fang-trimmed-mean", {"knowledge": "full"}, "trimmed-mean"),
    "fang-krum": ("fpdgd", "linear", "perfect", "fang-krum", {"knowledge": "full"}, "krum"),
    "min-max": ("fedprox", "linear", "navigational", "min-max", {"perturbation": "std"}, "multi-krum"),
    "part": ("fedper", "neural", "navigational", "sign-flip", {}, "median"),
    "clicks": ("fpdgd", "linear", "navigational", "clicks", {}, "multi-krum"),
    "adaptive": ("fpdgd", "linear", "navigational", "min-max", {}, "adaptive"),
    "adaptive-neural": ("fpdgd", "neural", "perfect", "scaled", {"z": 30}, "adaptive"),
    "personal-clicks": ("fedips", "linear", "fedips-1", "clicks", {}, "trimmed-mean"),
}
N_ATTACKED, N_ATTACKERS = 7, 2


class _Recorded:
    """An aggregation that keeps the updates it is given."""

    def __init__(self, aggregation):
        self.aggregation, self.bodies = aggregation, []

    def add(self, body, n_interactions, staleness_weight=1.0, client_id=""):
        self.bodies.append((body, n_interactions))
        self.aggregation.add(body, n_interactions, staleness_weight, client_id)

    def finish(self, base, memory):
        return self.aggregation.finish(base, memory)


def _over_brokers(names: Iterable[str]) -> list[tuple[str, str]]:
    """All over Mosquitto, one over iotcore: what a method sends does not depend on the broker that carries it."""
    first, *others = names
    return [("iotcore_broker", first), *(("mosquitto_server", name) for name in (first, *others))]


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
    model, memory = initial_weights(training, ranker, first_model_rng(SEED)), Memory()
    rounds, models = [], [model]
    for version in range(N_ROUNDS):
        recorded = _Recorded(make_aggregation(training, ranker))
        runner.run(model, version, np.arange(N_CLIENTS), recorded if not blocks else recorded.aggregation)
        following = recorded.finish(model, memory)
        model, memory = following.weights, following.memory
        rounds.append(recorded.bodies)
        models.append(model)
    return rounds, models


async def served(data, training, ranker, clicks, broker, database, n_clients=N_CLIENTS, rule=MEAN, attack=None):
    """The same over MQTT, as the database has it."""
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
        give_up_after_s=10.0,
    )
    running = fleet.run() if attack is None else run_attacked(fleet, attack, N_ATTACKERS, rule)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(FederatorService(plan, database, address, give_up_after_s=10).run())
        group.create_task(running)
    models = await list_models(database, "same")
    rounds = []
    for number in range(1, N_ROUNDS + 1):
        rows = [row async for row in stream_updates(database, "same", number)]
        dim = len(unpack_vector(models[0].weights))
        rounds.append([(unpack_body(row.encoding, row.body, dim), row.n_interactions) for row in rows])
    return rounds, [unpack_vector(model.weights) for model in models]


@pytest.mark.parametrize("migrated_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(("mqtt_broker", "name"), _over_brokers(FEDERATIONS), indirect=["mqtt_broker"])
async def test_twenty_rounds_are_the_same_bit_for_bit(name, data, mqtt_broker, database):
    """Every update and every model of 20 rounds over MQTT is the simulator's, which may also have run in blocks."""
    method, parameters, kind, clicks = FEDERATIONS[name]
    training = sampled(method, parameters, INTERACTIONS)
    ranker = ranker_for("neural", D, 5, "relu") if kind == "relu" else ranker_for(kind, D, 5)
    updates, models = simulated(data, training, ranker, clicks, blocks=False)
    _, models_of_blocks = simulated(data, training, ranker, clicks, blocks=True)
    stored, stored_models = await served(data, training, ranker, clicks, mqtt_broker, database)
    assert [len(round_) for round_ in stored] == [N_CLIENTS] * N_ROUNDS
    assert stored == updates
    np.testing.assert_array_equal(stored_models, models)
    np.testing.assert_array_equal(models_of_blocks, models)
    assert (models[-1] != models[0]).any()


def simulated_attack(data, training, ranker, clicks, attack, rule, monkeypatch, runner_of):
    """As `simulated`, by the simulator's own federation with hostile clients."""
    rounds = []

    def recording(*args, **options):
        aggregation, updates = make_aggregation(*args, **options), []
        add, add_rows = aggregation.add, aggregation.add_rows
        rounds.append(updates)

        def recorded_add(body, n_interactions, staleness_weight=1.0, client_id=""):
            updates.append((body, n_interactions))
            add(body, n_interactions, staleness_weight, client_id)

        def recorded_add_rows(values, n_interactions, client_ids):
            spec = body_spec(training, ranker)
            for row, n in zip(values, n_interactions.tolist(), strict=True):
                updates.append((_body(spec, row), n))
            add_rows(values, n_interactions, client_ids)

        aggregation.add, aggregation.add_rows = recorded_add, recorded_add_rows
        return aggregation

    monkeypatch.setattr("foltr_research.simulation.learners.make_aggregation", recording)
    population = iid_population(data.train, data.test, N_ATTACKED, [clicks], INTERACTIONS)
    if attack is not None and attack.name == "clicks":
        population = with_poisoned_clicks(population, N_ATTACKERS)
    crowd = Crowd(population, SEED, training.serp_length)
    runner = runner_of(population, crowd, training, ranker)
    first = initial_weights(training, ranker, first_model_rng(SEED))
    learner = Federation(population, runner, training, ranker, first, SEED, None, Defence(rule, attack, N_ATTACKERS))
    models = [first]
    for number in range(1, N_ROUNDS + 1):
        learner.round(number)
        models.append(learner.state()["model"])
    return rounds, models


def _body(spec, values):
    if spec.kind == "part":
        return PartDelta(dim=spec.dim, start=spec.start, values=pack_vector(values))
    return DenseDelta(dim=spec.dim, values=pack_vector(values))


@pytest.mark.parametrize("migrated_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(("mqtt_broker", "name"), _over_brokers(ATTACKED), indirect=["mqtt_broker"])
async def test_hostile_devices_send_what_the_simulators_send(name, data, mqtt_broker, database, monkeypatch):
    """Every update, crafted and honest, and every model under a robust rule, over MQTT as in the simulator."""
    method, kind, clicks, attack, attack_parameters, rule = ATTACKED[name]
    parameters = {"learning_rate": 0.01, **POLICY} if method == "fedips" else {}
    training = sampled(method, parameters, INTERACTIONS)
    ranker = ranker_for(kind, D, 5)
    spec, rule = read_attack(attack, attack_parameters), read_rule(rule, byzantine=N_ATTACKERS)
    everything, simulating = (data, training, ranker, clicks), (rule, monkeypatch, ReferenceRunner)
    updates, models = simulated_attack(*everything, spec, *simulating)
    _, models_of_blocks = simulated_attack(*everything, spec, rule, monkeypatch, block_runner)
    (honest, *_), _ = simulated_attack(*everything, None, *simulating)
    stored, stored_models = await served(
        *(data, training, ranker, clicks, mqtt_broker, database, N_ATTACKED, rule), attack=spec
    )
    assert [len(round_) for round_ in stored] == [N_ATTACKED] * N_ROUNDS
    assert stored == updates
    np.testing.assert_array_equal(stored_models, models)
    np.testing.assert_array_equal(models_of_blocks, models)
    changed = [sent != learned for sent, learned in zip(updates[0], honest, strict=True)]
    assert changed == [True] * N_ATTACKERS + [False] * (N_ATTACKED - N_ATTACKERS)
    assert (models[-1] != models[0]).any()
