"""Updates that are altered before they are sent, as hostile devices of an experiment do; and quarantine."""

import asyncio

import numpy as np
import pytest
from structlog.testing import capture_logs
from support.federator_by_hand import N_FEATURES, Federator, content, device, see, taken_in
from support.waiting import PATIENCE_S, until

from foltr.core.errors import DataError
from foltr.core.protocol.fields import pack_vector, unpack_vector
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.updates import DenseDelta


async def negated(update, _round):
    return DenseDelta(dim=N_FEATURES, values=pack_vector(-unpack_vector(update.body.values)))


class Held:
    def __init__(self):
        self.release = asyncio.Event()
        self.rounds = []

    async def __call__(self, update, round_):
        self.rounds.append(round_.round)
        await self.release.wait()
        return update.body


async def test_what_is_sent_is_what_was_made_of_it(mqtt_broker):
    """Of the interactions that were learned, once; the next update is altered again."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker, alter_update=negated) as client:
        for number in (1, 2):
            await federator.announce(number, base=number - 1)
            await client.next_round(after=number - 1)
            see(client, number, number + 5)
            update = await federator.update()
            assert update.n_interactions == 2
            values = unpack_vector(update.body.values)
            assert np.flatnonzero(values == -1).tolist() == [number, number + 5]
            await federator.accept(update, client)
        assert client.n_waiting == 0


async def test_it_may_take_its_time(mqtt_broker, path):
    """Ranking and recording go on; what comes too late goes into the open round's update, or waits for a restart."""
    held = Held()
    async with Federator(mqtt_broker) as federator:
        async with device(mqtt_broker, path, alter_update=held) as client:
            await federator.announce(1)
            await client.next_round()
            await taken_in(client)
            see(client, 1, 2, 3)
            assert not await client.wait_settled(0.1)
            await federator.nothing_on("updates")
            await federator.announce(2, base=1)
            await client.next_round(after=1)
            held.release.set()
            update = await federator.update()
            assert (update.round, update.base_version, content(update)) == (2, 1, [1, 2, 3])
            assert held.rounds == [1, 2]
            await federator.accept(update, client)
            held.release.clear()
            await federator.announce(3, base=2)
            await client.next_round(after=2)
            see(client, 4, 5)
        async with device(mqtt_broker, path):
            assert content(await federator.update()) == [4, 5]


async def test_an_alteration_that_fails_sends_nothing(mqtt_broker):
    """What it raises on purpose is logged; what nobody foresaw is raised where the client is closed."""

    async def fails(_update, _round):
        raise DataError("no such thing")

    broken = asyncio.Event()

    async def breaks(_update, _round):
        broken.set()
        raise ZeroDivisionError

    async with Federator(mqtt_broker) as federator:
        with capture_logs() as logs:
            async with device(mqtt_broker, alter_update=fails) as client:
                await federator.announce(1)
                await client.next_round()
                see(client, 1, 2)
                await until(lambda: any(line["event"] == "update_not_altered" for line in logs))
                await federator.nothing_on("updates")
        assert [line["cause"] for line in logs if line["event"] == "update_not_altered"] == ["no such thing"]
        client = await device(mqtt_broker, alter_update=breaks).__aenter__()
        await client.next_round()
        see(client, 1, 2)
        await asyncio.wait_for(broken.wait(), PATIENCE_S)
        await federator.nothing_on("updates")
        with pytest.raises(ZeroDivisionError):
            await client.__aexit__(None, None, None)


async def test_in_quarantine_clicks_wait_and_each_round_is_tried_once(mqtt_broker):
    """The application is told once that it began and once that it is over; nothing is lost and nothing is repeated."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        with capture_logs() as logs:
            for number in (1, 2):
                await federator.announce(number, base=number - 1)
                await client.next_round(after=number - 1)
                see(client, number)
                if number == 1:
                    see(client, 9)
                update = await federator.update()
                await federator.receipt(update, ReceiptCode.QUARANTINED, detail="until Monday")
                await until(lambda n=number: client.quarantined and client.n_waiting == n + 1)
                await federator.nothing_on("updates")
            await federator.announce(3, base=2)
            update = await federator.update()
            assert content(update) == [1, 2, 9]
            await federator.receipt(update, ReceiptCode.ACCEPTED)
            await until(lambda: not client.quarantined)
        told = [(line["event"], line.get("detail")) for line in logs if line["event"].startswith("quarantine")]
        assert told == [("quarantined", "until Monday"), ("quarantine_lifted", None)]
