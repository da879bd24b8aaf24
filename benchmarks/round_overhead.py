"""Round time per client update, durable and receipted, beside a bare paho + Mosquitto exchange in the same run.

Run: python benchmarks/round_overhead.py [--clients N ...] [--unsigned] [--tls none|tls|mtls] [--fleets K]
     python benchmarks/round_overhead.py --compare     unsigned, signed, signed + TLS, and what TLS adds
     python benchmarks/round_overhead.py --profile FOLDER --clients 100

What is timed: federator (its own process, SQLite with synchronous=FULL), Mosquitto (its own process, configured by
``foltr broker config``), and all n devices with a connection each (one process or K, learning replaced by a constant
so that transport and bookkeeping are what is left; their stores are in memory). A round is: announcements to all, an
update from each, signature, decision, commit, receipt, aggregation, the next model. Times are medians over rounds, by
the federator's clock. CPU seconds are those of each process between the end of the first round and the end of the
last, divided by the updates in between; where they add up to the time of an update on every core, the machine is
what limits it.

What is not: connecting, joining and the TLS handshakes, which are over before the first round ends. Devices share
processes and the machine with the federator here, so a round is slower than the federator alone would make it. The
bare exchange sends the same bytes and an answer, nothing else, and through one connection in place of n.
"""

import argparse
import json
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from bare_exchange import PEER, run_bare
from profiled import print_profile
from servers import HERE, Servers, Tls, Watch, describe_machine, write_devices

DIM = 136
_TIMEOUT_S = 900.0


@dataclass(frozen=True)
class Mode:
    """How devices and federator speak."""

    signed: bool
    tls: Tls

    def __str__(self) -> str:
        return ("signed" if self.signed else "unsigned") + ("" if self.tls is Tls.NONE else f" + {self.tls}")


@dataclass(frozen=True)
class Measured:
    """One line of the result; times in milliseconds, those of CPU by process and per client update."""

    mode: str
    n_clients: int
    n_rounds: int
    round_ms: float
    update_ms: float
    bare_update_ms: float
    ratio: float
    cpu_ms: dict[str, float]

    def __str__(self) -> str:
        cpu = ", ".join(f"{name} {ms:.3f}" for name, ms in self.cpu_ms.items())
        return (
            f"n = {self.n_clients:5} {self.mode + ':':15} round {self.round_ms:8.1f} ms, per update "
            f"{self.update_ms:6.3f} ms; bare {self.bare_update_ms:6.3f} ms; ratio {self.ratio:5.1f}; CPU ms: {cpu}"
        )


def main() -> None:
    options = parse_arguments()
    modes = [Mode(options.signed, options.tls)]
    if options.compare:
        modes = [Mode(False, Tls.NONE), Mode(True, Tls.NONE), Mode(True, Tls.TLS)]
    print(describe_machine())
    print(f"d = {DIM}, {options.fleets} process(es) for the devices; medians over {options.rounds} rounds;", end=" ")
    print("a line's exchanges are measured one after the other")
    results = []
    for n_clients in options.clients:
        lines = {mode: measure(mode, n_clients, options) for mode in modes}
        results += lines.values()
        if options.compare:
            print(f"n = {n_clients:5} {explain_tls(lines[modes[1]], lines[modes[2]])}", flush=True)
    if options.json is not None:
        document = {"machine": describe_machine(), "dim": DIM, "results": [asdict(result) for result in results]}
        options.json.write_text(json.dumps(document, indent=2) + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--rounds", type=int, default=20, help="at least 3")
    identity = parser.add_mutually_exclusive_group()
    identity.add_argument("--signed", action="store_true", default=True, help="the default")
    identity.add_argument("--unsigned", dest="signed", action="store_false")
    parser.add_argument("--tls", type=Tls, choices=list(Tls), default=Tls.NONE)
    parser.add_argument("--compare", action="store_true", help="unsigned, signed, and signed with TLS and access list")
    parser.add_argument("--fleets", type=int, default=1, metavar="K", help="processes that share the devices")
    parser.add_argument("--profile", type=Path, metavar="FOLDER", help="also profile federator and devices (slower)")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    if options.rounds < 3:
        parser.error("--rounds: the first one is left out and two more make a median")
    return options


def explain_tls(without: Measured, with_tls: Measured) -> str:
    added, bare = with_tls.update_ms - without.update_ms, with_tls.bare_update_ms - without.bare_update_ms
    cpu = sum(with_tls.cpu_ms.values()) - sum(without.cpu_ms.values())
    return (
        f"TLS and access list add {added:+.3f} ms per update (CPU {cpu:+.3f} ms), and to the bare exchange {bare:+.3f}"
    )


def measure(mode: Mode, n_clients: int, options: argparse.Namespace) -> Measured:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Servers(folder, tls=mode.tls, signed=mode.signed) as servers:
            write_devices(folder / "devices", servers.enrol([f"device-{i:04d}" for i in range(n_clients)]))
            peer = servers.access(PEER)
            broker = servers.start_broker()
            bare = run_bare(servers, peer, DIM, n_clients, options.rounds)
            ours, cpu = run_rounds(servers, broker, n_clients, options)
    result = Measured(
        mode=str(mode),
        n_clients=n_clients,
        n_rounds=options.rounds,
        round_ms=1e3 * ours,
        update_ms=1e3 * ours / n_clients,
        bare_update_ms=1e3 * bare / n_clients,
        ratio=ours / bare,
        cpu_ms={name: 1e3 * seconds for name, seconds in cpu.items()},
    )
    print(result, flush=True)
    return result


def run_rounds(
    servers: Servers, broker: subprocess.Popen[bytes], n_clients: int, options: argparse.Namespace
) -> tuple[float, dict[str, float]]:
    """Median seconds between two rounds' ends, and CPU seconds per update of each kind of process."""
    profiles = options.profile and options.profile.resolve()
    if profiles:
        profiles.mkdir(parents=True, exist_ok=True)
    federator = servers.start_federator(
        *("--features", str(DIM), "--min-clients", str(n_clients), "--max-clients", str(n_clients)),
        *("--interactions", "1", "--rounds", str(options.rounds), "--max-time", "600"),
        profile=profiles and profiles / f"federator-{n_clients}",
    )
    processes = {"federator": federator, "broker": broker}
    for i in range(options.fleets):
        command = [str(HERE / "constant_devices.py"), str(servers.folder / "devices")]
        command += [str(DIM), str(i), str(options.fleets)]
        if profiles:
            command = [str(HERE / "profiled.py"), str(profiles / f"devices-{n_clients}-{i}"), *command]
        processes[f"devices {i}"] = servers.start([sys.executable, *command])
    with Watch(processes) as watch:
        if profiles:
            start_profiling(servers, [process for name, process in processes.items() if name != "broker"])
        assert federator.wait(timeout=_TIMEOUT_S) == 0
    ends = round_ends(servers, n_clients)
    assert len(ends) == options.rounds, f"{len(ends)} rounds were completed"
    for name, process in processes.items():
        assert name == "broker" or process.wait(timeout=60) == 0, name
    n_updates = n_clients * (options.rounds - 1)
    cpu = dict.fromkeys(("federator", "devices", "broker"), 0.0)
    for name in processes:
        cpu[name.split()[0]] += watch.cpu_seconds(name, ends[0], ends[-1]) / n_updates
    if profiles:
        print_profile(profiles / f"federator-{n_clients}", n_updates)
        print_profile(profiles / f"devices-{n_clients}-0", n_updates // options.fleets)
    return statistics.median(np.diff(ends)), cpu


def start_profiling(servers: Servers, processes: list[subprocess.Popen[bytes]]) -> None:
    """After the first round: imports, connections and joins are not what a round costs."""
    give_up_at = time.monotonic() + _TIMEOUT_S
    while not round_ends(servers):
        assert time.monotonic() < give_up_at, "no round was completed"
        time.sleep(0.02)
    for process in processes:
        process.send_signal(signal.SIGUSR1)


def round_ends(servers: Servers, n_clients: int | None = None) -> list[float]:
    """When each completed round ended, in seconds since the epoch; each with ``n_clients`` updates."""
    with sqlite3.connect(servers.folder / "federator.sqlite") as connection:
        statement = "SELECT closed_at, n_updates, state FROM rounds WHERE closed_at IS NOT NULL ORDER BY number"
        rows = connection.execute(statement).fetchall()
    connection.close()
    for _, n_updates, state in rows:
        assert state == "completed", state
        assert n_clients in (None, n_updates), n_updates
    # SQLite keeps no time zone: it is UTC.
    return [datetime.fromisoformat(closed_at).replace(tzinfo=UTC).timestamp() for closed_at, _, _ in rows]


if __name__ == "__main__":
    main()
