"""Waiting for rounds and for receipts: it ends, and says why."""

import asyncio

import pytest
from support.federator_by_hand import WITHIN_S, Federator, device, in_round, see, until

from foltr.core.errors import UnavailableError


async def test_the_next_round_is_one_with_its_model(mqtt_broker):
    """Open, newer than the last, and its base model at hand."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await federator.announce(3, base=2)
        assert (await client.next_round()).round == 3
        waiting = asyncio.create_task(client.next_round(after=3, timeout_s=WITHIN_S))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await federator.announce(4, base=3)
        assert (await waiting).round == 4
        assert client.model_version == 3


async def test_a_closed_round_that_another_follows_is_waited_for(mqtt_broker):
    """While helpers are asked no round is open; whoever took part waits for the next one."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await federator.announce(3)
        assert (await client.next_round()).round == 3
        await federator.announce(3, is_open=False)
        waiting = asyncio.create_task(client.next_round(after=3, timeout_s=WITHIN_S))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await federator.announce(4)
        assert (await waiting).round == 4


async def test_a_last_round_is_the_end_for_those_who_took_part(mqtt_broker):
    """Whoever saw the last round is told that it is over; a newcomer waits for what may come."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await federator.announce(3, is_open=False, last=True)
        await until(lambda: client.model_version == 0)
        assert not (await client.next_round(after=3)).open
        with pytest.raises(UnavailableError, match="no round after 0"):
            await client.next_round(after=0, timeout_s=0.1)  # clock: runs out


async def test_waiting_for_a_round_ends(nowhere):
    """With what is in the way, here the broker, and what to do in the message."""
    async with device(nowhere) as client:
        with pytest.raises(UnavailableError, match=r"no round after 7 within 0\.05 s.*foltr broker run"):
            await client.next_round(after=7, timeout_s=0.05)  # clock: runs out


async def test_giving_up_on_the_broker_ends_the_wait_for_a_round(nowhere):
    """No round can come any more, so nobody waits for the rest of the time; ranking goes on."""
    async with device(nowhere, give_up_after_s=0.2) as client:
        with pytest.raises(UnavailableError, match="gave up"):
            async with asyncio.timeout(WITHIN_S):
                await client.next_round(timeout_s=10 * WITHIN_S)
        assert len(see(client, 1)) == 1


async def test_nothing_pending_is_settled(nowhere):
    """And what is pending without a receipt is not, after the time given."""
    async with device(nowhere) as client:
        assert await client.wait_settled(0.0)


async def test_settling_ends(mqtt_broker):
    """False, not an error and not a wait without end, where no receipt comes."""
    async with in_round(mqtt_broker) as (federator, client):
        see(client, 1, 2)
        await federator.update()
        assert not await client.wait_settled(0.1)
