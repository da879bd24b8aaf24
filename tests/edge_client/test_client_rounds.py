"""A device comes, waits for rounds and receipts, and goes: waits end and say why, and others see that it was there."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from cli.commands import environment
from support.federator_by_hand import TOPICS, Federator, device, in_round, retained, see
from support.waiting import PATIENCE_S, until

from foltr.core.errors import UnavailableError
from foltr.core.protocol.codec import decode
from foltr.core.protocol.membership import Join, Status
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.topics import ClientTopic


@pytest.mark.parametrize("is_open", [True, False])
async def test_the_next_round_is_one_with_its_model(mqtt_broker, is_open):
    """Open, newer than the last, and its base model at hand; also where helpers are asked before it opens."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await federator.announce(3, base=2)
        assert (await client.next_round()).round == 3
        await federator.announce(3, base=2, is_open=is_open)
        waiting = asyncio.create_task(client.next_round(after=3, timeout_s=PATIENCE_S))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await federator.announce(4, base=3)
        assert (await waiting).round == 4
        assert client.model_version == 3


async def test_rounds_that_went_back_are_new_ones(mqtt_broker):
    """A restored database begins lower than devices have been: they need not wait until it is there again."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await federator.announce(9)
        assert (await client.next_round(after=8)).round == 9
        await federator.announce(3)
        assert (await client.next_round(after=9)).round == 3
        for after in (3, 10):  # the caller has seen this one; no round 10 was ever there
            with pytest.raises(UnavailableError, match=f"no round after {after}"):
                await client.next_round(after=after, timeout_s=0.1)  # clock: runs out


async def test_a_last_round_is_the_end_for_those_who_took_part(mqtt_broker):
    """Whoever saw the last round is told that it is over; a newcomer waits for what may come."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await federator.announce(3, is_open=False, last=True)
        await until(lambda: client.model_version == 0)
        assert not (await client.next_round(after=3)).open
        with pytest.raises(UnavailableError, match="no round after 0"):
            await client.next_round(after=0, timeout_s=0.1)  # clock: runs out


async def test_giving_up_on_the_broker_ends_the_wait_for_a_round(nowhere):
    """No round can come any more, so nobody waits for the rest of the time; ranking goes on."""
    async with device(nowhere, give_up_after_s=0.2) as client:
        with pytest.raises(UnavailableError, match="gave up"):
            async with asyncio.timeout(PATIENCE_S):
                await client.next_round(timeout_s=10 * PATIENCE_S)
        assert len(see(client, 1)) == 1


async def test_settling_waits_for_the_federation_and_says_what_is_left(mqtt_broker):
    """A click is not settled because no round is known yet; too few for an update are left, with the reason."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        see(client, 1)
        settled = await client.wait_settled(0.05)
        assert (bool(settled), settled.is_pending, settled.n_waiting) == (False, False, 1)
        assert "1 list waits for a round" in client.state.remarks
        waiting = asyncio.create_task(client.wait_settled(PATIENCE_S))
        await federator.announce(1, min_interactions=2)
        assert str(await waiting).startswith("1 list is in no update yet: ")
        see(client, 2)
        update = await federator.update()
        settled = await client.wait_settled(0.1)  # without a receipt
        assert (bool(settled), settled.is_pending, settled.n_waiting) == (False, True, 0)
        assert str(settled).startswith("an update waits for its receipt: ")
        await federator.receipt(update, ReceiptCode.ACCEPTED)
        settled = await client.wait_settled(PATIENCE_S)
        assert settled
        assert str(settled) == "nothing waits"
        see(client, *range(11))
        assert client.state.remarks == ("11 lists wait, and an update takes 10",)


STATUS = TOPICS.client("device-7", ClientTopic.STATUS)
REPOSITORY = Path(__file__).parents[2]
NO_KERNELS = environment(NUMBA_DISABLE_JIT="1")


async def status_retained(url):
    status = (await retained(url, STATUS)).get(STATUS)
    return None if status is None else decode(status, Status).online


async def test_a_device_says_hello_and_goodbye(mqtt_broker):
    """A join once, and whether it is online, also to a later subscriber."""
    async with Federator(mqtt_broker) as federator:
        async with device(mqtt_broker):
            assert decode(await federator.next("status"), Status).online
            assert decode(await federator.next("join"), Join).client_id == "device-7"
            assert await status_retained(mqtt_broker) is True
        assert not decode(await federator.next("status"), Status).online
        assert await status_retained(mqtt_broker) is False
        await federator.nothing_on("join")


async def test_leaving_clears_the_status(mqtt_broker):
    """Nothing about a device that left stays with the broker, also after its process has ended."""
    async with Federator(mqtt_broker) as federator:
        async with device(mqtt_broker) as client:
            await federator.next("join")
            assert await client.leave(timeout_s=PATIENCE_S)
            await federator.next("leave")
            assert await status_retained(mqtt_broker) is None
        assert await status_retained(mqtt_broker) is None
    async with device(mqtt_broker) as client:
        await client.wait_connected()
        assert not await client.leave(timeout_s=0.1), "nobody confirms it"  # clock: runs out


async def test_a_device_that_left_contributes_no_more(mqtt_broker):
    """No join, no update: neither in a round that opens later nor when the federator says that it is unknown."""
    async with in_round(mqtt_broker) as (federator, client):
        await federator.next("join")
        see(client, 1, 2)
        update = await federator.update()
        await client.leave()
        await federator.membership("device-7", ReceiptCode.LEFT)
        await federator.receipt(update, ReceiptCode.UNKNOWN_CLIENT)
        await federator.announce(2, base=1)
        see(client, 3, 4)
        await federator.nothing_on("join")
        await federator.nothing_on("updates")


async def test_leaving_needs_the_broker(nowhere):
    """The application gets an error: the device has not left."""
    async with device(nowhere) as client:
        with pytest.raises(UnavailableError):
            await client.leave()


CRASHING = """
import asyncio, sys
import numpy as np
from foltr import Connection, EdgeClient, Privacy

async def main():
    connection = Connection(sys.argv[1], "mail", "device-7")
    at_once = Privacy(click_window_s=0)
    async with EdgeClient(store=sys.argv[2], connection=connection, privacy=at_once) as client:
        await client.next_round(timeout_s=240.0)
        for _ in range(2):
            client.record_clicks(client.rank(np.eye(3, 16)), [1])
        await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_a_killed_device_is_offline_and_sends_the_same_update_again(mqtt_broker, path):
    """SIGKILL with an update on its way: the last will tells, and the next start goes on with the same bytes."""
    async with Federator(mqtt_broker) as federator:
        await federator.announce(1)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            CRASHING,
            mqtt_broker,
            str(path),
            cwd=REPOSITORY,
            env=NO_KERNELS,
            stdout=subprocess.DEVNULL,
        )
        assert decode(await federator.next("status"), Status).online
        first = await federator.next("updates")
        process.kill()
        await process.wait()
        assert not decode(await federator.next("status"), Status).online
        assert await status_retained(mqtt_broker) is False
        async with device(mqtt_broker, path):
            assert await federator.next("updates") == first
