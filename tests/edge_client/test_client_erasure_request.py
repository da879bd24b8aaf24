"""The wish to be forgotten outlives the process and the broker: it is on the device's disk until there is a receipt."""

import asyncio

import pytest
from structlog.testing import capture_logs
from support.federator_by_hand import QUIET_S, TOPICS, Federator, content, device, in_round, see, taken_in
from support.waiting import PATIENCE_S, until

from foltr.core.errors import DataError, FoltrError
from foltr.core.operator.credentials import BrokerAccess, device_identity
from foltr.core.protocol.receipts import ErasureNotice, ReceiptCode
from foltr.core.protocol.signing import SigningKey, sequence_of
from foltr.core.protocol.topics import ClientTopic
from foltr.edge_client.client import EdgeClient, ForgetResult
from foltr.edge_client.events import ForgetStateChanged
from foltr.edge_client.store.store import DeviceStore

INBOX, FORGET, STATUS = (
    TOPICS.client("device-7", topic) for topic in (ClientTopic.INBOX, ClientTopic.FORGET, ClientTopic.STATUS)
)
RECEIPT = b"a signed receipt"


@pytest.fixture(autouse=True)
def _ask_again_fast(monkeypatch):
    """Three seconds between two requests are too long for a test."""
    monkeypatch.setattr("foltr.edge_client.forgetting.FORGET_AGAIN_S", 0.2)


async def tell(federator, code, receipt=None):
    """Say how far the erasure is."""
    await federator.say(INBOX, ErasureNotice(federation="mail", client_id="device-7", code=code, receipt=receipt))


async def asked_in_an_earlier_life(url, path):
    """The device had an update on its way and a click that waits; it asked, and ended without an answer."""
    async with Federator(url) as federator, device(url, path) as client:
        await federator.announce(1)
        await client.next_round()
        await taken_in(client)
        see(client, 1, 2)
        await federator.update()
        see(client, 3)
        assert (await client.forget_me(timeout_s=0.05)).state == "sent"  # clock: runs out


async def test_asking_without_a_broker_keeps_the_wish(mosquitto_server, path):
    """The application hears that it is asked and not sent; it is sent as soon as a broker is there, before all else."""
    mosquitto_server.stop()
    async with device(mosquitto_server.url, path) as client:
        assert await client.forget_me(timeout_s=0.1) == ForgetResult("asked")  # clock: runs out
        mosquitto_server.start()
        async with Federator(mosquitto_server.url) as federator:
            await federator.next("forget")
            await federator.nothing_on("join")
            await federator.nothing_on("status")
            await until(lambda: client.forget_state == "sent")


async def test_leaving_says_nothing_more_once_asked(mqtt_broker, path):
    """A leave is something else than the wish, and one that fails must not let the device speak again."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker, path) as client:
        await federator.next("join")
        await client.forget_me(timeout_s=0.01)  # clock: runs out
        assert not await client.leave(timeout_s=0.2)  # clock: runs out
        await federator.nothing_on("leave")
        see(client, 1, 2)
        await federator.announce(1)
        await federator.nothing_on("updates")


async def test_a_wish_that_cannot_be_stored_is_not_sent(mqtt_broker, path, monkeypatch):
    """The application is told; nothing was changed, and the device goes on."""
    async with in_round(mqtt_broker, path) as (federator, client):
        await taken_in(client)
        with monkeypatch.context() as full_disk:

            def fail(*_):
                raise DataError("device store: database or disk is full")

            full_disk.setattr(DeviceStore, "put_forget_state", fail)
            with pytest.raises(DataError, match="full"):
                await client.forget_me()
        await federator.nothing_on("forget")
        assert client.forget_state is None
        see(client, 1, 2)
        assert content(await federator.update()) == [1, 2]


async def test_a_refusal_that_nobody_waits_for_keeps_the_device_silent(mqtt_broker, path):
    """After a restart the person still wants to go: the device says so once, and the next call raises it."""
    await asked_in_an_earlier_life(mqtt_broker, path)
    with capture_logs() as logs:
        async with Federator(mqtt_broker) as federator, device(mqtt_broker, path) as client:
            await until(lambda: client.forget_state == "sent")
            while federator.n_heard("forget"):
                await federator.next("forget")
            await tell(federator, ReceiptCode.BAD_SIGNATURE)
            await until(lambda: any(line["event"] == "forget_refused" for line in logs))
            await federator.announce(2)
            see(client, 4, 5)
            await federator.nothing_on("join")
            assert client.forget_state == "sent"
            assert "bad_signature" in client.blocker.message
            asking = asyncio.create_task(client.forget_me())
            while not await federator.next("forget"):
                pass
            await tell(federator, ReceiptCode.BAD_SIGNATURE)
            with pytest.raises(FoltrError, match="bad_signature"):
                await asking
            assert client.forget_state is None
            await federator.next("join")
    async with Federator(mqtt_broker) as federator, device(mqtt_broker, path) as client:
        await federator.next("join")  # it is what it was, after a restart too


@pytest.mark.parametrize("code", [ReceiptCode.ERASING, ReceiptCode.FORGETTING, ReceiptCode.FORGOTTEN])
async def test_what_the_federation_says_is_what_a_person_sees(mqtt_broker, path, code):
    """By the result, the property, the event and the state: `erasing` is not said to be erased."""
    events = []
    async with Federator(mqtt_broker) as federator, device(mqtt_broker, path, on_event=events.append) as client:
        await federator.next("join")
        asking = asyncio.create_task(client.forget_me(timeout_s=PATIENCE_S))
        await federator.next("forget")
        # The federator's word may be read together with the broker's acknowledgement of the wish.
        await until(lambda: client.forget_state == "sent")
        await tell(federator, code)
        await until(lambda: client.forget_state == code.value)
        asking.cancel()
        assert (await client.forget_me(timeout_s=0.01)).state == code.value  # clock: runs out
    states = [event.state for event in events if isinstance(event, ForgetStateChanged)]
    assert states == ["asked", "sent", code.value]
    with_store = DeviceStore(path, client_id="device-7", federation="mail", max_interactions=10)
    assert with_store.forget_state() == code.value
    with_store.close()


async def test_who_hears_forgotten_by_a_join_claims_no_more_than_it_knows(mqtt_broker):
    """The name is nobody's: that does not say that all is erased. Asked, the federation says how far it is."""
    async with Federator(mqtt_broker, takes_joins=False) as federator, device(mqtt_broker) as client:
        await federator.next("join")
        await federator.membership("device-7", ReceiptCode.FORGOTTEN)
        await until(lambda: client.forgotten)
        assert client.forget_state == "erasing"
        asking = asyncio.create_task(client.forget_me())
        while not await federator.next("forget"):
            pass
        await tell(federator, ReceiptCode.FORGOTTEN, RECEIPT)
        assert (await asking).state == "forgotten"


async def test_a_federation_restored_from_before_hears_the_wish_again(mqtt_broker, path):
    """A new epoch may be a restored database, with the client in it: who asked asks again, although it was erased."""
    operator, federator_key = SigningKey.generate(), SigningKey.generate()
    credentials = device_identity(
        operator, federator_key.public, "mail", "device-7", 1, BrokerAccess(broker_url=mqtt_broker)
    )
    async with Federator(mqtt_broker, key=federator_key) as federator, EdgeClient(credentials, store=path) as client:
        await federator.announce(1, sequence=sequence_of(1, 1))
        asking = asyncio.create_task(client.forget_me())
        await federator.next("forget")
        await tell(federator, ReceiptCode.FORGOTTEN, RECEIPT)
        assert (await asking).state == "forgotten"
        await federator.announce(2, sequence=sequence_of(1, 2))
        while await federator.next("forget"):
            pass  # until it is cleared
        await asyncio.sleep(QUIET_S)
        while federator.n_heard("forget"):
            assert await federator.next("forget") == b""  # cleared once more
        await federator.announce(1, sequence=sequence_of(2, 1))
        assert await federator.next("forget")
        await tell(federator, ReceiptCode.ERASING)
        await until(lambda: client.forget_state == "erasing")
    async with EdgeClient(credentials, store=path) as client:
        assert client.forget_state == "erasing"
        assert client.forgotten
        await client.wait_connected(PATIENCE_S)
