"""What must not stop a device: nonsense from the network, a full disk, another one's store."""

import numpy as np
import pytest
from support.federator_by_hand import N_FEATURES, TOPICS, Federator, content, device, in_round, model, see
from support.waiting import PATIENCE_S, until

from foltr.core.errors import DataError, SettingsError
from foltr.core.protocol.codec import encode
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.topics import ClientTopic
from foltr.edge_client.store.store import DeviceStore


async def test_nonsense_from_the_network_is_ignored(mqtt_broker):
    """Broken bytes on any topic a device hears, and messages for another federation, change nothing."""
    async with in_round(mqtt_broker) as (federator, client):
        foreign = model(9).model_copy(update={"federation": "photos"})
        inbox = TOPICS.client("device-7", ClientTopic.INBOX)
        for topic, payload in (
            (TOPICS.model, b"\xc1"),
            (TOPICS.round, b""),
            (inbox, b"\x00" * 1_000),
            (inbox, encode(model())),
            (TOPICS.model, encode(foreign)),
        ):
            await federator.link.publish(topic, payload)
        see(client, 1, 2)
        assert content(await federator.update()) == [1, 2]
        assert client.model_version == 0


async def test_a_round_of_another_federation_is_ignored(mqtt_broker):
    """As its model is: a misdirected announcement must not make updates for a round that is not there."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await federator.announce(1)
        announced = await client.next_round()
        foreign = announced.model_copy(update={"federation": "photos", "round": 77})
        await federator.link.publish(TOPICS.round, encode(foreign))
        await federator.nothing_on("updates")
        see(client, 1, 2)
        assert (await federator.update()).round == 1


async def test_a_receipt_that_cannot_be_stored_is_asked_for_again(mqtt_broker, monkeypatch):
    """The disk is full at the wrong moment: the update stays pending in memory as on disk, and is settled later."""
    monkeypatch.setattr("foltr.edge_client.participation.FIRST_RESEND_S", 0.3)
    async with in_round(mqtt_broker) as (federator, client):
        see(client, 1, 2)
        first = await federator.update()
        with monkeypatch.context() as full_disk:

            def fail(*_, **__):
                raise DataError("device store: database or disk is full")

            full_disk.setattr(DeviceStore, "settle", fail)
            await federator.receipt(first, ReceiptCode.ACCEPTED)
            await until(lambda: client.receipts.get("accepted") == 1)
        await federator.receipt(await federator.update(), ReceiptCode.DUPLICATE)
        assert await client.wait_settled(PATIENCE_S)
        await federator.announce(2, base=1)
        await client.next_round(after=1)
        see(client, 3, 4)
        while (update := await federator.update()).update_id == first.update_id:
            pass  # sent again before the answer came
        assert content(update) == [3, 4]


async def test_clicks_that_cannot_be_stored_are_told(nowhere, monkeypatch):
    """The application gets the error and may record the same list again when there is room."""
    async with device(nowhere) as client:
        serp = client.rank(np.eye(3, N_FEATURES))
        with monkeypatch.context() as full_disk:

            def fail(*_, **__):
                raise DataError("device store: database or disk is full")

            full_disk.setattr(DeviceStore, "add_interaction", fail)
            with pytest.raises(DataError, match="full"):
                client.record_clicks(serp, [0])
        client.record_clicks(serp, [0])
        assert client.n_waiting == 1


async def test_a_model_that_cannot_be_stored_is_used(mqtt_broker, monkeypatch):
    """Keeping it on disk is for the next start; a full disk does not make the device sit out the round."""
    async with in_round(mqtt_broker) as (federator, client):

        def fail(*_):
            raise DataError("device store: database or disk is full")

        monkeypatch.setattr(DeviceStore, "put_model", fail)
        await federator.announce(2, base=1)
        await client.next_round(after=1)
        assert client.model_version == 1
        see(client, 1, 2)
        assert (await federator.update()).base_version == 1


async def test_a_store_of_another_device_is_refused(nowhere, path):
    """Two devices do not mix their clicks."""
    async with device(nowhere, path):
        pass
    with pytest.raises(SettingsError, match="one store per client"):
        await device(nowhere, path, client_id="device-8").__aenter__()


@pytest.mark.parametrize("name", ["", "a/b", "+", "a b"])
def test_a_name_that_is_no_topic_level_is_refused(nowhere, name):
    """Before anything is opened."""
    with pytest.raises(SettingsError, match="client_id"):
        device(nowhere, client_id=name)
