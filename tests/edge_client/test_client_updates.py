"""An update of a device, against real brokers: each click counts once, whatever is lost, late or repeated."""

import pytest
from structlog.testing import capture_logs
from support.federator_by_hand import Federator, content, device, in_round, see, taken_in
from support.waiting import PATIENCE_S, until

from foltr.core.protocol.codec import decode
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.updates import ModelUpdate


async def test_an_update_says_what_was_learned(mqtt_broker):
    """Who, for which round, on which model, from how many interactions; sent as soon as there are enough."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await federator.announce(4, base=3, min_interactions=3)
        await client.next_round()
        see(client, 1, 5)
        await federator.nothing_on("updates")
        see(client, 9)
        update = await federator.update()
        assert (update.federation, update.client_id) == ("mail", "device-7")
        assert (update.round, update.base_version) == (4, 3)
        assert content(update) == [1, 5, 9]


@pytest.mark.usefixtures("resend_fast")
async def test_the_same_bytes_are_resent_until_receipted(mqtt_broker):
    """Nothing but the receipt ends it, and after it the update is not sent again."""
    async with in_round(mqtt_broker) as (federator, client):
        see(client, 1, 2)
        copies = [await federator.next("updates") for _ in range(4)]
        assert len(set(copies)) == 1
        await federator.accept(decode(copies[0], ModelUpdate), client)
        await federator.caught_up_with(client)
        while federator.n_heard("updates"):
            assert await federator.next("updates") == copies[0]
        await federator.nothing_on("updates")
        assert client.receipts == {"accepted": 1}


@pytest.mark.parametrize("code", ["late", "unknown_round", "not_finite"])
async def test_an_update_that_does_not_count_gives_its_interactions_back(mqtt_broker, code):
    """They are in the next round's update, trained on the next model, with those that came since."""
    async with in_round(mqtt_broker) as (federator, client):
        await taken_in(client)
        see(client, 1, 2)
        update = await federator.update()
        see(client, 3)
        await federator.receipt(update, ReceiptCode(code))
        assert not (await client.wait_settled(PATIENCE_S)).is_pending
        assert client.n_waiting == 3
        await federator.nothing_on("updates")
        await federator.announce(2, base=1)
        second = await federator.update()
        assert content(second) == [1, 2, 3]
        assert (second.round, second.base_version) == (2, 1)
        assert second.update_id != update.update_id


async def test_late_news_of_a_round_that_went_on(mqtt_broker):
    """The next round opens before the receipt of the last one arrives: the update is not forgotten, nor doubled."""
    async with in_round(mqtt_broker) as (federator, client):
        see(client, 1, 2)
        first = await federator.update()
        await federator.announce(2, base=1)
        await client.next_round(after=1)
        see(client, 3, 4)
        await federator.nothing_on("updates")
        await federator.receipt(first, ReceiptCode.ACCEPTED)
        assert content(await federator.update()) == [3, 4]


async def test_a_receipt_twice_settles_once(mqtt_broker):
    """The second copy must not settle the update that came after."""
    async with in_round(mqtt_broker) as (federator, client):
        see(client, 1, 2)
        first = await federator.update()
        await federator.accept(first, client)
        await federator.announce(2, base=1)
        await client.next_round(after=1)
        see(client, 3, 4)
        second = await federator.update()
        await federator.receipt(first, ReceiptCode.LATE)
        await until(lambda: client.receipts.get("late") == 1)
        assert not await client.wait_settled(0.05)
        await federator.accept(second, client)
        assert client.n_waiting == 0


async def test_what_counts_no_more_is_learned_again(mqtt_broker):
    """The device is told unasked that its round was abandoned; or any answer tells it, by its watermark."""
    async with in_round(mqtt_broker) as (federator, client):
        see(client, 1, 2)
        first = await federator.update()
        await federator.accept(first, client)
        federator.watermarks.clear()
        await federator.receipt(first, ReceiptCode.ROUND_ABANDONED)
        await until(lambda: client.n_waiting == 2)
        await federator.announce(2)
        again = await federator.update()
        assert (content(again), again.after, again.through) == ([1, 2], 0, 2)
        await federator.accept(again, client)
        await federator.announce(3)
        see(client, 3, 4)
        third = await federator.update()
        assert (content(third), third.after) == ([3, 4], 2)
        federator.watermarks.clear()
        await federator.receipt(third, ReceiptCode.OVERLAPS)
        fourth = await federator.update()
        assert (fourth.round, content(fourth), fourth.after) == (3, [1, 2, 3, 4], 0)


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


async def test_a_device_that_lost_its_store_goes_on_above_what_counted(mqtt_broker):
    """Its clicks of before the first answer get numbers that were never used."""
    async with Federator(mqtt_broker) as federator:
        federator.watermarks["device-7"] = 40
        async with device(mqtt_broker) as client:
            see(client, 1, 2)
            await federator.announce(1)
            update = await federator.update()
            assert (content(update), update.after, update.through) == ([1, 2], 40, 42)


async def test_a_backlog_goes_out_in_parts(mqtt_broker):
    """No more than ``max_interactions`` in one update, the oldest first, the rest in the rounds that follow."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        see(client, *range(7))
        for number, expected in ((1, [0, 1, 2]), (2, [3, 4, 5])):
            await federator.announce(number, base=number, min_interactions=2, max_interactions=3)
            update = await federator.update()
            assert content(update) == expected
            await federator.accept(update, client)
        await federator.announce(3, base=3, min_interactions=2, max_interactions=3)
        await federator.nothing_on("updates")
        see(client, 7)
        assert content(await federator.update()) == [6, 7]
