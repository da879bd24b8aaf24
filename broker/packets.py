"""Reads and writes many messages at once on an MQTT 3.1.1 connection; everything else is left to paho-mqtt.

paho-mqtt makes three system calls and a dozen objects for each packet it reads; to send one it waits for a turn of the
event loop and for the socket to be writable. Here one call reads all that has arrived, and messages go to the socket at
once. What the socket does not take, packets of other kinds, and connections in MQTT 5 are left to paho-mqtt.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable

import aiomqtt
from paho.mqtt.client import MQTT_LOG_ERR, Client
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.exception import MalformedPacket
from paho.mqtt.packettypes import PacketTypes

_AT_ONCE = 64 * 1024
_LONGEST_LENGTH = 4  # bytes of a packet's length
_QOS, _QOS_1, _QOS_2 = 0b0110, 0b0010, 0b0100
_RETAIN = 0b0001
_PUBLISH = PacketTypes.PUBLISH << 4
_PUBACK = PacketTypes.PUBACK << 4
_PUBACK_HEAD = bytes((_PUBACK, 2))


class MalformedError(ValueError):
    """Bytes that are not an MQTT packet."""


def split_packets(data: bytes | bytearray) -> tuple[list[tuple[int, int, int]], int]:
    """Find the whole packets: for each the first byte, the start of its body, and its end.

    Returns:
        The packets, and the start of the one that is not whole yet.

    Raises:
        MalformedError: a length of more than four bytes.
    """
    found: list[tuple[int, int, int]] = []
    at, n_bytes = 0, len(data)
    while at + 2 <= n_bytes:
        body, length, shift = at + 1, 0, 0
        while True:
            if body == n_bytes:
                return found, at
            byte = data[body]
            body += 1
            length |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift == 7 * _LONGEST_LENGTH:
                raise MalformedError("a packet's length has more than four bytes")
        if body + length > n_bytes:
            break
        found.append((data[at], body, body + length))
        at = body + length
    return found, at


def read_message(first: int, data: bytes | bytearray, begin: int, end: int) -> tuple[str, bytes, bytes]:
    """Read a PUBLISH of QoS 0 or 1: its topic, its payload, and its acknowledgement, empty at QoS 0.

    Raises:
        MalformedError: it is shorter than it says, or its topic is not text.
    """
    payload = begin + 2 + int.from_bytes(data[begin : begin + 2], "big")
    acknowledgement = b""
    if first & _QOS:
        acknowledgement = _PUBACK_HEAD + data[payload : payload + 2]
        payload += 2
    if payload > end or end < begin + 2:
        raise MalformedError("a message ends before its payload")
    try:
        topic = str(data[begin + 2 : payload - 2 if acknowledgement else payload], "utf-8")
    except UnicodeDecodeError as error:
        raise MalformedError("a topic is not UTF-8") from error
    return topic, bytes(data[payload:end]), acknowledgement


def message_packets(messages: Iterable[tuple[str, bytes]]) -> bytes:
    """Write messages, each a topic and a payload, as PUBLISH packets of QoS 0."""
    pieces: list[bytes] = []
    for topic, payload in messages:
        name = topic.encode()
        head = _head(_PUBLISH, 2 + len(name) + len(payload))
        pieces += (head, len(name).to_bytes(2, "big"), name, payload)
    return b"".join(pieces)


def acknowledged_packet(topic: str, payload: bytes, number: int, *, retain: bool) -> bytes:
    """Write a message as a PUBLISH packet of QoS 1, which the broker acknowledges by its number (1 to 65,535)."""
    name = topic.encode()
    head = _head(_PUBLISH | _QOS_1 | (_RETAIN if retain else 0), 4 + len(name) + len(payload))
    return b"".join((head, len(name).to_bytes(2, "big"), name, number.to_bytes(2, "big"), payload))


def _head(first: int, length: int) -> bytes:
    head = bytearray((first,))
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head)


class PacketStream:
    """Receives and sends for a connection of MQTT 3.1.1, in the event loop that it is made in.

    Args:
        client: the connected client, which reads through this object from now on.
        take: called with each message: topic, payload, and whether it was retained.
    """

    def __init__(self, client: aiomqtt.Client, take: Callable[[str, bytes, bool], None]) -> None:
        # Neither library has a public API to read more than a packet at once, or to write without waiting.
        self._paho: Client = client._client  # noqa: SLF001
        self._paho.loop_read = self._read  # type: ignore[method-assign]
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._waiting = bytearray()  # the beginning of a packet
        self._unacknowledged: dict[int, asyncio.Future[None]] = {}

    async def publish(self, messages: Iterable[tuple[str, bytes]], *, retain: bool) -> None:
        """Send messages of QoS 1 as the iterable yields them, and wait until all are acknowledged.

        If the connection ends before that, it waits for ever.
        """
        numbers: list[int] = []
        try:
            for topic, payload in messages:
                number = self._paho._mid_generate()  # noqa: SLF001
                numbers.append(number)
                self._unacknowledged[number] = self._loop.create_future()
                self._write(acknowledged_packet(topic, payload, number, retain=retain))
            for number in numbers:
                await self._unacknowledged[number]
        finally:
            for number in numbers:
                self._unacknowledged.pop(number, None)

    async def send(self, messages: Iterable[tuple[str, bytes]]) -> None:
        """Send messages of QoS 0, each a topic and a payload, and wait until the socket has taken all of them."""
        written = self._write(message_packets(messages))
        if written is not None:
            await written
        else:
            # No await so far: without this, sending a hundred thousand messages would block the loop.
            await asyncio.sleep(0)

    def _write(self, packets: bytes) -> asyncio.Future[None] | None:
        """Write packets to the socket; return the rest, which paho-mqtt writes later."""
        paho, n_written = self._paho, 0
        if not paho._out_packet:  # noqa: SLF001 (else these would overtake the waiting ones)
            # It may take nothing now, or be closed; paho-mqtt notices and reports that too.
            with contextlib.suppress(OSError):
                n_written = paho._sock_send(packets)  # noqa: SLF001
        if n_written == len(packets):
            with paho._msgtime_mutex:  # noqa: SLF001
                paho._last_msg_out = time.monotonic()  # noqa: SLF001
            return None
        rest = _QueuedWrite(self._loop.create_future())
        paho._packet_queue(_PUBLISH, packets[n_written:], 0, 0, rest)  # type: ignore[arg-type]  # noqa: SLF001
        return rest.written

    def _read(self, max_packets: int = 1) -> MQTTErrorCode:  # noqa: ARG002 (paho-mqtt's, which ignores it too)
        """Read what has arrived and handle every whole packet; return what paho-mqtt returns for an error."""
        paho = self._paho
        if paho._sock is None:  # noqa: SLF001
            return MQTTErrorCode.MQTT_ERR_NO_CONN
        try:
            data: bytes | bytearray = paho._sock_recv(_AT_ONCE)  # noqa: SLF001
        except BlockingIOError:
            return MQTTErrorCode.MQTT_ERR_SUCCESS
        except OSError as error:
            # In paho-mqtt's wording: `foltr.broker.failures.DisconnectCapture` finds the cause in the log.
            paho._easy_log(MQTT_LOG_ERR, "failed to receive on socket: %s", error)  # noqa: SLF001
            data = b""
        code = MQTTErrorCode.MQTT_ERR_CONN_LOST
        if data:
            with paho._msgtime_mutex:  # noqa: SLF001
                paho._last_bytes_received = time.monotonic()  # noqa: SLF001
            if self._waiting:
                self._waiting += data
                data = self._waiting
            try:
                code = self._handle_packets(data)
            except (MalformedError, MalformedPacket):
                code = MQTTErrorCode.MQTT_ERR_PROTOCOL
        return code if code == MQTTErrorCode.MQTT_ERR_SUCCESS else paho._loop_rc_handle(code)  # noqa: SLF001

    def _handle_packets(self, data: bytes | bytearray) -> MQTTErrorCode:
        acknowledgements: list[bytes] = []
        packets, rest = split_packets(data)
        for first, begin, end in packets:
            if first & 0xF0 == _PUBLISH and not first & _QOS_2:
                topic, payload, acknowledgement = read_message(first, data, begin, end)
                self._take(topic, payload, bool(first & _RETAIN))
                if acknowledgement:
                    acknowledgements.append(acknowledgement)
            elif first == _PUBACK and (number := int.from_bytes(data[begin:end], "big")) in self._unacknowledged:
                acknowledged = self._unacknowledged[number]
                if not acknowledged.done():  # else nobody waits for it any longer
                    acknowledged.set_result(None)
            elif code := self._delegate_to_paho(first, data[begin:end]):
                return code
        if acknowledgements and self._paho._sock is not None:  # noqa: SLF001
            self._write(b"".join(acknowledgements))
        if data is self._waiting:
            # In place: a large packet comes in many pieces, and must not be copied for each.
            del self._waiting[:rest]
        else:
            self._waiting += data[rest:]
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _delegate_to_paho(self, first: int, body: bytes | bytearray) -> MQTTErrorCode:
        """Let paho-mqtt handle a packet as if it had read it itself."""
        self._paho._in_packet = {  # noqa: SLF001
            "command": first,
            "have_remaining": 1,
            "remaining_count": [],
            "remaining_mult": 1,
            "remaining_length": len(body),
            "packet": bytearray(body),
            "to_process": 0,
            "pos": 0,
        }
        return self._paho._packet_handle()  # noqa: SLF001


class _QueuedWrite:
    """The part that paho-mqtt writes later; paho-mqtt notifies it as it would a message's waiter."""

    def __init__(self, written: asyncio.Future[None]) -> None:
        self.written = written

    def _set_as_published(self) -> None:
        if not self.written.done():
            self.written.set_result(None)
