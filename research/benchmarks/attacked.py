"""A small federation at a broker that knows its users, for attacks on it: how many rounds a second it gets done.

The broker is as ``foltr broker config`` writes it, or, without the plugin that judges subscriptions, as it was before
there was one. Everything is on loopback, in one temporary folder.
"""

import argparse
import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Self

from round_overhead import round_ends
from servers import FOLTR, Servers, Tls, Watch

from foltr.broker.broker_records import CONFIG_NAME
from foltr.broker.users import provision_tokens
from foltr.core.operator.credentials import BrokerAccess, read_credentials, write_credentials

TOKEN = "00000000000000aa"  # noqa: S105 (of this benchmark alone)
ATTACKER = "device-attacker"
_DEVICES = ("device-0001", "device-0002")
_START_S = 120.0


class AttackedFederation:
    """Two devices in rounds of a tenth of a second and more, a federator or a leader with workers, and the broker.

    Args:
        n_workers: ingest workers; 0: one federator takes all updates.
    """

    def __init__(self, folder: Path, *, has_plugin: bool, n_workers: int = 0) -> None:
        self.servers, self.folder, self._n_workers = Servers(folder, tls=Tls.TLS), folder, n_workers
        if not has_plugin:
            config = folder / "broker" / CONFIG_NAME
            lines = config.read_text(encoding="utf-8").splitlines(keepends=True)
            config.write_text("".join(line for line in lines if not line.startswith("plugin")), encoding="utf-8")

    def __enter__(self) -> Self:
        self.servers.__enter__()
        operator = ("--operator", str(self.folder / "operator"))
        for device in self.servers.enrol([*_DEVICES, ATTACKER]):
            credentials = device["credentials"]
            to = "." if credentials.name == ATTACKER else "devices"
            write_credentials(self.folder / to / f"{credentials.name}.json", credentials)
        for i in range(self._n_workers):
            self.servers.run_foltr(
                "broker", "worker", str(i), *operator, "--out", str(self.folder / f"worker-{i}.json")
            )
        self.token = provision_tokens(self.folder / "operator", [TOKEN], timedelta(days=1))[TOKEN]
        self.broker = self.servers.start_broker()
        of_rounds = ("--min-clients", "2", "--max-clients", "2", "--min-time", "0.1", "--interactions", "1")
        role = "leader" if self._n_workers else "all"
        self.servers.start_federator("--role", role, *of_rounds, "--rounds", "100000")
        for i in range(self._n_workers):
            worker = ("--role", "ingest", "--credentials", str(self.folder / f"worker-{i}.json"))
            self.servers.start([*FOLTR, "federator", "run", *worker])
        crowd = ("--id", "device", "--count", "2", "--data", "synthetic", "--rounds", "100000")
        command = [*FOLTR, "client", "run", "--credentials", str(self.folder / "devices"), *crowd]
        self.servers.start(command, stdout=subprocess.DEVNULL)
        give_up_at = time.monotonic() + _START_S
        while self._n_rounds() < 3:
            if time.monotonic() > give_up_at:
                self.servers.__exit__()
                sys.exit("no round was completed")
            time.sleep(0.1)
        return self

    def __exit__(self, *_: object) -> None:
        self.servers.__exit__()

    def attacker(self) -> BrokerAccess:
        """How the enrolled device gets in that attacks."""
        return read_credentials(self.folder / f"{ATTACKER}.json", "device").broker

    def rounds_a_second(self, seconds: float) -> float:
        """Wait so long, and count the rounds that were completed meanwhile."""
        before, start = self._n_rounds(), time.monotonic()
        time.sleep(seconds)
        return (self._n_rounds() - before) / (time.monotonic() - start)

    @contextlib.contextmanager
    def watched(self) -> Iterator[Watch]:
        """Sample what the broker uses meanwhile."""
        with Watch({"broker": self.broker}) as watch:
            yield watch

    def _n_rounds(self) -> int:
        return len(round_ends(self.servers))


def add_options(parser: argparse.ArgumentParser) -> None:
    """What both attacks are told."""
    parser.add_argument("--plugin", choices=("on", "off"), nargs="+", default=["off", "on"], help="off: as before it")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each attack lasts, at most 60")
    parser.add_argument("--json", type=Path, metavar="FILE")
