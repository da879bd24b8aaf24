"""What a client writes to a broker, read again: the packets of MQTT 3.1.1 in a stream of bytes."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum


class PacketType(IntEnum):
    """Those that a client sends."""

    CONNECT = 1
    PUBLISH = 3
    PUBACK = 4
    SUBSCRIBE = 8
    PINGREQ = 12
    DISCONNECT = 14


@dataclass(frozen=True)
class Packet:
    """One packet: what follows its fixed header.

    Attributes:
        flags: the lower half of its first byte.
    """

    type: PacketType
    flags: int
    rest: bytes


@dataclass(frozen=True)
class Published:
    """A message on its way to the broker: published, or left with it as a last will."""

    topic: str
    payload: bytes


def read_packets(stream: bytes) -> Iterator[Packet]:
    """Split a stream into its packets; ValueError where it is no MQTT, or ends within a packet."""
    at = 0
    while at < len(stream):
        first = stream[at]
        length, start = _remaining_length(stream, at + 1)
        at = start + length
        if at > len(stream):
            raise ValueError("the stream ends within a packet")
        yield Packet(PacketType(first >> 4), first & 0x0F, stream[start:at])


def published_in(packet: Packet) -> Published | None:
    """Return the message in a packet, the last will of a CONNECT too; None where there is none."""
    if packet.type == PacketType.PUBLISH:
        topic, at = _string(packet.rest, 0)
        return Published(topic.decode(), packet.rest[at + (2 if packet.flags & 0x06 else 0) :])
    if packet.type == PacketType.CONNECT:
        return last_will(packet.rest)
    return None


def last_will(connect: bytes) -> Published | None:
    """Return what the broker is to publish if the connection is lost."""
    if connect[:7] != b"\x00\x04MQTT\x04":
        raise ValueError("not MQTT 3.1.1")
    if not connect[7] & 0x04:
        return None
    _, at = _string(connect, 10)  # after the flags come two bytes of keepalive, then the client's id
    topic, at = _string(connect, at)
    payload, _ = _string(connect, at)
    return Published(topic.decode(), payload)


def _remaining_length(stream: bytes, at: int) -> tuple[int, int]:
    """Return a number of at most four bytes, seven bits each, least first, and where it ends."""
    length = 0
    for place, byte in enumerate(stream[at : at + 4]):
        length |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return length, at + place + 1
    raise ValueError("the length of a packet is cut short")


def _string(data: bytes, at: int) -> tuple[bytes, int]:
    start = at + 2
    end = start + int.from_bytes(data[at:start], "big")
    return data[start:end], end
