"""One client, or a crowd of strangers, sends far more than there is room for: the others do not notice."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from integration.peers import FEDERATION, TOPICS, HandMade, make_plan, served
from support.broker_links import wait_for_the_broker

from foltr.broker.buffer import IntakeLimits
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.topics import ClientTopic
from foltr.federator.round import RoundPolicy
from foltr.storage.queries import list_contributions, list_events, list_rounds

N_MESSAGES = 3_000
# Strangers share 64 places in the rotation; while those who flood are fewer than the messages that fit, there is room.
SMALL = IntakeLimits(max_messages=1_000, max_waiting_per_sender=20, rate_per_s=0.001, burst=10)


@pytest.fixture
def broker(mosquitto_server, monkeypatch):
    wait_for_the_broker(monkeypatch)  # the flood itself is acknowledged late
    return mosquitto_server.url


def flood_of_a_member(_i):
    return "loud"


def flood_of_strangers(i):
    return f"nobody-{i % 1000}"


@pytest.mark.parametrize("name_of", [flood_of_a_member, flood_of_strangers])
async def test_a_flood_of_one_does_not_keep_anothers_update_from_its_receipt(broker, database, name_of):
    """The quiet device is answered in its turn, the flooding one gets `busy`, and little of it reaches the disk."""
    plan = make_plan(RoundPolicy(1, 5, 3600, 3600), n_rounds=1)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(served(broker, database, plan, intake_limits=SMALL))
        loud = await stack.enter_async_context(HandMade(broker, "loud").connected())
        quiet = await stack.enter_async_context(HandMade(broker, "quiet").connected())

        async def flood(i):
            update = loud.update(base_version=7, update_id=f"{i:032x}")
            await loud.link.publish(TOPICS.client(name_of(i), ClientTopic.UPDATES), update)

        flooding = asyncio.gather(*(flood(i) for i in range(N_MESSAGES)))
        for n in range(3):
            code = (await quiet.send(quiet.update(update_id=f"{n}" * 32))).code
            assert code is (ReceiptCode.ACCEPTED if n == 0 else ReceiptCode.ALREADY_CONTRIBUTED)
        await flooding
        # What was sent after the flood comes after it: the receipt says that all of it was dealt with.
        assert (await quiet.send(quiet.update(update_id="9" * 32))).code is ReceiptCode.ALREADY_CONTRIBUTED
    assert [row.client_id for row in await list_contributions(database, FEDERATION)] == ["quiet"]
    assert [row.state for row in await list_rounds(database, FEDERATION)] == ["collecting"]
    turned_away = await list_events(database, FEDERATION, kind="intake_full")
    assert turned_away
    assert {event.code for event in turned_away} == {"busy"}
    rejected = await list_events(database, FEDERATION, kind="update_rejected", limit=10 * N_MESSAGES)
    of_the_flood = sum(event.n for event in rejected if event.client_id != "quiet")
    assert of_the_flood < N_MESSAGES / 2, "the intake took most of the flood"
    told = [await loud.update_receipt() for _ in range(loud.receipts.qsize())]
    busy = [receipt for receipt in told if receipt.code is ReceiptCode.BUSY]
    if name_of is flood_of_a_member:
        assert busy
        assert all(receipt.update_id is None and receipt.retry_after_s >= 1 for receipt in busy)
    else:
        assert busy == []
