"""Whether one user can bring the broker down with subscriptions: its memory, and rounds a second, during the attack.

Run: python research/benchmarks/subscription_flood.py [--by device token] [--plugin off on] [--seconds 20] [--json FILE]
     python research/benchmarks/subscription_flood.py --seconds 0 --rest 60
         no attack: only rounds a second with and without the plugin

A device, or somebody with an unused one-time token, subscribes to filters of 190 levels, all different, as fast as the
broker answers and in a persistent session. It sends a thousand in each packet, or fewer if the broker ends its
connection for that. Meanwhile two other devices complete rounds. Without the plugin only the broker's ``memory_limit``
of 2 GiB limits how much of this machine the attack can take. Everything is on loopback and ends with the attack.

The JSON file has a list, an object for each attack:

    plugin, by                whether subscriptions are judged; who attacks, "nobody" if --seconds is 0
    n_sent, n_granted         filters that the broker has answered, and that it has granted
    broker_lives, exit_code   whether it runs after the attack; its exit code, else null
    peak_mb                   the broker's peak resident memory, in 10^6 bytes
    before_per_s, during_per_s    rounds a second of the other devices, before the attack and during it
"""

import argparse
import contextlib
import json
import runpy
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Self

from round_overhead import round_ends
from servers import FOLTR, Servers, Tls, Watch, describe_machine

from foltr.broker.broker_records import CONFIG_NAME
from foltr.broker.users import provision_tokens
from foltr.core.operator.credentials import BrokerAccess, read_credentials, write_credentials

# The subscribing client is the tests' own.
flood = runpy.run_path(str(Path(__file__).parents[2] / "tests/support/mqtt_subscriber.py"))["flood"]

_LONGEST_S = 60.0
TOKEN = "00000000000000aa"  # noqa: S105 (of this benchmark alone)
ATTACKER = "device-attacker"
_DEVICES = ("device-0001", "device-0002")
_START_S = 120.0


class AttackedFederation:
    """Two devices in rounds of at least a tenth of a second, a federator, and the broker."""

    def __init__(self, folder: Path, *, has_plugin: bool) -> None:
        self.servers, self.folder = Servers(folder, tls=Tls.TLS), folder
        if not has_plugin:
            config = folder / "broker" / CONFIG_NAME
            lines = config.read_text(encoding="utf-8").splitlines(keepends=True)
            config.write_text("".join(line for line in lines if not line.startswith("plugin")), encoding="utf-8")

    def __enter__(self) -> Self:
        self.servers.__enter__()
        for device in self.servers.enrol([*_DEVICES, ATTACKER]):
            credentials = device["credentials"]
            to = "." if credentials.name == ATTACKER else "devices"
            write_credentials(self.folder / to / f"{credentials.name}.json", credentials)
        self.token = provision_tokens(self.folder / "operator", [TOKEN], timedelta(days=1))[TOKEN]
        self.broker = self.servers.start_broker()
        of_rounds = ("--min-clients", "2", "--max-clients", "2", "--min-time", "0.1", "--interactions", "1")
        self.servers.start_federator(*of_rounds, "--rounds", "100000")
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
        """Return the access of the enrolled device that attacks."""
        return read_credentials(self.folder / f"{ATTACKER}.json", "device").broker

    def rounds_a_second(self, seconds: float) -> float:
        """Return the completed rounds per second during a wait."""
        before, start = self._n_rounds(), time.monotonic()
        time.sleep(seconds)
        return (self._n_rounds() - before) / (time.monotonic() - start)

    @contextlib.contextmanager
    def watched(self) -> Iterator[Watch]:
        """Sample the broker's resource usage during a block."""
        with Watch({"broker": self.broker}) as watch:
            yield watch

    def _n_rounds(self) -> int:
        return len(round_ends(self.servers))


@dataclass(frozen=True)
class Attack:
    """One line of the result; its fields are explained at the top of this file."""

    plugin: str
    by: str
    n_sent: int
    n_granted: int
    broker_lives: bool
    exit_code: int | None
    peak_mb: float
    before_per_s: float
    during_per_s: float

    def __str__(self) -> str:
        end = "lives" if self.broker_lives else f"has ended with {self.exit_code}"
        kept = f"{100 * self.during_per_s / self.before_per_s:.0f} %" if self.before_per_s else "-"
        return (
            f"plugin {self.plugin}, by {self.by}: {self.n_granted:,} of {self.n_sent:,} filters granted, the broker "
            f"{end}, peak {self.peak_mb:,.0f} MB; rounds a second {self.before_per_s:.2f} before, "
            f"{self.during_per_s:.2f} during ({kept})"
        )


def attack(plugin: str, by: str, seconds: float, rest_s: float) -> Attack:
    """Start a federation, let it work, and attack its broker for ``seconds``."""
    with (
        tempfile.TemporaryDirectory(prefix="foltr-flood-") as name,
        AttackedFederation(Path(name), has_plugin=plugin == "on") as federation,
        federation.watched() as watch,
    ):
        counted = [(0, 0)]
        before = during = federation.rounds_a_second(rest_s)
        if seconds:
            user = federation.token if by == "token" else federation.attacker()

            thread = threading.Thread(target=lambda: counted.append(flood(user, seconds)))
            thread.start()
            during = federation.rounds_a_second(seconds)
            thread.join()
        exit_code = federation.broker.poll()
        peak = float(watch.memory("broker")[1].max())
        return Attack(plugin, by, *counted[-1], exit_code is None, exit_code, peak, before, during)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--by", choices=("device", "token"), nargs="+", default=["device", "token"])
    parser.add_argument("--rest", type=float, default=10.0, help="seconds in which rounds are counted before")
    parser.add_argument("--plugin", choices=("on", "off"), nargs="+", default=["off", "on"], help="off: as before it")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each attack lasts, at most 60")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args(arguments)
    print(describe_machine())
    attackers = options.by if options.seconds else ["nobody"]
    results = []
    for by in attackers:
        for plugin in options.plugin:
            results.append(attack(plugin, by, min(options.seconds, _LONGEST_S), options.rest))
            print(results[-1], flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps([asdict(each) for each in results], indent=1) + "\n")


if __name__ == "__main__":
    main()
