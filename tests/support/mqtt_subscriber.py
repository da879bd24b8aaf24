"""A client of MQTT 3.1.1 that does nothing but subscribe: to as many filters as it likes, and it reads the answers."""

import itertools
import socket
import struct
import time
from collections.abc import Iterator
from typing import Self

from support.waiting import PATIENCE_S

from foltr.broker.address import BrokerAddress
from foltr.broker.tls import client_context
from foltr.core.operator.credentials import BrokerAccess

_CONNECT, _SUBSCRIBE, _SUBACK = 0x10, 0x82, 9
# As deep as Mosquitto takes, nearly: each level of a filter takes memory.
_LEVELS = 190
# More than a broker with a limit of 2 GiB grants; after these they come again.
_MOST_FILTERS = 60_000
_LEAST_EACH = 25


def deep_filters(n_levels: int = _LEVELS) -> Iterator[str]:
    """Endless filters, no two alike from the first level on."""
    return ("/".join([f"{i:x}", *"x" * (n_levels - 1)]) for i in itertools.count())


class Subscriber:
    """A connection of its own; use as a context manager."""

    def __init__(self, credentials: BrokerAccess, *, clean_session: bool = True, client_id: str | None = None) -> None:
        address = BrokerAddress.of(credentials)
        self._credentials, self._clean = credentials, clean_session
        self._socket: socket.socket = socket.create_connection((address.host, address.port), timeout=PATIENCE_S)
        if address.tls:
            context = client_context(address.tls_material)
            self._socket = context.wrap_socket(self._socket, server_hostname=address.host)
        self._client_id = client_id or credentials.username or "subscriber"
        self._numbers = itertools.cycle(range(1, 65536))

    def __enter__(self) -> Self:
        user, password = self._credentials.username, self._credentials.password
        flags = (2 if self._clean else 0) | (0x80 if user else 0) | (0x40 if password else 0)
        said = [self._client_id, *([user] if user else []), *([password] if password else [])]
        rest = _string("MQTT") + bytes([4, flags]) + struct.pack(">H", 60) + b"".join(map(_string, said))
        try:
            self._socket.sendall(_packet(_CONNECT, rest))
            if self._read_packet()[1][1] != 0:
                raise ConnectionRefusedError("not let in")
        except OSError:
            self._socket.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def granted(self, *filters: str) -> list[bool]:
        return self.asked(_subscribe(next(self._numbers), filters))

    def asked(self, packet: bytes) -> list[bool]:
        self._socket.sendall(packet)
        while True:
            kind, rest = self._read_packet()
            if kind == _SUBACK:
                return [code < 0x80 for code in rest[2:]]

    def _read_packet(self) -> tuple[int, bytes]:
        kind, length, shift = self._read(1)[0] >> 4, 0, 0
        while True:
            byte = self._read(1)[0]
            length, shift = length | (byte & 0x7F) << shift, shift + 7
            if not byte & 0x80:
                return kind, self._read(length)

    def _read(self, n: int) -> bytes:
        content = b""
        while len(content) < n:
            part = self._socket.recv(n - len(content))
            if not part:
                raise ConnectionResetError("the broker has ended the connection")
            content += part
        return content


def flood(access: BrokerAccess, seconds: float, each: int = 1000) -> tuple[int, int]:
    """Subscribe for so long, with fewer in each packet if the broker hangs up; how many it answered, and granted."""
    # Made before: who attacks is not to take the processor from those who are attacked.
    filters = list(itertools.islice(deep_filters(), _MOST_FILTERS))
    packets = _packets(filters, each)
    ends_at, n_sent, n_granted = time.monotonic() + seconds, 0, 0  # clock: stand-in
    while time.monotonic() < ends_at:  # clock: stand-in
        try:
            with Subscriber(access, clean_session=False) as subscriber:
                for packet in itertools.cycle(packets):
                    if time.monotonic() > ends_at:  # clock: stand-in
                        break
                    granted = subscriber.asked(packet)
                    n_sent, n_granted = n_sent + len(granted), n_granted + sum(granted)
        except ConnectionRefusedError:
            break
        except OSError:
            if each > _LEAST_EACH:
                each = max(_LEAST_EACH, each // 2)
                packets = _packets(filters, each)
    return n_sent, n_granted


def _packets(filters: list[str], each: int) -> list[bytes]:
    return [_subscribe(1, tuple(filters[i : i + each])) for i in range(0, len(filters), each)]


def _string(text: str) -> bytes:
    return struct.pack(">H", len(text.encode())) + text.encode()


def _packet(first: int, rest: bytes) -> bytes:
    length, left = b"", len(rest)
    while True:
        left, digit = left >> 7, left & 0x7F
        length += bytes([digit | (0x80 if left else 0)])
        if not left:
            return bytes([first]) + length + rest


def _subscribe(number: int, filters: tuple[str, ...]) -> bytes:
    rest = struct.pack(">H", number) + b"".join(_string(each) + b"\x01" for each in filters)
    return _packet(_SUBSCRIBE, rest)
