"""Recording clicks: on disk when it returns, once, whatever the network does."""

import numpy as np
import pytest
from support.federator_by_hand import (
    N_FEATURES,
    Federator,
    content,
    device,
    in_round,
    see,
    taken_in,
    until_disconnected,
)

from foltr.core.errors import UnavailableError


async def test_a_list_recorded_twice_counts_once(mqtt_broker):
    """Before its update, while the update is on its way, and after it was accepted."""
    async with in_round(mqtt_broker) as (federator, client):
        (serp,) = see(client, 1)
        client.record_clicks(serp, [1])
        assert client.n_waiting == 1
        see(client, 2)
        update = await federator.update()
        assert content(update) == [1, 2]
        client.record_clicks(serp, [0])
        await federator.accept(update, client)
        client.record_clicks(serp, [0])
        assert client.n_waiting == 0
        await federator.announce(2, base=1)
        await client.next_round(after=1)
        see(client, 3)
        await federator.nothing_on("updates")
        see(client, 4)
        assert content(await federator.update()) == [3, 4]


async def test_no_click_is_an_interaction_too(mqtt_broker):
    """The user saw the list and wanted none of it."""
    async with in_round(mqtt_broker, announces={"min_interactions": 1}) as (federator, client):
        client.record_clicks(client.rank(np.eye(3, N_FEATURES)), [])
        assert (await federator.update()).n_interactions == 1


async def test_clicks_recorded_offline_are_contributed_once(mqtt_broker, nowhere, path):
    """No broker at all, a restart in between: the first round that opens gets them, and no later one does."""
    async with device(nowhere, path) as client:
        see(client, 1, 2, 3)
        assert client.n_waiting == 3
        with pytest.raises(UnavailableError):
            await client.wait_connected(0.05)
    async with Federator(mqtt_broker) as federator, device(mqtt_broker, path) as client:
        await federator.announce(1)
        update = await federator.update()
        assert content(update) == [1, 2, 3]
        await federator.accept(update, client)
        await federator.announce(2, base=1)
        await federator.nothing_on("updates")


async def test_an_outage_in_between_loses_nothing(mosquitto_server):
    """The broker is killed and comes back empty: the device says hello and sends what was not receipted."""
    async with device(mosquitto_server.url) as client:
        async with Federator(mosquitto_server.url) as federator:
            await federator.announce(1)
            await client.next_round()
            await taken_in(client)
            see(client, 1)
        mosquitto_server.kill()
        await until_disconnected(client)
        see(client, 2)
        assert client.n_waiting == 0, "it is in an update already, for the round the device knows of"
        mosquitto_server.start()
        async with Federator(mosquitto_server.url) as federator:
            assert content(await federator.update()) == [1, 2]


async def test_the_application_may_reuse_its_buffer(mqtt_broker):
    """What was shown is what is learned from, also if the features were overwritten before the click."""
    async with in_round(mqtt_broker, announces={"min_interactions": 1}) as (federator, client):
        features = np.zeros((1, N_FEATURES), np.float32)
        features[0, 3] = 1.0
        serp = client.rank(features)
        features[:] = 7.0
        client.record_clicks(serp, [0])
        assert content(await federator.update()) == [3]


async def test_a_device_that_may_keep_fewer_than_an_update_needs(mqtt_broker):
    """The application is not made to pay with an error for a setting that does not fit the federation's."""
    async with in_round(mqtt_broker, max_interactions=3, announces={"min_interactions": 5}) as (_, client):
        see(client, *range(8))
        assert client.n_waiting == 3
