"""Packets past paho-mqtt: read as they were written, sent in order, and how long a link waits for the broker."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from integration.tcp_proxy import TcpProxy
from support.broker_links import Inbox, connected
from support.waiting import PATIENCE_S

from foltr.broker import pending_calls
from foltr.broker.packets import MalformedError, message_packets, read_message, split_packets
from foltr.broker.pending_calls import PendingCalls
from foltr.core.errors import UnavailableError

TOPIC = "foltr/v1/a/clients/b/updates"


def read_all(data: bytes) -> tuple[list[tuple[str, bytes, bytes]], int]:
    packets, rest = split_packets(data)
    return [read_message(first, data, begin, end) for first, begin, end in packets], rest


@settings(derandomize=True)
@given(st.lists(st.tuples(st.text(min_size=1, max_size=40), st.binary(max_size=300)), max_size=8), st.data())
def test_messages_are_read_as_they_were_written_wherever_they_were_cut(messages, data):
    """A read may end in the middle of any packet: what is whole is taken once, and the rest waits for more."""
    written = message_packets(messages)
    cut = data.draw(st.integers(0, len(written)))
    first, rest = read_all(written[:cut])
    second, none_left = read_all(written[rest:])
    assert [(topic, payload) for topic, payload, _ in first + second] == messages
    assert none_left == len(written) - rest


@pytest.mark.parametrize("n_bytes", [0, 95, 96, 16_351, 16_352, 200_000])
def test_lengths_are_written_in_as_many_bytes_as_they_need(n_bytes):
    """Around 2^7 and 2^14 a packet's length takes another byte."""
    [(topic, payload, acknowledgement)], rest = read_all(message_packets([(TOPIC, bytes(n_bytes))]))
    assert (topic, len(payload), acknowledgement) == (TOPIC, n_bytes, b"")
    assert rest == len(message_packets([(TOPIC, bytes(n_bytes))]))


def test_a_message_of_qos_1_is_acknowledged_by_its_number():
    """The acknowledgement is PUBACK with the two bytes that the broker gave the message."""
    packet = bytes((0b0011_0010, 9)) + b"\x00\x03a/b" + b"\x12\x34" + b"xy"
    assert read_all(packet) == ([("a/b", b"xy", b"\x40\x02\x12\x34")], len(packet))


@pytest.mark.parametrize(
    "packet",
    [
        b"\x30\xff\xff\xff\xff\x01",  # a length of five bytes
        b"\x30\x01\x00",  # no room for the length of a topic
        b"\x30\x03\x00\x09a",  # a topic longer than the packet
        b"\x32\x04\x00\x02ab",  # no number to acknowledge it by
        b"\x30\x04\x00\x02\xff\xfe",  # a topic that is no text
    ],
)
def test_bytes_that_are_no_packet_are_refused(packet):
    """They end the connection: what comes after them cannot be told from them."""
    with pytest.raises(MalformedError):
        read_all(packet)


async def test_messages_in_order_are_sent_one_by_one_and_acknowledged_together(mqtt_broker):
    """The link asks for the next message once the socket has the one before, so a caller may die in between."""
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


LARGE = bytes(200_000)


@pytest.fixture
async def proxy(mosquitto_server, monkeypatch):
    """A line of a megabyte a second, a thousand times what one must have: no slow machine makes it too slow."""
    monkeypatch.setattr(pending_calls, "SLOWEST_BYTES_PER_S", 1_000)
    async with TcpProxy(mosquitto_server.port) as proxy:
        proxy.bytes_per_s = 1_000_000
        yield proxy


def link_over(proxy):
    """A link that gives every message a tenth of a second, without more for large ones."""
    return connected(proxy.url, "b", timeout_s=0.1)  # clock: runs out


async def test_what_is_large_has_the_time_that_a_slow_line_takes(mosquitto_server, proxy):
    """And what follows a large model in one call, such as the round that is to be learned in, comes with it."""
    inbox = Inbox()
    async with connected(mosquitto_server.url, "a", inbox, ["t/+"]), link_over(proxy) as link:
        await link.publish_in_order([("t/model", LARGE), ("t/round", b"open")])
        assert await inbox.payloads(2) == [LARGE, b"open"]


async def test_what_waits_behind_something_large_has_its_time_too(mosquitto_server, proxy):
    """It is not late for what was given to the socket before it."""
    inbox = Inbox()
    async with connected(mosquitto_server.url, "a", inbox, ["t/+"]), link_over(proxy) as link:
        await asyncio.gather(link.publish("t/1", LARGE), link.publish("t/2", LARGE), link.publish("t/3", b"small"))
        assert await inbox.payloads(3) == [LARGE, LARGE, b"small"]


async def test_a_line_that_carries_nothing_is_waited_for_no_longer(proxy, monkeypatch):
    """However much is to be sent: so much longer, and not for ever."""
    monkeypatch.setattr(pending_calls, "SLOWEST_BYTES_PER_S", 100_000)
    async with link_over(proxy) as link, asyncio.timeout(PATIENCE_S):
        proxy.stall()
        before = asyncio.get_running_loop().time()
        with pytest.raises(UnavailableError, match="no acknowledgement"):
            await link.publish("t", bytes(50_000))
        assert asyncio.get_running_loop().time() - before > 0.5
        proxy.resume()


async def test_waits_end_with_their_connection():
    """What it did not acknowledge nobody will; and a wait that is over stays so."""
    running = PendingCalls(10.0)

    async def call():
        async with running.bounded() as wait:
            messages = wait.extended_for([("t", LARGE), ("t", LARGE)])
            next(messages)
            try:
                await asyncio.Event().wait()
            finally:
                next(messages)

    calls = [asyncio.create_task(call()) for _ in range(2)]
    await asyncio.sleep(0)
    running.end()
    assert [type(error) for error in await asyncio.gather(*calls, return_exceptions=True)] == [TimeoutError] * 2
