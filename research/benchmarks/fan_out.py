"""What each connected device costs Mosquitto: to connect, to stay, and to receive an announcement of a given size.

Run: python research/benchmarks/fan_out.py [--connections 1000 3000] [--tls none|tls] [--bytes 1000 20000] [--json FILE]

The broker is configured by ``foltr broker config``. The connections are bare sockets of one process: they subscribe
like a device, acknowledge what they get, and do nothing else. With TLS each has a user name and a password, and the
broker has its access list. Announcements are published like the federator's, retained and with QoS 1, each one after
all connections have the one before.

The figure is Mosquitto's CPU time, because it works on one core, which limits it, and the other processes of this
program share the machine. The JSON file has a list with an object for each number of connections:

    n, tls
    connect_ms     CPU time for a connection with its subscriptions; with TLS mostly handshake and password
    connected_mb   additional resident memory, in 10^6 bytes, when all are connected
    ping_ms        CPU time for a keepalive
    deliveries     for each size: bytes of the payload; cpu_ms, CPU time for each connection that gets it; wall_ms,
                   until the last one has it; peak_mb, additional memory of the broker meanwhile
"""

import argparse
import select
import socket
import ssl
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

import psutil
from bare_exchange import connected
from command_line import parser_of, write_json
from servers import FEDERATION, HERE, Servers, Tls, Watch, describe_machine, read_devices, write_devices

from foltr.broker.address import BrokerAddress
from foltr.broker.packets import split_packets
from foltr.broker.tls import client_context
from foltr.core.operator.credentials import FEDERATOR_USER
from foltr.core.protocol.topics import ClientTopic, Topics

_TOPICS = Topics(FEDERATION)
_CONNECT, _CONNACK, _PUBLISH, _PUBACK, _SUBSCRIBE, _SUBACK, _PING, _PONG = (n << 4 for n in (1, 2, 3, 4, 8, 9, 12, 13))
# At least this many are counted, since the kernel counts CPU time in steps of 10 ms.
_LEAST_COUNTED = 15_000
_TIMEOUT_S = 120.0
_SETTLE_S = 0.3


@dataclass(frozen=True)
class Delivery:
    """One announcement to all; explained at the top of this file."""

    bytes: int
    cpu_ms: float
    wall_ms: float
    peak_mb: float


@dataclass
class FanOut:
    """One line of the result; its fields are explained at the top of this file."""

    n: int
    tls: str
    connect_ms: float = 0.0
    connected_mb: float = 0.0
    ping_ms: float = 0.0
    deliveries: list[Delivery] = field(default_factory=list)

    def __str__(self) -> str:
        of_sizes = ", ".join(
            f"{one.bytes:,} bytes {1e3 * one.cpu_ms:.1f} us, +{one.peak_mb:.0f} MB" for one in self.deliveries
        )
        return (
            f"{self.n:6,} connections, {self.tls}: connect {self.connect_ms:.3f} ms, "
            f"{1e3 * self.connected_mb / self.n:.1f} kB each, ping {1e3 * self.ping_ms:.1f} us; a delivery: {of_sizes}"
        )


# --- the connections, in a separate process ---------------------------------------------------------------------


def device_filters(name: str) -> list[str]:
    """Return a device's subscriptions."""
    topics = _TOPICS
    return [
        *(topics.operator_key, topics.federator_key, topics.policy, topics.schema, topics.authorities, topics.anchor),
        *(topics.evaluation, topics.pace, topics.model, topics.round, topics.unlearning_round, topics.federator_status),
        *(topics.audit_head, topics.client(name, ClientTopic.INBOX)),
    ]


def packet(kind: int, body: bytes) -> bytes:
    """Return an MQTT control packet."""
    length, left = bytearray(), len(body)
    while True:
        left, digit = divmod(left, 128)
        length.append(digit | (0x80 if left else 0))
        if not left:
            return bytes([kind]) + bytes(length) + body


def text(value: str) -> bytes:
    """Return a string in MQTT encoding."""
    encoded = value.encode()
    return struct.pack(">H", len(encoded)) + encoded


class Connections:
    """Bare connections to a broker, read without blocking."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self._unread: dict[int, bytearray] = {}
        self._context: ssl.SSLContext | None = None

    def open(self, name: str, address: BrokerAddress) -> None:
        """Connect and subscribe as a device. Returns when the broker has granted it."""
        connection = socket.create_connection((address.host, address.port), timeout=_TIMEOUT_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if address.tls:
            # One context for all: reading the authority's certificate repeatedly would be most of this process's work.
            self._context = self._context or client_context(address.tls_material)
            connection = self._context.wrap_socket(connection, server_hostname=address.host)
        flags, login = 0x02, text(f"foltr:{FEDERATION}:{name}")  # a clean session, like a device's
        if address.username is not None:
            flags, login = flags | 0xC0, login + text(address.username) + text(address.password or "")
        # Without a keepalive: its cost is measured separately.
        connection.sendall(packet(_CONNECT, text("MQTT") + bytes([4, flags, 0, 0]) + login))
        wanted = b"".join(text(one) + b"\x01" for one in device_filters(name))
        connection.sendall(packet(_SUBSCRIBE | 2, b"\x00\x01" + wanted))
        unread = bytearray()
        kinds: list[int] = []
        while _SUBACK not in kinds:
            unread += connection.recv(65_536)
            packets, rest = split_packets(unread)
            kinds += [first for first, _, _ in packets]
            del unread[:rest]
        assert kinds[0] == _CONNACK, kinds
        connection.setblocking(False)
        self._sockets[connection.fileno()], self._unread[connection.fileno()] = connection, unread
        self._poll.register(connection.fileno(), select.EPOLLIN)

    def ping(self) -> None:
        for connection in self._sockets.values():
            connection.send(packet(_PING, b""))

    def wait_for(self, kind: int, n: int) -> None:
        """Read and acknowledge messages until ``n`` packets of this kind have arrived."""
        give_up_at = time.monotonic() + _TIMEOUT_S
        while n > 0:
            assert time.monotonic() < give_up_at, f"{n} packets have not come"
            for number, _ in self._poll.poll(1.0):
                n -= self._read(number, kind)

    def _read(self, number: int, wanted: int) -> int:
        connection, unread = self._sockets[number], self._unread[number]
        n = 0
        while True:
            try:
                data = connection.recv(262_144)
            except (BlockingIOError, ssl.SSLWantReadError):
                return n
            assert data, "the broker has ended a connection"
            unread += data
            packets, rest = split_packets(unread)
            for first, begin, _ in packets:
                if first & 0xF0 == _PUBLISH and first & 0x06:
                    after_topic = begin + 2 + int.from_bytes(unread[begin : begin + 2], "big")
                    connection.send(packet(_PUBACK, bytes(unread[after_topic : after_topic + 2])))
                n += first & 0xF0 == wanted
            del unread[:rest]


def hold(devices: Sequence[dict[str, Any]]) -> None:
    """Open a connection for each device, then follow standard input: ``messages`` or ``pings``, once for all."""
    connections = Connections()
    for device in devices:
        if "credentials" in device:
            connections.open(device["credentials"].name, BrokerAddress.of(device["credentials"].broker))
        else:
            connections.open(device["client_id"], BrokerAddress.parse(device["broker"]))
    print(f"{len(devices)} connected", flush=True)
    for line in sys.stdin:
        match line.strip():
            case "messages":
                connections.wait_for(_PUBLISH, len(devices))
            case "pings":
                connections.ping()
                connections.wait_for(_PONG, len(devices))
            case other:
                raise ValueError(other)
        print(time.time(), flush=True)


# --- what is measured -------------------------------------------------------------------------------------------


def measure(n: int, tls: Tls, sizes: Sequence[int]) -> FanOut:
    """Connect ``n`` devices, and send them announcements of each size."""
    result = FanOut(n, str(tls))
    with (
        tempfile.TemporaryDirectory(prefix="foltr-fan-out-") as name,
        Servers(Path(name), tls=tls, signed=tls is not Tls.NONE) as servers,
    ):
        write_devices(servers.folder / "devices", servers.enrol([f"device-{i:06}" for i in range(n)]))
        access = servers.service("federator")
        broker = servers.start_broker()
        handle = psutil.Process(broker.pid)
        with connected(access, FEDERATOR_USER, [_TOPICS.operator], lambda _message: None) as federator:
            rss_before, cpu_before = handle.memory_info().rss, cpu_seconds(handle)
            words = [str(HERE / "fan_out.py"), "--hold", str(servers.folder / "devices")]
            holder = servers.start([sys.executable, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            assert holder.stdout.readline().endswith("connected\n")
            time.sleep(_SETTLE_S)
            result.connect_ms = 1e3 * (cpu_seconds(handle) - cpu_before) / n
            result.connected_mb = (handle.memory_info().rss - rss_before) / 1e6
            cpu_before = cpu_seconds(handle)
            n_times = times_for(n)
            for _ in range(n_times):
                ask(holder, "pings")
            result.ping_ms = 1e3 * (cpu_seconds(handle) - cpu_before) / (n * n_times)
            with Watch({"broker": broker}) as watch:
                for size in sizes:
                    result.deliveries.append(_deliver(n, size, federator, holder, handle, watch))
        holder.stdin.close()
        holder.wait(timeout=30)
    return result


def _deliver(
    n: int, size: int, federator: Any, holder: subprocess.Popen[str], handle: psutil.Process, watch: Watch
) -> Delivery:
    began, wall_s = time.time(), []
    cpu_before, rss_before = cpu_seconds(handle), handle.memory_info().rss
    n_times = times_for(n)
    for _ in range(n_times):
        holder.stdin.write("messages\n")
        holder.stdin.flush()
        started = time.time()
        federator.publish(_TOPICS.model, bytes(size), qos=1, retain=True)
        wall_s.append(float(holder.stdout.readline()) - started)
    time.sleep(_SETTLE_S)  # the last acknowledgements
    cpu_s = cpu_seconds(handle) - cpu_before
    times, memory = watch.memory("broker")
    peak = float(memory[times >= began].max())
    return Delivery(size, 1e3 * cpu_s / (n * n_times), 1e3 * statistics.median(wall_s), peak - rss_before / 1e6)


def times_for(n: int) -> int:
    """Return how often an action is repeated for n connections."""
    return max(3, -(-_LEAST_COUNTED // n))


def ask(holder: subprocess.Popen[str], what: str) -> None:
    stdin: IO[str] = holder.stdin
    stdin.write(f"{what}\n")
    stdin.flush()
    assert holder.stdout.readline(), "the connections were lost"


def cpu_seconds(handle: psutil.Process) -> float:
    return float(sum(handle.cpu_times()[:2]))


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--connections", type=int, nargs="+", default=[1000, 3000, 5000])
    parser.add_argument("--tls", type=Tls, choices=[Tls.NONE, Tls.TLS], default=Tls.TLS)
    parser.add_argument("--bytes", type=int, nargs="+", default=[1000, 20_000, 80_000])
    parser.add_argument("--hold", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.hold is not None:
        hold(read_devices(options.hold))
        return
    print(describe_machine())
    results = []
    for n in options.connections:
        results.append(measure(n, options.tls, options.bytes))
        print(results[-1], flush=True)
    write_json(options.json, [asdict(result) for result in results])


if __name__ == "__main__":
    main()
