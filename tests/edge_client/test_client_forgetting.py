"""Forget me, from the device's side: the wish outlives the process and the broker, until it is nobody afterwards."""

import asyncio
import contextlib
import sqlite3

import numpy as np
import pytest
from structlog.testing import capture_logs
from support.device_stores import disk_is_full, stored
from support.device_under_policy import FEDERATOR, identity
from support.federator_by_hand import (
    N_FEATURES,
    QUIET_S,
    TOPICS,
    Federator,
    content,
    device,
    enrolled,
    in_round,
    model,
    retained,
    see,
    taken_in,
)
from support.waiting import PATIENCE_S, until

from foltr.core.erasure.states import ForgetState
from foltr.core.errors import DataError, FoltrError, UnavailableError
from foltr.core.protocol.codec import decode, encode, open_envelope
from foltr.core.protocol.membership import Forget, Status
from foltr.core.protocol.receipts import ErasureNotice, ReceiptCode
from foltr.core.protocol.signing import SigningKey, sequence_of
from foltr.core.protocol.topics import ClientTopic
from foltr.edge_client.blockers import BlockerKind
from foltr.edge_client.client import ForgetResult
from foltr.edge_client.events import ForgetStateChanged
from foltr.edge_client.store.store import DeviceStore

STRANGER = SigningKey.generate()
INBOX, FORGET, STATUS = (
    TOPICS.client("device-7", topic) for topic in (ClientTopic.INBOX, ClientTopic.FORGET, ClientTopic.STATUS)
)
RECEIPT = b"a signed receipt"


@pytest.fixture(autouse=True)
def _ask_again_fast(monkeypatch):
    """Three seconds between two requests are too long for a test."""
    monkeypatch.setattr("foltr.edge_client.forgetting.FORGET_AGAIN_S", 0.2)


async def tell(federator, code, receipt=None, client_id="device-7", **more):
    notice = ErasureNotice(federation="mail", client_id=client_id, code=code, receipt=receipt)
    await federator.say(INBOX, notice, **more)


async def forgotten(federator):
    await tell(federator, ReceiptCode.FORGOTTEN, RECEIPT)


async def contributed(federator, client):
    """The device has an update that counts, one on its way, and a click that waits."""
    await federator.announce(1)
    await client.next_round()
    see(client, 1, 2)
    await federator.accept(await federator.update(), client)
    await federator.announce(2, base=1)
    await client.next_round(after=1)
    see(client, 3, 4)
    await federator.update()
    see(client, 5)


async def test_a_request_is_signed_and_waits_for_a_federator_that_is_away(mqtt_broker):
    """The broker retains it; a device that has gone offline meanwhile says so."""
    credentials = identity()
    async with enrolled(mqtt_broker, credentials) as client:
        await client.wait_connected(PATIENCE_S)
        assert await client.forget_me(timeout_s=0.1) == ForgetResult("sent")  # clock: runs out
        assert not client.forgotten
    left = await retained(mqtt_broker, FORGET, STATUS)
    envelope = open_envelope(left[FORGET])
    assert envelope.is_signed_by(credentials.key.public, FORGET)
    assert envelope.read(Forget).client_id == "device-7"
    assert not decode(left[STATUS], Status).online
    async with Federator(mqtt_broker) as federator:
        assert await federator.next("forget") == left[FORGET]


async def test_a_request_is_repeated_until_it_is_answered(mqtt_broker):
    """Either may be lost. Once the erasure is stored, the broker need not hold it any more."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await federator.next("join")
        asking = asyncio.create_task(client.forget_me())
        for _ in range(3):
            await federator.next("forget")
        assert FORGET in await retained(mqtt_broker, FORGET, STATUS)
        await tell(federator, ReceiptCode.FORGETTING)
        await until(lambda: client.forgotten)
        while await federator.next("forget"):
            pass  # until it is cleared
        while not await federator.next("forget"):
            pass  # until it is repeated
        assert FORGET not in await retained(mqtt_broker, FORGET, STATUS)
        assert await client.forget_me(timeout_s=0.1) == ForgetResult("forgetting")  # clock: runs out
        await forgotten(federator)
        assert await asking == await client.forget_me() == ForgetResult("forgotten", "a signed receipt")


async def test_a_refusal_says_what_to_do(mqtt_broker):
    """The broker does not go on holding the request, and the device is what it was, also after several."""
    next_steps = {
        ReceiptCode.UNKNOWN_CLIENT: "delete its store",
        ReceiptCode.BAD_SIGNATURE: "credentials of its newest enrolment",
        ReceiptCode.MALFORMED: "foltr erasure request",
    }
    async with in_round(mqtt_broker) as (federator, client):
        for code, next_step in next_steps.items():
            asking = asyncio.create_task(client.forget_me())
            while not await federator.next("forget"):
                pass  # the one before was cleared
            await tell(federator, code)
            with pytest.raises(FoltrError, match=rf"device-7.*{code}.*{next_step}"):
                await asking
            assert FORGET not in await retained(mqtt_broker, FORGET, STATUS)
            assert not client.forgotten
        see(client, 1, 2)
        assert content(await federator.update()) == [1, 2]


async def test_a_refusal_of_another_ones_request_is_not_believed(mqtt_broker, monkeypatch):
    """A stranger's forgery is refused on the same topic: what answers the device's own counts, in whichever order."""
    # For so long it waits for a better answer than the refusal.
    monkeypatch.setattr("foltr.edge_client.forgetting.FORGET_AGAIN_S", PATIENCE_S)
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await federator.next("join")
        asking = asyncio.create_task(client.forget_me())
        await federator.next("forget")
        await tell(federator, ReceiptCode.BAD_SIGNATURE)
        await tell(federator, ReceiptCode.FORGETTING)
        await tell(federator, ReceiptCode.BAD_SIGNATURE)
        await forgotten(federator)
        assert (await asking).state == "forgotten"


async def test_notices_for_others_or_by_others_change_nothing(mqtt_broker):
    """Nobody but the federator ends a client, each only its own, and with a receipt that is a text."""
    async with Federator(mqtt_broker, key=FEDERATOR) as federator, enrolled(mqtt_broker, identity()) as client:
        await federator.next("join")
        await tell(federator, ReceiptCode.FORGOTTEN, RECEIPT, key=STRANGER)
        await tell(federator, ReceiptCode.FORGOTTEN, RECEIPT, client_id="device-8")
        await tell(federator, ReceiptCode.FORGOTTEN, b"\xff")
        federator.key = None
        await tell(federator, ReceiptCode.FORGOTTEN, RECEIPT)
        federator.key = FEDERATOR
        await federator.announce(1, newest=model(3))
        await client.next_round()  # the inbox was heard before
        assert not client.forgotten


@pytest.mark.parametrize(
    "hears",
    [
        lambda federator, _: tell(federator, ReceiptCode.FORGETTING),
        lambda federator, _: tell(federator, ReceiptCode.FORGOTTEN, RECEIPT),
        lambda federator, update: federator.receipt(update, ReceiptCode.FORGOTTEN),
        lambda federator, _: federator.membership("device-7", ReceiptCode.FORGOTTEN),
    ],
    ids=["forgetting", "forgotten", "receipt of an update", "receipt of a join"],
)
async def test_the_device_deletes_what_it_kept(mqtt_broker, path, hears):
    """However it hears of it, also unasked: everything on disk and in memory goes; it says so once."""
    with capture_logs() as logs:
        async with in_round(mqtt_broker, path) as (federator, client):
            await taken_in(client)
            see(client, *range(8))
            update = await federator.update()
            assert client.n_waiting == 6
            secrets = [
                b"device-7",
                *(np.eye(1, N_FEATURES, i, dtype="<f4").tobytes() for i in range(8)),
                update.update_id.encode(),
                encode(model(), TOPICS.model),
            ]
            on_disk = b"".join(file.read_bytes() for file in path.parent.iterdir())
            assert all(secret in on_disk for secret in secrets)
            await hears(federator, update)
            await until(lambda: client.forgotten)
            assert (client.n_waiting, client.model_version) == (0, None)
            on_disk = b"".join(file.read_bytes() for file in path.parent.iterdir())
            assert not any(secret in on_disk for secret in secrets)
            with pytest.raises(UnavailableError, match="forgotten: the name is not used again"):
                await client.next_round()
            assert await client.wait_settled(PATIENCE_S)
            await tell(federator, ReceiptCode.FORGOTTEN, RECEIPT)
            assert await client.forget_me() == ForgetResult("forgotten", "a signed receipt")  # it heard that
        with contextlib.closing(sqlite3.connect(path)) as db:
            left = [line for line in db.iterdump() if line.startswith("INSERT")]
        # And the word that says how far the wish is, where the user asked before the federation told.
        watermark, *_ = sorted(left, key=lambda line: "forget_state" in line)
        assert len(left) == 1 + sum("forget_state" in line for line in left)
        assert watermark.startswith("""INSERT INTO "owner" VALUES(1,'forgotten',NULL,NULL,""")
    assert [line["log_level"] for line in logs if line["event"] == "forgotten"] == ["warning"]
    assert await retained(mqtt_broker, FORGET, STATUS) == {}


async def test_a_client_constructed_later_knows_it(mqtt_broker, path):
    """It says so once, contributes and joins no more, keeps nothing, and may ask for its receipt again."""
    async with Federator(mqtt_broker) as federator:
        async with device(mqtt_broker, path) as client:
            await contributed(federator, client)
            await forgotten(federator)
            await until(lambda: client.forgotten)
        await federator.next("join")
        async with contextlib.AsyncExitStack() as stack:
            with capture_logs() as logs:
                client = await stack.enter_async_context(device(mqtt_broker, path))
            assert [line["event"] for line in logs] == ["forgotten"]
            assert client.forgotten
            see(client, 1, 2)
            await federator.announce(3, base=2)
            await federator.nothing_on("join")
            await federator.nothing_on("updates")
            assert (client.n_waiting, client.model_version) == (0, None)
            asking = asyncio.create_task(client.forget_me())
            while not await federator.next("forget"):
                pass  # what the run before has cleared
            await forgotten(federator)
            assert await asking == ForgetResult("forgotten", "a signed receipt")
        with stored(path) as store:
            assert store.newest_session() == 0
        assert await retained(mqtt_broker, FORGET, STATUS) == {}


async def test_a_full_disk_is_no_reason_to_remember(mqtt_broker, path, monkeypatch):
    """What could not be deleted at once is deleted later; meanwhile nothing is used or stored."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker, path) as client:
        await contributed(federator, client)
        with monkeypatch.context() as full_disk:
            full_disk.setattr(DeviceStore, "forget", disk_is_full)
            await forgotten(federator)
            await until(lambda: client.forgotten)
            client.record_clicks(client.rank(np.eye(3, N_FEATURES)), [1])
            assert client.n_waiting == 1
        await forgotten(federator)
        await until(lambda: client.n_waiting == 0)
    with stored(path) as store:
        assert store.forgotten


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


async def test_asking_without_a_broker_keeps_the_wish(mosquitto_server, path, monkeypatch):
    """It is asked and not sent, until a broker is there, before all else; and again if that loses what it retained."""
    pauses = dict.fromkeys(ForgetState, (PATIENCE_S, PATIENCE_S))  # it is the connection that has it sent again
    monkeypatch.setattr("foltr.edge_client.forgetting._PAUSES_S", pauses)
    mosquitto_server.stop()
    async with device(mosquitto_server.url, path) as client:
        assert await client.forget_me(timeout_s=0.1) == ForgetResult("asked")  # clock: runs out
        mosquitto_server.start()
        async with Federator(mosquitto_server.url) as federator:
            await federator.next("forget")
            await federator.nothing_on("join")
            await federator.nothing_on("status")
            await until(lambda: client.forget_state == "sent")
            assert not await client.leave(timeout_s=PATIENCE_S), "it asked, and says nothing else"
            await federator.nothing_on("leave")
        mosquitto_server.kill()
        await until(lambda: client.blocker is not None and client.blocker.kind is BlockerKind.BROKER_AWAY)
        mosquitto_server.start()
        async with Federator(mosquitto_server.url) as federator:
            await federator.next("forget")


async def test_a_wish_that_cannot_be_stored_is_not_sent(mqtt_broker, path, monkeypatch):
    """The application is told; nothing was changed, and the device goes on."""
    async with in_round(mqtt_broker, path) as (federator, client):
        await taken_in(client)
        with monkeypatch.context() as full_disk:
            full_disk.setattr(DeviceStore, "put_forget_state", disk_is_full)
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
    with stored(path) as store:
        assert store.forget_state() == code.value


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
    credentials = identity()
    async with Federator(mqtt_broker, key=FEDERATOR) as federator, enrolled(mqtt_broker, credentials, path) as client:
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
    async with enrolled(mqtt_broker, credentials, path) as client:
        assert client.forget_state == "erasing"
        assert client.forgotten
        await client.wait_connected(PATIENCE_S)
