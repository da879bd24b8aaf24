"""A fleet too large to stay connected takes turns over real MQTT: what it costs, and that no process grows.

Run: python research/benchmarks/paced_fleet.py [--devices 20000] [--minutes 8] [--updates 300] [--max-time 20]
     [--json FILE]

Each device is an `EdgeClient` with its own store, as in an application that runs now and then. It starts when its next
visit is due, records a few lists, contributes, learns when to come again, and is closed. Between two visits a device is
only its file. The files are in `--stores`, by default a disk in memory if the machine has one: real devices do not
share a disk, and here all would wait for it. The federator's database is on disk. Two processes run half of the devices
each; federator and Mosquitto are separate processes, and all share the machine. At first each device comes at a moment
drawn from the first `--ramp` seconds; from then on the federator steers.

Printed for each half minute: visits a second, the most devices connected at once, counted updates, the announced
period, resident memory of each process, and that of the processes of devices per device. Then processor time per visit
after the ramp, without the costs of starting and of first joins. And the rounds: how many, of how many updates, how
long.
"""

import argparse
import asyncio
import heapq
import json
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from command_line import parser_of, write_json
from servers import HERE, Servers, describe_machine, read_devices, write_devices

from foltr.edge_client.client import EdgeClient
from foltr.edge_client.events import Event, Resting, UpdateAnswered
from foltr.edge_client.options import Privacy, Ranking

DIM, N_DOCUMENTS, N_LISTS = 20, 10, 2
_AT_ONCE = 64
_VISIT_LIMIT_S = 60.0
_REPORT_S = 1.0


@dataclass
class Counts:
    """Counts of the devices of one process so far."""

    n_visits: int = 0
    n_late: int = 0  # took longer than a minute, and were stopped
    n_connected: int = 0
    most_connected: int = 0
    n_accepted: int = 0
    n_other: int = 0
    n_met: int = 0  # devices that came at least once


async def run_devices(devices: Sequence[dict[str, Any]], folder: Path, seconds: float, ramp_s: float) -> None:
    """Run devices that take turns, and print the counts each second."""
    counts, rng = Counts(), random.Random(folder.name)  # noqa: S311 (times of first visits)
    ends_at = time.time() + seconds
    due = [(time.time() + rng.uniform(0.0, ramp_s), i) for i in range(len(devices))]
    heapq.heapify(due)
    met: set[int] = set()
    room, running = asyncio.Semaphore(_AT_ONCE), set[asyncio.Task[None]]()

    async def come_by(i: int) -> None:
        async with room:
            if time.time() >= ends_at:
                return  # it waited for its turn until the end
            next_at = await _visit(devices[i], folder / f"{i}.sqlite", counts)
        met.add(i)
        counts.n_met = len(met)
        heapq.heappush(due, (next_at, i))

    async def report() -> None:
        while True:
            await asyncio.sleep(_REPORT_S)
            print(json.dumps(asdict(counts)), flush=True)
            counts.most_connected = counts.n_connected

    reporting = asyncio.create_task(report())
    while time.time() < ends_at:
        while due and due[0][0] <= time.time():
            task = asyncio.create_task(come_by(heapq.heappop(due)[1]))
            running.add(task)
            task.add_done_callback(running.discard)
        await asyncio.sleep(0.02)
    reporting.cancel()
    await asyncio.gather(*running)
    print(json.dumps(asdict(counts)), flush=True)


async def _visit(device: dict[str, Any], store: Path, counts: Counts) -> float:
    """Run a device for one visit. Return its next visit, in seconds since the epoch."""
    rested: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def note(event: Event) -> None:
        if isinstance(event, Resting) and not rested.done():
            rested.set_result(time.time() + 3600.0 if event.until is None else event.until.timestamp())
        elif isinstance(event, UpdateAnswered):
            counts.n_accepted += event.code == "accepted"
            counts.n_other += event.code != "accepted"

    counts.n_visits += 1
    counts.n_connected += 1
    counts.most_connected = max(counts.most_connected, counts.n_connected)
    try:
        async with EdgeClient(
            store=store,
            on_event=note,
            ranking=Ranking(gate=False),
            privacy=Privacy(click_window_s=0.0, keep_interactions=0),
            **device,
        ) as client:
            rng = np.random.default_rng()
            for _ in range(N_LISTS):
                client.record_clicks(client.rank(rng.random((N_DOCUMENTS, DIM), np.float32), 5), [0])
            async with asyncio.timeout(_VISIT_LIMIT_S):
                return await rested
    except TimeoutError:
        counts.n_late += 1
        return time.time() + _VISIT_LIMIT_S
    finally:
        counts.n_connected -= 1


class DeviceProcess:
    """One process of devices, with its newest counts."""

    def __init__(self, servers: Servers, path: Path, stores: Path, seconds: float, ramp_s: float) -> None:
        command = [sys.executable, str(HERE / "paced_fleet.py"), "--part", str(path)]
        command += ["--stores", str(stores), "--minutes", str(seconds / 60), "--ramp", str(ramp_s)]
        self.process = servers.start(command, stdout=subprocess.PIPE, text=True)
        self.newest = Counts()

    async def follow(self) -> None:
        """Read counts until the process has ended."""
        assert self.process.stdout is not None
        while line := await asyncio.to_thread(self.process.stdout.readline):
            self.newest = Counts(**json.loads(line))


async def watch(servers: Servers, parts: list[DeviceProcess], processes: dict[str, Any], every_s: float) -> list[Any]:
    """Print a line for each interval until the devices are done. Return the lines as data."""
    following = [asyncio.create_task(part.follow()) for part in parts]
    started, before, lines = time.monotonic(), 0, []
    print("     s   met  visits/s  connected  accepted  period   rounds   MB: federator  broker  devices")
    while not all(task.done() for task in following):
        await asyncio.wait(following, timeout=every_s)
        counts = [part.newest for part in parts]
        n_visits = sum(one.n_visits for one in counts)
        memory = {
            name: psutil.Process(process.pid).memory_info().rss / 1e6
            for name, process in processes.items()
            if process.poll() is None
        }
        rounds = _rounds(servers)
        line = {
            "seconds": time.monotonic() - started,
            "met": sum(one.n_met for one in counts),
            "visits_per_s": (n_visits - before) / every_s,
            "most_connected": sum(one.most_connected for one in counts),
            "accepted": sum(one.n_accepted for one in counts),
            "period_s": rounds[-1]["period_s"] if rounds else None,
            "rounds": len(rounds) - 1,
            "memory_mb": memory,
        }
        before = n_visits
        lines.append(line)
        of_devices = sum(value for name, value in memory.items() if name.startswith("devices"))
        print(
            f"{line['seconds']:6.0f} {line['met']:5} {line['visits_per_s']:9.1f} {line['most_connected']:10} "
            f"{line['accepted']:9} {line['period_s'] or 0:7.1f} {line['rounds']:8} "
            f"{memory.get('federator', 0):13.0f} {memory.get('broker', 0):9.0f} {of_devices:8.0f}",
            flush=True,
        )
    return lines


def _rounds(servers: Servers) -> list[dict[str, Any]]:
    """Return the stored rounds, oldest first."""
    import sqlite3

    path = servers.db_url.removeprefix("sqlite:///")
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)
    try:
        connection.row_factory = sqlite3.Row
        query = (
            "SELECT state, n_updates, period_s, (julianday(closed_at) - julianday(opened_at)) * 86400 AS seconds "
            "FROM rounds ORDER BY number"
        )
        return [dict(row) for row in connection.execute(query)]
    finally:
        connection.close()


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--devices", type=int, default=20_000)
    parser.add_argument("--minutes", type=float, default=8.0)
    parser.add_argument("--updates", type=int, default=300, help="updates_per_round")
    parser.add_argument("--max-time", type=float, default=20.0, help="max_time_s; rounds should take half of it")
    parser.add_argument("--ramp", type=float, default=240.0, help="seconds within which each device first comes")
    parser.add_argument("--stores", type=Path, default=Path("/dev/shm") if Path("/dev/shm").is_dir() else None)  # noqa: S108
    parser.add_argument("--unsigned", action="store_true")
    parser.add_argument("--part", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.part is not None:
        folder = arguments.stores / arguments.part.stem
        folder.mkdir()
        devices = read_devices(arguments.part)
        asyncio.run(run_devices(devices, folder, arguments.minutes * 60, arguments.ramp))
        return
    print(describe_machine())
    with (
        tempfile.TemporaryDirectory(prefix="foltr-pace-") as folder,
        tempfile.TemporaryDirectory(prefix="foltr-pace-", dir=arguments.stores) as stores,
    ):
        measure(arguments, Path(folder), Path(stores))


def measure(arguments: argparse.Namespace, folder: Path, stores: Path) -> None:
    """Run the fleet, print the results, and write them if requested."""
    with Servers(folder, signed=not arguments.unsigned) as servers:
        devices = servers.enrol([f"d-{i:05d}" for i in range(arguments.devices)])
        broker = servers.start_broker()
        federator = servers.start_federator(
            *("--features", str(DIM), "--interactions", str(N_LISTS), "--min-clients", "2"),
            *("--max-time", str(arguments.max_time)),
            FOLTR_UPDATES_PER_ROUND=str(arguments.updates),
            FOLTR_SHORTEST_PERIOD_S="30",
            FOLTR_ANCHOR="false",
            FOLTR_EVALUATION="false",
        )
        parts = []
        for number in range(2):
            path = folder / f"devices-{number}.jsonl"
            write_devices(path, devices[number::2])
            parts.append(DeviceProcess(servers, path, stores, arguments.minutes * 60, arguments.ramp))
        processes = {"federator": federator, "broker": broker}
        processes |= {f"devices-{number}": part.process for number, part in enumerate(parts)}
        handles = {name: psutil.Process(process.pid) for name, process in processes.items()}
        cpu_before = {name: sum(handle.cpu_times()[:2]) for name, handle in handles.items()}
        cpu: dict[str, float] = {}
        n_before = 0

        async def run() -> list[Any]:
            async def sample() -> None:
                nonlocal n_before
                ramp_ends_at, is_ramp_over = time.monotonic() + arguments.ramp, False
                while True:
                    for name, handle in handles.items():
                        if handle.is_running() and handle.status() != psutil.STATUS_ZOMBIE:
                            cpu[name] = sum(handle.cpu_times()[:2]) - cpu_before[name]
                    if not is_ramp_over and time.monotonic() >= ramp_ends_at:
                        is_ramp_over, n_before = True, sum(part.newest.n_visits for part in parts)
                        for name, seconds in cpu.items():
                            cpu_before[name] += seconds
                    await asyncio.sleep(1.0)

            sampling = asyncio.create_task(sample())
            try:
                return await watch(servers, parts, processes, every_s=30.0)
            finally:
                sampling.cancel()

        lines = asyncio.run(run())
        n_visits = sum(part.newest.n_visits for part in parts)
        rounds = [one for one in _rounds(servers) if one["seconds"] is not None]
        sizes, lengths = ([one[name] for one in rounds] for name in ("n_updates", "seconds"))
        result = {
            "devices": arguments.devices,
            "visits": n_visits,
            "late": sum(part.newest.n_late for part in parts),
            "cpu_ms_per_visit": {name: 1e3 * seconds / max(1, n_visits - n_before) for name, seconds in cpu.items()},
            "rounds": len(rounds),
            "median_updates": float(np.median(sizes)) if sizes else None,
            "median_seconds": float(np.median(lengths)) if lengths else None,
            "lines": lines,
        }
        print(json.dumps({key: value for key, value in result.items() if key != "lines"}, indent=1))
        write_json(arguments.json, result)


if __name__ == "__main__":
    main()
