"""The HTTP API under load, beside rounds of 1,000 updates: how fast it answers, and whether the federator notices it.

Run: python research/benchmarks/api_load.py [--clients 1000] [--streams 200] [--rate 20] [--seconds 12] [--turns 3]
     [--db postgresql://...] [--json FILE]

One federation runs all the time: federator (its own process; SQLite with synchronous=FULL, or the empty PostgreSQL
database of ``--db``), Mosquitto, and all devices with a connection each in a process of their own, whose learning is a
constant. By turns nobody looks at it, and then ``foltr api run`` is there with 200 pages that listen and with requests
at a fixed rate (``api_listeners.py``, a process of its own). A round counts for a turn where it opened and ended within
it. So what else the machine does meets both alike, and what is to be compared was measured in the same minutes.

What is told: the time of a round without and with the API, and their ratio; CPU seconds by process and update; the
latency of requests, from when each was due; how long a page waits between two events. Everything shares the machine:
where the processors are all busy, the ratio of the rounds' times holds the processor time that pages and requests take
(of which the half is the benchmark's own), and the ratio of the federator's own CPU seconds does not.
"""

import argparse
import asyncio
import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from servers import FEDERATION, FOLTR, HERE, Servers, Watch, describe_machine, free_port, stop, write_devices
from sqlalchemy import select, text

from foltr.api.tokens import Role, TokenFile
from foltr.core.protocol.states import RoundState
from foltr.storage.database import Database
from foltr.storage.tables import rounds

DIM = 136
# 20 requests a second are allowed to each.
_N_TOKENS = 40
_START_S = 300.0
_COMPLETED = (
    select(rounds.c.opened_at, rounds.c.closed_at, rounds.c.n_updates)
    .where(rounds.c.federation == FEDERATION, rounds.c.state == RoundState.COMPLETED)
    .order_by(rounds.c.number)
)


@dataclass
class Turns:
    """What was measured of one kind of turn."""

    round_s: list[float] = field(default_factory=list)
    cpu_ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def summary(self) -> dict[str, Any]:
        """Medians: of a round's seconds over all rounds, of CPU milliseconds an update over turns."""
        cpu = {name: round(statistics.median(values), 3) for name, values in self.cpu_ms.items()}
        return {"n_rounds": len(self.round_s), "round_s": statistics.median(self.round_s), "cpu_ms": cpu}


def main() -> None:
    options = parse_arguments()
    print(describe_machine())
    kind = "PostgreSQL" if options.db else "SQLite"
    print(f"{kind}; n = {options.clients}, d = {DIM}; {options.streams} streams, {options.rate:g} requests/s;", end=" ")
    print(f"{options.turns} turns of {options.seconds:g} s of each kind")
    with tempfile.TemporaryDirectory() as name, Servers(Path(name), db_url=options.db) as servers:
        measured, seen = run_turns(servers, options)
    ratios = compare(measured)
    for kind_, turns in measured.items():
        print(f"{kind_:12}{turns.summary()}")
    for each in seen:
        print(f"requests {each['latency_ms']} ms, by status {each['statuses']}")
        print(
            f"pages    {each['page_requests_ms']} ms for {each['n_page_requests']} requests, made as they open;",
            end=" ",
        )
        print(f"{each['n_events']} events, {each['between_events_s']} s apart")
    print(f"with the API a round takes {ratios['round_s']:.2f} x as long, and an update", end=" ")
    print(f"{ratios['federator_cpu']:.2f} x the federator's CPU time")
    if options.json is not None:
        document = {"machine": describe_machine(), "database": kind, "n": options.clients, "streams": options.streams}
        turns_ = {kind: turns.summary() for kind, turns in measured.items()}
        options.json.write_text(json.dumps({**document, **turns_, "ratios": ratios, "seen": seen}, indent=2) + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--rate", type=float, default=20.0, help="requests a second beside what pages ask for")
    parser.add_argument("--seconds", type=float, default=12.0, help="of a turn")
    parser.add_argument("--turns", type=int, default=3, help="of each kind")
    parser.add_argument("--db", help="the URL of an empty PostgreSQL database; default: SQLite in a temporary folder")
    parser.add_argument("--json", type=Path, metavar="FILE")
    return parser.parse_args()


def run_turns(servers: Servers, options: argparse.Namespace) -> tuple[dict[str, Turns], list[dict[str, Any]]]:
    """Run one federation, by turns without anybody who looks and with the API and its pages."""
    n = options.clients
    write_devices(servers.folder / "devices", servers.enrol([f"device-{i:04d}" for i in range(n)]))
    tokens = TokenFile(servers.folder / "foltr-tokens.json")
    texts = [tokens.add(Role.VIEWER, FEDERATION, 86_400.0, None)[0] for _ in range(_N_TOKENS)]
    (servers.folder / "tokens").write_text(json.dumps(texts))
    processes = {"broker": servers.start_broker()}
    processes["federator"] = servers.start_federator(
        *("--features", str(DIM), "--min-clients", str(n), "--max-clients", str(n)),
        *("--interactions", "1", "--max-time", "600"),
    )
    words = [str(servers.folder / "devices"), str(DIM), "0", "1"]
    processes["devices"] = servers.start([sys.executable, str(HERE / "constant_devices.py"), *words])
    wait_for_round(servers, processes["federator"])
    if options.db:
        analyse(servers)
    measured, seen = {"without": Turns(), "with": Turns()}, []
    for _ in range(options.turns):
        take(servers, measured["without"], processes, options.seconds)
        seen.append(look(servers, measured["with"], processes, options))
    # The devices first: one that is left without a federator tells of it.
    stop(processes["devices"])
    return measured, seen


def wait_for_round(servers: Servers, federator: "subprocess.Popen[bytes]") -> None:
    """Wait until all devices have joined and a first round is over."""
    give_up_at = time.monotonic() + _START_S
    while not closed_rounds(servers):
        assert federator.poll() is None, "the federator has ended"
        assert time.monotonic() < give_up_at, "no round was completed"
        time.sleep(0.5)


def analyse(servers: Servers) -> None:
    """Give PostgreSQL the statistics that its autovacuum gives every database within its first minutes."""

    async def run() -> None:
        async with Database(servers.db_url) as db, db.transaction() as connection:
            await connection.execute(text("ANALYZE"))

    asyncio.run(run())


def look(
    servers: Servers, turns: Turns, processes: dict[str, "subprocess.Popen[bytes]"], options: argparse.Namespace
) -> dict[str, Any]:
    """Take a turn with the API, its pages and requests; return what these saw."""
    port, result = free_port(), servers.folder / "seen.json"
    command = ["api", "run", "--federation", FEDERATION, "--port", str(port), "--tokens"]
    served = servers.start([*FOLTR, *command, str(servers.folder / "foltr-tokens.json")])
    url = f"http://127.0.0.1:{port}"
    words = [url, str(servers.folder / "tokens"), str(options.streams), str(options.rate), str(result)]
    give_up_at = time.monotonic() + 60.0
    while not _answers(port):
        assert time.monotonic() < give_up_at, "the API does not listen"
        time.sleep(0.1)
    listeners = servers.start([sys.executable, str(HERE / "api_listeners.py"), *words], stdout=subprocess.PIPE)
    assert listeners.stdout is not None
    assert listeners.stdout.readline() == b"ready\n", "the pages do not hear anything"
    take(servers, turns, {**processes, "api": served, "listeners": listeners}, options.seconds)
    assert stop(listeners) == 0
    stop(served)
    found: dict[str, Any] = json.loads(result.read_text())
    return found


def take(servers: Servers, turns: Turns, processes: dict[str, "subprocess.Popen[bytes]"], seconds: float) -> None:
    """Watch the rounds for a while; those count that opened and ended within it."""
    began = time.time()
    with Watch(processes) as watch:
        time.sleep(seconds)
        while not (within := rounds_within(servers, began)):
            assert time.time() < began + _START_S, "no round within this turn"
            time.sleep(0.5)
    turns.round_s += [closed - opened for opened, closed, _ in within]
    n_updates = sum(n for *_, n in within)
    for name in processes:
        cpu = watch.cpu_seconds(name, within[0][0], within[-1][1])
        turns.cpu_ms[name].append(1e3 * cpu / n_updates)


def rounds_within(servers: Servers, began: float) -> list[tuple[float, float, int]]:
    """Find the rounds that opened after a moment and have ended."""
    return [each for each in closed_rounds(servers) if each[0] >= began]


def closed_rounds(servers: Servers) -> list[tuple[float, float, int]]:
    """List when each completed round opened and ended, in seconds since the epoch, and its updates."""

    async def read() -> list[tuple[float, float, int]]:
        async with Database(servers.db_url) as db, db.reading() as connection:
            rows = await connection.execute(_COMPLETED)
            return [(opened.timestamp(), closed.timestamp(), int(n)) for opened, closed, n in rows]

    return asyncio.run(read())


def compare(measured: dict[str, Turns]) -> dict[str, float]:
    """Divide what was measured with the API by what was measured without."""
    without, with_ = measured["without"].summary(), measured["with"].summary()
    return {
        "round_s": with_["round_s"] / without["round_s"],
        "federator_cpu": with_["cpu_ms"]["federator"] / without["cpu_ms"]["federator"],
    }


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


if __name__ == "__main__":
    main()
