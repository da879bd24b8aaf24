"""What a client writes to a broker, read again: the packets of MQTT 3.1.1 in a stream of bytes."""

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple


class PacketType(IntEnum):
    CONNECT = 1
    PUBLISH = 3
    PUBACK = 4
    SUBSCRIBE = 8
    PINGREQ = 12
    DISCONNECT = 14


class Packet(NamedTuple):
    """One packet: the lower half of its first byte, and what follows its fixed header."""

    type: PacketType
    flags: int
    rest: bytes


class Published(NamedTuple):
    """A message on its way to the broker: published, or left with it as a last will."""

    topic: str
    payload: bytes


def read_packets(stream: bytes) -> Iterator[Packet]:
    """Split a stream into its packets; ValueError where it is no MQTT, or ends within a packet."""
    at = 0
    while at < len(stream):
        first = stream[at]
        # A number of at most four bytes, seven bits each, least first.
        n_bytes = next((n for n in range(1, 5) if stream[at + n : at + n + 1] < b"\x80"), 4)
        length = sum((byte & 0x7F) << 7 * i for i, byte in enumerate(stream[at + 1 : at + 1 + n_bytes]))
        start, at = at + 1 + n_bytes, at + 1 + n_bytes + length
        if at > len(stream):
            raise ValueError("the stream ends within a packet")
        yield Packet(PacketType(first >> 4), first & 0x0F, stream[start:at])


def published_in(packet: Packet) -> Published | None:
    """Return the message in a packet, the last will of a CONNECT too; None where there is none."""
    if packet.type == PacketType.PUBLISH:
        topic, at = _string(packet.rest, 0)
        return Published(topic.decode(), packet.rest[at + (2 if packet.flags & 0x06 else 0) :])
    if packet.type != PacketType.CONNECT:
        return None
    if packet.rest[:7] != b"\x00\x04MQTT\x04":
        raise ValueError("not MQTT 3.1.1")
    if not packet.rest[7] & 0x04:
        return None
    _, at = _string(packet.rest, 10)  # after the flags come two bytes of keepalive, then the client's id
    topic, at = _string(packet.rest, at)
    return Published(topic.decode(), _string(packet.rest, at)[0])


def _string(data: bytes, at: int) -> tuple[bytes, int]:
    start = at + 2
    end = start + int.from_bytes(data[at:start], "big")
    return data[start:end], end
