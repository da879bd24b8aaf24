"""Ranking on the device: without a network, with the newest model, and never with an error that is not foltr's."""

import contextlib

import numpy as np
import pytest
from played import N_FEATURES, Federator, adding_learner, content, device, model, see

from edge_client.store.store import DeviceStore
from foltr.errors import DataError
from foltr.protocol.codec import encode
from foltr.protocol.fields import unpack_vector

NAN, INF = float("nan"), float("inf")
ROW = [0.0] * N_FEATURES


@pytest.mark.parametrize(
    "features",
    [
        pytest.param([ROW[:-1]], id="a feature too few"),
        pytest.param([[*ROW, 0.0]], id="a feature too many"),
        pytest.param([[*ROW[:-1], NAN]], id="NaN"),
        pytest.param([[*ROW[:-1], INF]], id="infinity"),
        pytest.param([[*ROW[:-1], 1e300]], id="too large for float32"),
        pytest.param([], id="no documents"),
        pytest.param([[], []], id="no features"),
        pytest.param(ROW, id="one dimension"),
        pytest.param([[ROW]], id="three dimensions"),
        pytest.param([ROW, ROW[:-1]], id="ragged"),
        pytest.param([["x"] * N_FEATURES], id="text"),
        pytest.param([[1j] * N_FEATURES], id="complex"),
        pytest.param([[10**400] * N_FEATURES], id="too large for any float"),
        pytest.param(None, id="nothing"),
        pytest.param(3.0, id="a number"),
    ],
)
async def test_features_that_cannot_be_ranked_are_a_data_error(nowhere, path, features):
    """The error is foltr's own and says what was expected; no warning, no other exception."""
    with contextlib.closing(DeviceStore(path, client_id="device-7", federation="mail", max_interactions=10)) as store:
        store.put_model(encode(model()))
    async with device(nowhere, path) as client:
        with pytest.raises(DataError, match="features"):
            client.rank(features)


@pytest.mark.parametrize("k", [0, -1])
async def test_a_list_has_at_least_one_place(nowhere, k):
    """An empty list is nothing to show and nothing to learn from."""
    async with device(nowhere) as client:
        with pytest.raises(DataError):
            client.rank(np.eye(3, N_FEATURES), k=k)


async def test_ranking_needs_no_network(nowhere):
    """Before the first model every order is as good as another; the list is full and has no document twice."""
    async with device(nowhere) as client:
        serp = client.rank(np.eye(30, N_FEATURES))
        assert serp.model_version is None
        assert len(set(serp.ranking.tolist())) == 10
        assert len(client.rank(np.eye(30, N_FEATURES), k=25).ranking) == 25
        assert len(client.rank(np.eye(4, N_FEATURES)).ranking) == 4


async def test_the_newest_model_survives_a_restart(mqtt_broker, nowhere, path):
    """A device that wakes up offline ranks with the last model it heard of."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker, path) as client:
        await federator.announce(5, base=4)
        await client.next_round()
        assert client.model_version == 4
    async with device(nowhere, path) as client:
        assert client.model_version == 4
        assert client.rank([ROW]).model_version == 4


async def test_the_best_come_first_without_exploration(mqtt_broker):
    """What was learned on the device shows in its own rankings at once."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker, explore=False) as client:
        await federator.announce(1, min_interactions=5)
        await client.next_round()
        see(client, 2, 2, 3)
        assert client.rank(np.eye(5, N_FEATURES)).ranking.tolist() == [2, 3, 0, 1, 4]


async def test_interactions_of_another_ranker_are_set_aside(mqtt_broker, nowhere, path):
    """Recorded before the number of features was known and found wrong, they do not block those that fit."""
    async with device(nowhere, path) as client:
        for _ in range(3):
            client.record_clicks(client.rank(np.eye(2, 3)), [0])
        see(client, 1, 2)
    async with Federator(mqtt_broker) as federator, device(mqtt_broker, path):
        await federator.announce(1, min_interactions=2, max_interactions=2)
        await federator.announce(2, min_interactions=2, max_interactions=2)
        assert content(await federator.update()) == [1, 2]


async def test_an_interaction_that_cannot_be_learned_does_not_block_the_others(mqtt_broker):
    """Finite features can still be too large for the learner: that list is lost, the device is not."""

    def picky_learner(weights, interaction, training):
        if interaction.features[0, 0] == 1.0:
            raise DataError("scores must be finite numbers to rank by")
        return adding_learner(weights, interaction, training)

    async with Federator(mqtt_broker) as federator, device(mqtt_broker, learner=picky_learner) as client:
        see(client, 1, 0, 2)
        await federator.announce(1)
        assert content(await federator.update()) == [1, 2]


async def test_large_features_do_not_end_a_device(mqtt_broker):
    """As above with the real learner: such a list may be refused or lost, and the next ones still count."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker, learner=None) as client:
        for scale in (3e38, 3e38, 1.0, 1.0):
            with contextlib.suppress(DataError):
                client.record_clicks(client.rank(np.eye(3, N_FEATURES) * scale), [1])
        await federator.announce(1)
        assert np.isfinite(unpack_vector((await federator.update()).body.values)).all()
