"""What must not stop a device: nonsense from the network, a full disk, a lost database."""

import pytest
from structlog.testing import capture_logs
from support.device_stores import disk_is_full
from support.federator_by_hand import TOPICS, Federator, content, device, in_round, model, see
from support.waiting import PATIENCE_S, until

from foltr.core.errors import SettingsError
from foltr.core.protocol.codec import encode
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.topics import ClientTopic
from foltr.edge_client.store.store import DeviceStore


async def test_nonsense_from_the_network_is_ignored(mqtt_broker):
    """Broken bytes on any topic a device hears, and messages for another federation, change nothing."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await federator.announce(1)
        announced = await client.next_round()
        foreign_model = model(9).model_copy(update={"federation": "photos"})
        foreign_round = announced.model_copy(update={"federation": "photos", "round": 77})
        inbox = TOPICS.client("device-7", ClientTopic.INBOX)
        for topic, payload in (
            (TOPICS.model, b"\xc1"),
            (TOPICS.round, b""),
            (inbox, b"\x00" * 1_000),
            (inbox, encode(model())),
            (TOPICS.model, encode(foreign_model)),
            (TOPICS.round, encode(foreign_round)),
        ):
            await federator.link.publish(topic, payload)
        see(client, 1, 2)
        update = await federator.update()
        assert (update.round, content(update), client.model_version) == (1, [1, 2], 0)


async def test_a_receipt_that_cannot_be_stored_is_asked_for_again(mqtt_broker, monkeypatch):
    """The disk is full at the wrong moment: the update stays pending in memory as on disk, and is settled later."""
    monkeypatch.setattr("foltr.edge_client.participation.FIRST_RESEND_S", 0.3)
    async with in_round(mqtt_broker) as (federator, client):
        see(client, 1, 2)
        first = await federator.update()
        with monkeypatch.context() as full_disk:
            full_disk.setattr(DeviceStore, "settle", disk_is_full)
            await federator.receipt(first, ReceiptCode.ACCEPTED)
            await until(lambda: client.receipts.get("accepted") == 1)
        await federator.receipt(await federator.update(), ReceiptCode.DUPLICATE)
        assert await client.wait_settled(PATIENCE_S)


async def test_a_model_that_cannot_be_stored_is_used(mqtt_broker, monkeypatch):
    """Keeping it on disk is for the next start; a full disk does not make the device sit out the round."""
    async with in_round(mqtt_broker) as (federator, client):
        monkeypatch.setattr(DeviceStore, "put_model", disk_is_full)
        await federator.announce(2, base=1)
        await client.next_round(after=1)
        assert client.model_version == 1
        see(client, 1, 2)
        assert (await federator.update()).base_version == 1


async def test_a_federation_that_lost_its_database_is_gone_on_with(mqtt_broker, path):
    """What the device has kept is learned again; the log names whose database it was."""
    async with Federator(mqtt_broker) as federator:
        async with device(mqtt_broker, path) as client:
            for number in (1, 2):
                await federator.announce(number, base=number)
                await client.next_round(after=number - 1)
                see(client, number, number + 4)
                await federator.accept(await federator.update(), client)
        federator.watermarks.clear()
        with capture_logs() as logs:
            async with device(mqtt_broker, path) as client:
                await federator.announce(1, base=0)
                assert content(await federator.update()) == [1, 2, 5, 6]
        told = [line for line in logs if line["event"] == "federation_updates_lost"]
        assert [(line["federation"], line["watermark_before"], line["watermark"]) for line in told] == [("mail", 4, 0)]


@pytest.mark.parametrize("name", ["", "a/b", "+", "a b"])
def test_a_name_that_is_no_topic_level_is_refused(nowhere, name):
    """Before anything is opened."""
    with pytest.raises(SettingsError, match="client_id"):
        device(nowhere, client_id=name)
