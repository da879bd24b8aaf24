"""Hundreds of real clients come and go for minutes: does memory grow, does a round hang, is anything lost?

Run: python research/benchmarks/soak.py [--clients 200] [--minutes 20] [--db postgresql://...] [--tls none|tls|mtls]

Every client is an `EdgeClient` with its own connection, signature and store on disk, in ten processes; federator and
Mosquitto are separate processes. Every minute one of the ten groups goes, in one of three ways: it is killed with
SIGKILL, so its connections end without a goodbye, and returns after a few seconds with the same stores; it leaves the
federation and is replaced by new clients; or it leaves and joins again. A listener on the broker hears every receipt of
the federator.

Measured: resident memory of federator and broker, with a slope and its interval after a warm-up third; rounds,
receipts, the longest round. Checked (exit code 1): rounds end by their deadlines; the updates with an accepted receipt
are those that are stored, each once; every model contains each client exactly as often as it is stored; processes end
only on request; from five minutes on, memory does not grow by more than ``--max-growth``.

Not measured: speed (see round_overhead.py and load.py), lost brokers and databases (the test suite), and memory of the
devices, many of which share a process here.
"""

import argparse
import asyncio
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
from bare_exchange import connected
from command_line import parser_of, write_json
from servers import FEDERATION, HERE, Servers, Tls, Watch, describe_machine, stop, write_devices
from soak_checks import (
    Slope,
    check_models,
    check_receipts,
    check_rounds,
    load_history,
    longest_round_s,
    now,
    theil_sen,
)

from foltr.core.operator.credentials import OPERATOR_USER
from foltr.core.protocol.codec import open_envelope
from foltr.core.protocol.receipts import MembershipReceipt, ReceiptCode, UpdateReceipt
from foltr.core.protocol.topics import ClientTopic, Topics

MIN_TIME_S, MAX_TIME_S = 1.0, 20.0
_JUDGED_FROM_MINUTES = 5.0
_LEAVE_TIMEOUT_S, _JOIN_TIMEOUT_S = 40.0, 90.0


def main() -> None:
    options = parse_arguments()
    print(describe_machine())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        servers = Servers(folder, tls=options.tls, db_url=options.db)
        with servers:
            soak = Soak(servers, options)
            slopes, stopped_at = soak.run()
        history = asyncio.run(load_history(servers.db_url, FEDERATION))
    failures = [
        *soak.failures,
        *check_rounds(history, stopped_at),
        *check_receipts(history, soak.heard.accepted, soak.heard.duplicates),
        *check_models(history, options.clients),
        *check_memory(slopes, options),
    ]
    states = Counter(row.state for row in history.rounds)
    results = {
        "machine": describe_machine(),
        "clients": options.clients,
        "minutes": options.minutes,
        "database": "PostgreSQL" if options.db else "SQLite",
        "rounds": dict(states),
        "longest_round_s": round(longest_round_s(history, stopped_at), 2),
        "updates": len(history.contributions),
        "receipts": dict(soak.heard.codes),
        "departures": dict(soak.departures),
        "memory": {name: asdict(slope) for name, slope in slopes.items()},
        "failures": failures,
    }
    report(results, slopes)
    write_json(options.json, results)
    sys.exit(1 if failures else 0)


def parse_arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--clients", type=int, default=200, help="at least as many as groups")
    parser.add_argument("--groups", type=int, default=10, help="processes that share the clients; one goes at a time")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--pace", type=float, default=2.0, help="mean seconds between a user's interactions")
    parser.add_argument(
        "--churn-every", type=float, default=60.0, metavar="S", help="seconds until the next group goes"
    )
    parser.add_argument("--db", help="the URL of an empty PostgreSQL database; default: SQLite in a temporary folder")
    parser.add_argument("--tls", type=Tls, choices=list(Tls), default=Tls.NONE)
    parser.add_argument(
        "--max-growth", type=float, default=3.0, metavar="MB", help="bound of the growth over the last two thirds"
    )
    options = parser.parse_args()
    if not 1 <= options.groups <= options.clients:
        parser.error("--groups: between 1 and the number of clients")
    return options


@dataclass
class ReceivedReceipts:
    """Receipts as the broker delivered them, decoded in the background."""

    joined: Counter[str] = field(default_factory=Counter)
    codes: Counter[str] = field(default_factory=Counter)
    accepted: Counter[tuple[str, str]] = field(default_factory=Counter)
    duplicates: set[tuple[str, str]] = field(default_factory=set)

    def take(self, message: paho.MQTTMessage) -> None:
        envelope = open_envelope(message.payload)
        if envelope.kind != UpdateReceipt.kind_name:
            membership = envelope.read(MembershipReceipt)
            if membership.code is ReceiptCode.JOINED:
                self.joined[membership.client_id] += 1
            return
        receipt = envelope.read(UpdateReceipt)
        self.codes[str(receipt.code)] += 1
        if receipt.update_id is not None and receipt.code is ReceiptCode.ACCEPTED:
            self.accepted[receipt.client_id, receipt.update_id] += 1
        elif receipt.update_id is not None and receipt.code is ReceiptCode.DUPLICATE:
            self.duplicates.add((receipt.client_id, receipt.update_id))


@dataclass
class Group:
    """A process with ``count`` devices, those from ``first`` on."""

    first: int
    count: int
    process: subprocess.Popen[bytes]

    @property
    def names(self) -> list[str]:
        return _names(self.first, self.count)


class Soak:
    """Runs everything and collects problems in ``failures``."""

    def __init__(self, servers: Servers, options: argparse.Namespace) -> None:
        self._servers = servers
        self._options = options
        self._stores = servers.folder / "stores"
        self._devices = servers.folder / "devices"
        self.heard = ReceivedReceipts()
        self.departures: Counter[str] = Counter()
        self.failures: list[str] = []

    def run(self) -> tuple[dict[str, Slope], datetime]:
        """Return memory slopes of federator and broker, and when the federator was asked to stop."""
        n, n_groups, servers = self._options.clients, self._options.groups, self._servers
        n_departures = int(60 * self._options.minutes / self._options.churn_every)
        n_names = n + (n_departures // 3 + 1) * -(-n // n_groups)
        write_devices(self._devices, servers.enrol(_names(0, n_names)))
        self._stores.mkdir()
        broker = servers.start_broker()
        federator = servers.start_federator(
            *("--features", str(n), "--interactions", "1"),
            *("--min-clients", str(max(1, n // 2)), "--max-clients", str(n)),
            *("--min-time", str(MIN_TIME_S), "--max-time", str(MAX_TIME_S)),
        )
        inboxes = Topics(FEDERATION).client("+", ClientTopic.INBOX)
        listening = connected(servers.service("operator"), OPERATOR_USER, [inboxes], self.heard.take)
        with listening, Watch({"federator": federator, "broker": broker}, period_s=2.0) as watch:
            bounds = [n * i // n_groups for i in range(n_groups + 1)]
            groups = [self._start(first, last - first) for first, last in pairwise(bounds)]
            self._wait_joined(*groups)
            self._come_and_go(groups, n_names, federator)
            for group in groups:
                self._end(group, signal.SIGTERM)
            stopped_at = now()
            if (code := stop(federator)) != 0:
                self.failures.append(f"the federator ended with code {code}")
            time.sleep(1.0)  # the last receipts are on their way to the listener
        slopes = {name: theil_sen(*watch.memory(name)) for name in ("federator", "broker")}
        return slopes, stopped_at

    def _come_and_go(self, groups: list[Group], n_names: int, federator: subprocess.Popen[bytes]) -> None:
        """Take one group after the other out and back in, in one of three ways, until the time is over."""
        options, begun = self._options, time.monotonic()
        unused = options.clients
        ways = self._ways()
        until = begun + 60 * options.minutes
        next_at = begun + min(options.churn_every, 30 * options.minutes)
        # Groups due before the end still go if others returned late: a short run needs them all, too.
        while time.monotonic() < until or next_at < until:
            time.sleep(min(1.0, max(0.0, until - time.monotonic())))
            for group in groups:
                if (code := group.process.poll()) is not None:
                    self.failures.append(f"devices from {group.first} on ended by themselves with code {code}")
            if federator.poll() is not None:
                self.failures.append(f"the federator ended by itself with code {federator.returncode}")
            if self.failures:
                return
            if time.monotonic() < next_at:
                continue
            next_at += options.churn_every
            group, way = groups.pop(0), next(ways)
            if way == "replaced" and unused + group.count > n_names:
                way = "rejoined"
            self._end(group, signal.SIGKILL if way == "killed" else signal.SIGUSR1)
            self.departures[way] += group.count
            time.sleep(min(5.0, options.churn_every / 4))
            first = group.first
            if way == "replaced":
                first, unused = unused, unused + group.count
            self.heard.joined.clear()
            groups.append(self._start(first, group.count))
            self._wait_joined(groups[-1])

    @staticmethod
    def _ways() -> Iterator[str]:
        while True:
            yield from ("killed", "replaced", "rejoined")

    def _start(self, first: int, count: int) -> Group:
        arguments: list[Any] = [HERE / "soak_devices.py", self._devices, first, count]
        arguments += [self._options.clients, self._options.pace, self._stores]
        return Group(first, count, self._servers.start([sys.executable, *map(str, arguments)]))

    def _wait_joined(self, *groups: Group) -> None:
        """Wait until the federator has confirmed every device as a member, so that a kill finds it active."""
        names = {name for group in groups for name in group.names}
        give_up_at = time.monotonic() + _JOIN_TIMEOUT_S
        while missing := {name for name in names if not self.heard.joined[name]}:
            if time.monotonic() > give_up_at or any(group.process.poll() is not None for group in groups):
                self.failures.append(f"{len(missing)} devices did not join, e.g. {min(missing)}")
                return
            time.sleep(0.05)

    def _end(self, group: Group, by_signal: signal.Signals) -> None:
        group.process.send_signal(by_signal)
        try:
            code = group.process.wait(timeout=_LEAVE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            group.process.kill()
            code = group.process.wait()
            self.failures.append(f"devices from {group.first} on did not end within {_LEAVE_TIMEOUT_S:g} s")
        if code not in (0, -signal.SIGKILL):
            self.failures.append(f"devices from {group.first} on ended with code {code}")


def _names(first: int, count: int) -> list[str]:
    return [f"device-{i:05d}" for i in range(first, first + count)]


def check_memory(slopes: dict[str, Slope], options: argparse.Namespace) -> list[str]:
    if options.minutes < _JUDGED_FROM_MINUTES:
        return []
    return [
        f"{name}: memory grew by at least {slope.growth_mb:.1f} MB after warm-up ({slope})"
        for name, slope in slopes.items()
        if slope.growth_mb > options.max_growth
    ]


def report(results: dict[str, Any], slopes: dict[str, Slope]) -> None:
    def counts(what: dict[str, int]) -> str:
        return ", ".join(f"{name} {n}" for name, n in sorted(what.items())) or "none"

    print(f"{results['clients']} clients, {results['minutes']:g} minutes; gone: {counts(results['departures'])}")
    print(
        f"rounds: {counts(results['rounds'])}; longest {results['longest_round_s']:.2f} s of {MAX_TIME_S:g} s allowed"
    )
    print(f"updates stored: {results['updates']}; receipts: {counts(results['receipts'])}")
    judged = "" if results["minutes"] >= _JUDGED_FROM_MINUTES else " (too short to judge)"
    for name, slope in slopes.items():
        print(f"resident memory, {name}: {slope}{judged}")
    for failure in results["failures"]:
        print(f"FAILED: {failure}")
    print("all checks passed" if not results["failures"] else f"{len(results['failures'])} checks failed")


if __name__ == "__main__":
    main()
