"""Packets of MQTT 3.1.1: what is read many at once is what was written, wherever the network cut it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foltr.broker.packets import MalformedError, message_packets, read_message, split_packets

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
