"""What a link sends past paho-mqtt: at once where the socket takes it, in order where it does not."""

import asyncio

from support.broker_links import Inbox, connected


async def test_messages_in_order_are_sent_one_by_one_and_acknowledged_together(mqtt_broker):
    """The next one is asked for when the one before is with the socket: whoever asks may die in between."""
    inbox, heard = Inbox(), []

    def messages():
        for i in range(5):
            yield "t/x", b"%d" % i
            heard.append(not inbox.empty)

    async with connected(mqtt_broker, "a", inbox, ["t/+"]), connected(mqtt_broker, "b") as sender:
        await sender.publish_in_order(messages())
        assert heard == [False] * 5  # nobody waited for an acknowledgement
        assert await inbox.payloads(5) == [b"%d" % i for i in range(5)]


async def test_what_the_socket_does_not_take_at_once_stays_in_order_with_what_follows(mqtt_broker):
    """However large it is. Where many wait for a listener, a broker may let those of QoS 0 pass those of QoS 1."""
    inbox = Inbox()
    large = [bytes([i]) * 200_000 for i in range(40)]
    async with connected(mqtt_broker, "a", inbox, ["t/+"]), connected(mqtt_broker, "b") as sender:
        sending = [asyncio.create_task(sender.publish("t/x", payload)) for payload in large]
        sending.append(asyncio.create_task(sender.publish_at_most_once([("t/x", b"then"), ("t/x", b"this")])))
        sending.append(asyncio.create_task(sender.publish("t/x", b"at last")))
        await asyncio.gather(*sending)
        payloads = await inbox.payloads(43)
    assert [one for one in payloads if one not in (b"then", b"this")] == [*large, b"at last"]
    assert [one for one in payloads if one in (b"then", b"this")] == [b"then", b"this"]


async def test_whoever_sends_without_end_keeps_nobody_from_the_event_loop(mqtt_broker):
    """Notices may be a hundred thousand; meanwhile a lease is to be renewed, and updates are to be read."""
    n_turns, n_sent = 0, 200

    async def others():
        nonlocal n_turns
        while True:
            await asyncio.sleep(0)
            n_turns += 1

    async with connected(mqtt_broker, "b") as sender:
        turning = asyncio.create_task(others())
        await asyncio.sleep(0)
        before = n_turns
        for i in range(n_sent):
            await sender.publish_at_most_once([("t/x", b"%d" % i)])
        turning.cancel()
    assert n_turns - before >= n_sent
