"""A device learns by the method that its federation announces, and sends what that method sends."""

import numpy as np
import pytest
from support.federator_by_hand import N_FEATURES, Federator, announced, device
from support.sampled_lists import interaction_of, shown_by
from support.small_rankers import LINEAR, NEURAL, trainings
from support.waiting import until

from foltr.core.data.synthetic import synthetic_dataset
from foltr.core.evaluation.click_models import click_model, clicks_from_draws
from foltr.core.methods.base import DeviceContext
from foltr.core.methods.registry import initial_weights, make_device, n_auxiliary
from foltr.core.numerics.streams import client_streams
from foltr.core.protocol.fields import unpack_vector
from foltr.edge_client.simulated_user import SimulatedUser

K, N_INTERACTIONS = 5, 4
METHODS = [*trainings(), "fedips, propensities estimated"]


def training_of(method):
    if method in trainings():
        return trainings(N_INTERACTIONS, serp_length=K)[method]
    known = trainings(N_INTERACTIONS, serp_length=K)["fedips"]
    return known.model_copy(update={"propensities": "estimated"})


def ranker_of(method):
    return NEURAL if method == "fedper" else LINEAR


def model_for(method, version, weights):
    training, ranker = training_of(method), ranker_of(method)
    return announced(version, weights, ranker, n_auxiliary=n_auxiliary(training, ranker))


class ByHand:
    """The same device and user without a network: the method's device part, and the same streams."""

    def __init__(self, method, dataset):
        self.method, self.dataset = method, dataset
        self.streams = client_streams(3, "device-7")
        self.clicks = click_model("informational", 5)
        self.local_state = None

    def body(self, version, weights):
        context = DeviceContext(self.streams.device_seed, self.local_state)
        part = make_device(training_of(self.method), ranker_of(self.method), weights, version, context)
        for i in range(N_INTERACTIONS):
            draws = self.streams.user.random(2 + 2 * K)
            query = self.dataset.query(int(draws[0] * self.dataset.n_queries))
            shown, variant = shown_by(part, training_of(self.method), query.features, K, self.streams.device)
            clicks = clicks_from_draws(self.clicks, query.relevance[shown.ranking], draws[2:])
            part.learn(interaction_of(i, query.features, shown, clicks, variant, version), self.streams.device)
        self.local_state = part.local_state()
        return part.body(self.streams.device)


@pytest.fixture
def dataset(rng):
    return synthetic_dataset(rng, n_queries=20, docs_per_query=12, n_features=LINEAR.n_features)


@pytest.mark.parametrize("method", METHODS)
async def test_an_update_is_what_the_method_makes_of_it(mqtt_broker, dataset, rng, method):
    """Round after round, to the bit: the simulator, which runs the same parts, shows what the service will do."""
    first = initial_weights(training_of(method), ranker_of(method), rng)
    by_hand, streams = ByHand(method, dataset), client_streams(3, "device-7")
    async with (
        Federator(mqtt_broker) as federator,
        device(mqtt_broker, learner=None, gate=False, seed=streams.device_seed) as client,
    ):
        user = SimulatedUser(client, dataset, click_model("informational", 5), streams.user)
        for number in (1, 2, 3):
            weights = (first + np.float32(0.01 * number)).astype(np.float32)
            newest = model_for(method, number, weights)
            await federator.announce(number, training=training_of(method), newest=newest)
            await client.next_round(after=number - 1)
            for _ in range(N_INTERACTIONS):
                user.interact()
            # Before anything is sent: as long as this compiles nothing is answered, and an update would be sent again.
            expected = by_hand.body(number, weights)
            update = await federator.update()
            assert update.n_interactions == N_INTERACTIONS
            assert update.body == expected
            await federator.accept(update, client)


async def test_the_announced_length_is_shown(mqtt_broker):
    """Ten before anything is announced."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        assert client.serp_length == 10
        await federator.announce(1, training=training_of("fpdgd"))
        await until(lambda: client.serp_length == K)
        assert len(client.rank(np.eye(9, N_FEATURES)).ranking) == K


async def test_known_propensities_weigh_the_clicks(mqtt_broker, dataset):
    """A click where this user seldom looks teaches more; the update alone does not tell the propensities."""
    newest = model_for("fedips", 1, np.zeros(LINEAR.n_weights, np.float32))
    training = training_of("fedips").model_copy(update={"min_interactions": 1})
    norms = []
    for propensity in (1.0, 0.25):
        async with (
            Federator(mqtt_broker) as federator,
            device(mqtt_broker, learner=None, gate=False, propensities=[1.0, 1.0, propensity, 1.0, 1.0]) as client,
        ):
            await federator.announce(1, training=training, newest=newest)
            await client.next_round()
            client.record_clicks(client.rank(dataset.query(0).features), [2])
            norms.append(np.linalg.norm(unpack_vector((await federator.update()).body.values)))
    assert norms[1] == pytest.approx(4 * norms[0], rel=1e-6)
