"""The single writer under methods other than FPDGD: what it stores of an update, of a model and of its optimiser."""

import numpy as np
import pytest
from support.deaths import dying_at

from foltr.core.errors import SettingsError
from foltr.core.failpoints import Failpoint
from foltr.core.learning.evolution_strategies import AdamState, adam_ascent, es_direction
from foltr.core.methods.registry import initial_weights
from foltr.core.numerics.streams import first_model_rng
from foltr.core.protocol.fields import pack_vector, unpack_vector
from foltr.core.protocol.trainings import (
    EvolutionTraining,
    FedIpsTraining,
    FedPerTraining,
    LinearRankerSpec,
    NeuralRankerSpec,
)
from foltr.core.protocol.updates import DenseDelta, EvolutionPair, PartDelta
from foltr.federator.round import RoundPolicy
from foltr.storage.federations import get_federation
from foltr.storage.models import list_models
from foltr.storage.queries import list_rounds
from foltr.storage.rounds import latest_round, stream_updates

TWO = RoundPolicy(2, 2, 0.0, 60.0)
N_FEATURES = 5
EVOLUTION = EvolutionTraining(noise_scale=0.1, server_learning_rate=0.5)
NEURAL = NeuralRankerSpec(n_features=N_FEATURES, hidden=3)
# What two devices send in two rounds.
PAIRS = [[(11, 0.5, 0.25), (12, 0.0, 1.0)], [(13, 1.0, 0.5), (14, 0.25, 0.75)]]


def ascended(pairs_of_rounds):
    """The models and the states of Adam that FOLtR-ES makes of the rounds' pairs, computed here."""
    weights, state = np.zeros(N_FEATURES, np.float32), AdamState.zeros(N_FEATURES)
    for pairs in pairs_of_rounds:
        total = np.zeros(N_FEATURES)
        for seed, plus, minus in pairs:
            total += es_direction(seed, N_FEATURES, EVOLUTION.noise_scale, plus, minus)
        state, step = adam_ascent(state, total / len(pairs), EVOLUTION.server_learning_rate)
        weights = (weights.astype(np.float64) + step).astype(np.float32)
        yield weights.tobytes(), state.to_bytes()


def send_pairs(served, devices, number, pairs):
    """The devices' updates of a round, the last one first: the order of arrival must not matter."""
    for device, (seed, plus, minus) in reversed(list(zip(devices, pairs, strict=True))):
        served.update(device, number, number - 1, body=EvolutionPair(seed=seed, plus=plus, minus=minus))


@pytest.fixture
async def evolving(serve, unsigned):
    """FOLtR-ES with two devices, and one round behind it."""
    served = await serve(TWO, n_features=N_FEATURES, training=EVOLUTION)
    devices = [unsigned("alice"), unsigned("bob")]
    await served.join(devices)
    send_pairs(served, devices, 1, PAIRS[0])
    await served.turn()
    return served, devices


async def models_of(served):
    """(weights, optimiser's state) of every version, the first one first."""
    return [(row.weights, row.optimizer_state) for row in await list_models(served.db, "mail")]


async def test_the_optimiser_goes_on_where_the_last_round_left_it(evolving):
    """Two rounds of FOLtR-ES are two steps of Adam, bit for bit, and each model is stored with the state after it."""
    served, devices = evolving
    send_pairs(served, devices, 2, PAIRS[1])
    await served.turn()
    assert await models_of(served) == [(bytes(4 * N_FEATURES), None), *ascended(PAIRS)]
    rows = [row async for row in stream_updates(served.db, "mail", 1)]
    assert [(row.client_id, row.encoding, row.n_bytes) for row in rows] == [
        ("alice", "evolution", 24),
        ("bob", "evolution", 24),
    ]


@pytest.mark.parametrize("at", [Failpoint.COLLECTING_STOPPED, Failpoint.AGGREGATED, Failpoint.IN_ROUND_TRANSACTION])
async def test_a_restart_in_the_middle_of_aggregation_takes_the_same_step(evolving, serve, at):
    """The state comes from the newest model that is stored: no step of the optimiser is lost, or taken twice."""
    served, devices = evolving
    send_pairs(served, devices, 2, PAIRS[1])
    with dying_at(at, "federator.rounds", "storage.rounds"):
        await served.turn()
    assert (await latest_round(served.db, "mail")).state == "aggregating"
    again = await serve(TWO, n_features=N_FEATURES, training=EVOLUTION)
    assert [row.state for row in await list_rounds(again.db, "mail")] == ["completed", "completed", "collecting"]
    assert (await models_of(again))[1:] == list(ascended(PAIRS))


async def test_an_abandoned_round_leaves_the_optimiser_alone(evolving):
    """The round after it goes on from the state of the model that it is based on."""
    served, devices = evolving
    served.update(devices[0], 2, 1, body=EvolutionPair(seed=99, plus=1.0, minus=0.0))
    await served.turn()
    served.clock.at += 61
    await served.turn()
    for device, (seed, plus, minus) in zip(devices, PAIRS[1], strict=True):
        served.update(device, 3, 1, body=EvolutionPair(seed=seed, plus=plus, minus=minus))
    await served.turn()
    states = [row.state for row in await list_rounds(served.db, "mail")]
    assert states == ["completed", "abandoned", "completed", "collecting"]
    assert (await models_of(served))[1:] == list(ascended(PAIRS))


@pytest.mark.usefixtures("evolving")
async def test_a_method_and_a_ranker_are_for_good_but_a_learning_rate_is_not(serve):
    """Another method would take this one's models and updates for its own; the refusal names both."""
    with pytest.raises(SettingsError, match=r"method = 'foltr-es'.*the settings have method = 'fpdgd'"):
        await serve(TWO, n_features=N_FEATURES)
    with pytest.raises(SettingsError, match=r"ranker = 'linear'.*ranker = 'neural'.*hidden = 3, activation = 'sig"):
        await serve(TWO, n_features=N_FEATURES, training=EVOLUTION, chosen_ranker=NEURAL)
    await serve(TWO, n_features=N_FEATURES, training=EVOLUTION.model_copy(update={"server_learning_rate": 0.1}))


async def test_what_fedper_does_not_share_stays_as_it_was_announced(serve, unsigned):
    """The first weights are drawn from the plan's seed; a round moves the hidden layer and nothing else."""
    training = FedPerTraining()
    served = await serve(TWO, n_features=N_FEATURES, training=training, chosen_ranker=NEURAL, seed=7)
    first = initial_weights(training, NEURAL, first_model_rng(7))
    assert await models_of(served) == [(first.tobytes(), None)]
    devices = [unsigned("alice"), unsigned("bob")]
    await served.join(devices)
    for device, value, n_interactions in zip(devices, (1.0, 4.0), (1, 2), strict=True):
        values = pack_vector(np.full(NEURAL.n_base_weights, value))
        body = PartDelta(dim=NEURAL.n_weights, start=0, values=values)
        served.update(device, body=body, n_interactions=n_interactions)
    await served.turn()
    (_, (weights, state)) = await models_of(served)
    expected = first.astype(np.float64)
    expected[: NEURAL.n_base_weights] += (1 * 1.0 + 2 * 4.0) / (1 + 2)
    assert (weights, state) == (expected.astype(np.float32).tobytes(), None)
    rows = [row async for row in stream_updates(served.db, "mail", 1)]
    assert {(row.encoding, row.n_bytes) for row in rows} == {("part_f32", 8 + 4 * NEURAL.n_base_weights)}
    federation = await get_federation(served.db, "mail")
    assert (federation.method, federation.ranker, federation.hidden) == ("fedper", "neural", 3)


async def test_chosen_weights_are_those_of_the_ranker(serve):
    """What else training uses begins as ever; a start without them, or with the same, goes on."""
    training, chosen = FedIpsTraining(propensities="estimated"), pack_vector(np.arange(1.0, N_FEATURES + 1.0))
    federation = {"n_features": N_FEATURES, "training": training}
    first = await models_of(await serve(TWO, **federation, first_weights=chosen))
    assert first[0][0] == chosen + bytes(4 * (N_FEATURES + 1))
    for again in (chosen, None):
        assert await models_of(await serve(TWO, **federation, first_weights=again)) == first
    with pytest.raises(SettingsError, match="initial_model: federation 'mail' began with another model"):
        await serve(TWO, **federation, first_weights=pack_vector(np.ones(N_FEATURES)))


class Announced:
    """What would be published."""

    def announce(self, model, round_, *_others):
        self.model, self.round = model, round_


async def test_the_relevance_function_of_fedips_travels_with_the_model(serve, unsigned):
    """The model has values beside the ranker's; every update counts alike, times the federator's learning rate."""
    training = FedIpsTraining(propensities="estimated", server_learning_rate=0.5)
    served = await serve(TWO, n_features=N_FEATURES, training=training)
    n_values = N_FEATURES + N_FEATURES + 1
    devices = [unsigned("alice"), unsigned("bob")]
    await served.join(devices)
    for device, value, n_interactions in zip(devices, (1.0, 4.0), (1, 5), strict=True):
        body = DenseDelta(dim=n_values, values=pack_vector(np.full(n_values, value)))
        served.update(device, body=body, n_interactions=n_interactions)
    await served.turn()
    announced = Announced()
    served.actor.attach(announced)
    assert (announced.model.ranker, announced.model.n_auxiliary) == (LinearRankerSpec(n_features=N_FEATURES), 6)
    assert unpack_vector(announced.model.weights).tolist() == [0.5 * (1.0 + 4.0) / 2] * n_values
    assert announced.round.training == training
    with pytest.raises(SettingsError, match="values in a model = 11, but the settings have values in a model = 5"):
        await serve(TWO, n_features=N_FEATURES, training=training.model_copy(update={"propensities": "known"}))
