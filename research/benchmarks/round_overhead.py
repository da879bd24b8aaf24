"""Round time per client update, durable and receipted, beside a bare paho + Mosquitto exchange in the same run.

Run: python research/benchmarks/round_overhead.py [--clients N ...] [--json FILE]
         unsigned, signed and signed with TLS
     python research/benchmarks/round_overhead.py --signed | --unsigned [--tls none|tls|mtls] [--fleets K]
         one of them
     python research/benchmarks/round_overhead.py --signed --profile FOLDER --clients 100

Measured: federator (a process, SQLite with synchronous=FULL), Mosquitto (a process, configured by ``foltr broker
config``), and all n devices with a connection each, in one process or K. Their learning is a constant and their stores
are in memory, so transport and bookkeeping remain. A round is: announcements to all, an update from each, signature,
decision, commit, receipt, aggregation, the next model. Times are medians over rounds, by the federator's clock. CPU
time is that of each process between the end of the first round and the end of the last, divided by the updates in
between. If it adds up to the time of an update on every core, the machine is the limit.

Not measured: connecting, joining and TLS handshakes, which end before the first round does. Devices share the machine
with the federator, so a round is slower than on the federator's own machine. The bare exchange sends the same bytes and
an answer, nothing else, through one connection instead of n.

The JSON file has a list with an object for each n and variant. Times are in milliseconds:

    n                 devices, each of which sends one update in every round
    variant           unsigned, signed, signed+tls (with passwords and the access list) or signed+mtls
    round_ms          a whole round, from the end of the one before to its own
    per_update_ms     round_ms / n, which includes a round's fixed cost
    federator_cpu_ms  the federator's CPU time per update, including its part of the fixed cost
    device_cpu_ms     a device's CPU time per update
    broker_cpu_ms     Mosquitto's CPU time per update
    bare_ms           an update and its answer in the bare exchange, to compare with per_update_ms
    fixed_ms          what a round of this variant costs beside its updates: the intercept of the line of round_ms over
                      n that has the least relative errors; null if only one n was measured
    memory_mb         peak resident memory in 10^6 bytes: of the federator, of Mosquitto and of all devices
    n_rounds, dim     number of rounds, and weights of the ranker
"""

import argparse
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from bare_exchange import PEER, run_bare
from command_line import parser_of, write_json
from growth_law import fit_line
from profiled import print_profile
from servers import HERE, Servers, Tls, Watch, describe_machine, write_devices

DIM = 136
_TIMEOUT_S = 900.0


@dataclass(frozen=True)
class Variant:
    """The transport of devices and federator: signatures and TLS."""

    signed: bool
    tls: Tls

    def __str__(self) -> str:
        return ("signed" if self.signed else "unsigned") + ("" if self.tls is Tls.NONE else f"+{self.tls}")


VARIANTS = (Variant(False, Tls.NONE), Variant(True, Tls.NONE), Variant(True, Tls.TLS))


@dataclass(frozen=True)
class Measured:
    """One line of the result; its fields are explained at the top of this file."""

    n: int
    variant: str
    round_ms: float
    per_update_ms: float
    federator_cpu_ms: float
    device_cpu_ms: float
    broker_cpu_ms: float
    bare_ms: float
    n_rounds: int
    dim: int = DIM
    memory_mb: dict[str, float] = field(default_factory=dict)
    fixed_ms: float | None = None

    def __str__(self) -> str:
        ratio = self.per_update_ms / self.bare_ms
        cpu = (
            f"federator {self.federator_cpu_ms:.3f}, devices {self.device_cpu_ms:.3f}, broker {self.broker_cpu_ms:.3f}"
        )
        return (
            f"n = {self.n:5} {self.variant + ':':12} round {self.round_ms:8.1f} ms, per update "
            f"{self.per_update_ms:6.3f} ms; bare {self.bare_ms:6.3f} ms; ratio {ratio:5.1f}; CPU ms: {cpu}"
        )

    @property
    def cpu_ms(self) -> float:
        return self.federator_cpu_ms + self.device_cpu_ms + self.broker_cpu_ms


def main() -> None:
    options = parse_arguments()
    print(describe_machine())
    print(
        f"d = {options.dim}, {options.fleets} process(es) for the devices; medians over {options.rounds} rounds;",
        end=" ",
    )
    print("a line's exchanges are measured one after the other")
    results = []
    for n in options.clients:
        lines = [measure(variant, n, options) for variant in options.variants]
        if len(lines) == len(VARIANTS):
            print(f"n = {n:5} {explain_tls(lines[1], lines[2])}", flush=True)
        results += lines
    results = with_fixed_costs(results)
    for variant, fixed_ms in {result.variant: result.fixed_ms for result in results}.items():
        if fixed_ms is not None:
            print(f"{variant + ':':12} a round costs {fixed_ms:.1f} ms beside its updates")
    write_json(options.json, [asdict(result) for result in results])


def parse_arguments() -> argparse.Namespace:
    parser = parser_of(__doc__)
    parser.add_argument("--clients", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--rounds", type=int, default=20, help="at least 3")
    parser.add_argument("--dim", type=int, default=DIM, help="weights of the linear ranker")
    identity = parser.add_mutually_exclusive_group()
    identity.add_argument("--signed", action="store_true", help="this variant alone, with --tls")
    identity.add_argument("--unsigned", action="store_true", help="this variant alone")
    parser.add_argument("--tls", type=Tls, choices=list(Tls), help="signed, and with this alone")
    parser.add_argument("--fleets", type=int, default=1, metavar="K", help="processes that share the devices")
    parser.add_argument("--profile", type=Path, metavar="FOLDER", help="also profile federator and devices (slower)")
    options = parser.parse_args()
    if options.rounds < 3:
        parser.error("--rounds: the first one is left out and two more make a median")
    one_alone = options.signed or options.unsigned or options.tls is not None
    options.variants = (Variant(not options.unsigned, options.tls or Tls.NONE),) if one_alone else VARIANTS
    return options


def explain_tls(without: Measured, with_tls: Measured) -> str:
    added, bare = with_tls.per_update_ms - without.per_update_ms, with_tls.bare_ms - without.bare_ms
    cpu = with_tls.cpu_ms - without.cpu_ms
    return (
        f"TLS and access list add {added:+.3f} ms per update (CPU {cpu:+.3f} ms), and to the bare exchange {bare:+.3f}"
    )


def with_fixed_costs(results: list[Measured]) -> list[Measured]:
    """Return the same lines with the cost of a round of their variant beside its updates."""
    by_variant: dict[str, list[Measured]] = {}
    for result in results:
        by_variant.setdefault(result.variant, []).append(result)
    fixed: dict[str, float | None] = {}
    for variant, lines in by_variant.items():
        sizes = [line.n for line in lines]
        # By relative errors: with absolute ones the longest round would dominate.
        fixed[variant] = fit_line(sizes, [line.round_ms for line in lines])[0] if len(set(sizes)) > 1 else None
    return [replace(result, fixed_ms=fixed[result.variant]) for result in results]


def measure(variant: Variant, n: int, options: argparse.Namespace) -> Measured:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Servers(folder, tls=variant.tls, signed=variant.signed) as servers:
            write_devices(folder / "devices", servers.enrol([f"device-{i:04d}" for i in range(n)]))
            peer = servers.access(PEER)
            broker = servers.start_broker()
            bare = run_bare(servers, peer, options.dim, n, options.rounds)
            ours = run_rounds(servers, broker, n, options.rounds, options.dim, options.fleets, options.profile)
    result = Measured(
        n=n,
        variant=str(variant),
        round_ms=1e3 * ours.round_s,
        per_update_ms=1e3 * ours.round_s / n,
        federator_cpu_ms=1e3 * ours.cpu_s["federator"],
        device_cpu_ms=1e3 * ours.cpu_s["devices"],
        broker_cpu_ms=1e3 * ours.cpu_s["broker"],
        bare_ms=1e3 * bare / n,
        n_rounds=options.rounds,
        dim=options.dim,
        memory_mb=ours.memory_mb,
    )
    print(result, flush=True)
    return result


@dataclass(frozen=True)
class Rounds:
    """Measurements of rounds, by kind of process if relevant: federator, broker, devices.

    Attributes:
        round_s: median seconds between two rounds' ends.
        cpu_s: CPU seconds per update.
        memory_mb: peak resident megabytes.
    """

    round_s: float
    cpu_s: dict[str, float]
    memory_mb: dict[str, float]


def run_rounds(
    servers: Servers,
    broker: subprocess.Popen[bytes],
    n_clients: int,
    n_rounds: int,
    dim: int = DIM,
    n_fleets: int = 1,
    profiles: Path | None = None,
) -> Rounds:
    """Run rounds of all devices in ``servers.folder / "devices"``, shared by ``n_fleets`` processes."""
    if profiles:
        profiles = profiles.resolve()
        profiles.mkdir(parents=True, exist_ok=True)
    federator = servers.start_federator(
        *("--features", str(dim), "--min-clients", str(n_clients), "--max-clients", str(n_clients)),
        *("--interactions", "1", "--rounds", str(n_rounds), "--min-time", "0", "--max-time", "600"),
        profile=profiles and profiles / f"federator-{n_clients}",
    )
    processes = {"federator": federator, "broker": broker}
    for i in range(n_fleets):
        command = [str(HERE / "constant_devices.py"), str(servers.folder / "devices")]
        command += [str(dim), str(i), str(n_fleets)]
        if profiles:
            command = [str(HERE / "profiled.py"), str(profiles / f"devices-{n_clients}-{i}"), *command]
        processes[f"devices {i}"] = servers.start([sys.executable, *command])
    with Watch(processes) as watch:
        if profiles:
            start_profiling(servers, [process for name, process in processes.items() if name != "broker"])
        assert federator.wait(timeout=_TIMEOUT_S) == 0
    ends = round_ends(servers, n_clients)
    assert len(ends) == n_rounds, f"{len(ends)} rounds were completed"
    for name, process in processes.items():
        assert name == "broker" or process.wait(timeout=60) == 0, name
    n_updates = n_clients * (n_rounds - 1)
    cpu_s, memory_mb = (dict.fromkeys(("federator", "devices", "broker"), 0.0) for _ in range(2))
    for name in processes:
        cpu_s[name.split()[0]] += watch.cpu_seconds(name, ends[0], ends[-1]) / n_updates
        memory_mb[name.split()[0]] += float(watch.memory(name)[1].max())
    if profiles:
        print_profile(profiles / f"federator-{n_clients}", n_updates)
        print_profile(profiles / f"devices-{n_clients}-0", n_updates // n_fleets)
    return Rounds(statistics.median(np.diff(ends)), cpu_s, memory_mb)


def start_profiling(servers: Servers, processes: list[subprocess.Popen[bytes]]) -> None:
    """Start after the first round: imports, connections and joins are not part of a round's cost."""
    give_up_at = time.monotonic() + _TIMEOUT_S
    while not round_ends(servers):
        assert time.monotonic() < give_up_at, "no round was completed"
        time.sleep(0.02)
    for process in processes:
        process.send_signal(signal.SIGUSR1)


def round_ends(servers: Servers, n_clients: int | None = None) -> list[float]:
    """Return when each completed round ended, in seconds since the epoch; each with ``n_clients`` updates."""
    with sqlite3.connect(servers.folder / "federator.sqlite") as connection:
        statement = "SELECT closed_at, n_updates, state FROM rounds WHERE closed_at IS NOT NULL ORDER BY number"
        rows = connection.execute(statement).fetchall()
    connection.close()
    for _, n_updates, state in rows:
        assert state == "completed", state
        assert n_clients in (None, n_updates), n_updates
    # SQLite stores no time zone; times are UTC.
    return [datetime.fromisoformat(closed_at).replace(tzinfo=UTC).timestamp() for closed_at, _, _ in rows]


if __name__ == "__main__":
    main()
