"""How costs grow with devices and weights: measures, fits the law, and fills docs/sizing.md.

Run: python research/benchmarks/growth.py [--minutes 4] [--quick] [--page] [--folder FOLDER] [CELL ...]

A cell is one measurement, and writes build/growth/CELL.json. A cell that exists for this commit is skipped, so the same
command resumes an interrupted one. ``--minutes`` starts no cell that would end later; naming cells repeats them. Kinds
of cells:

    rounds     real devices, each with a connection, an identity and a signature (round_overhead.py)
    crowd      federator and broker alone: one connection speaks for all clients (crowd.py)
    fan-out    Mosquitto alone: connections that receive announcements (fan_out.py)
    paced      devices that take turns (paced_fleet.py)
    profile    where the processor time of federator and devices goes, in rounds of real devices

Once there are enough cells for the law, all existing ones, also of other commits, are written to
docs/growth/growth.json, and from it into docs/sizing.md. ``--page`` only does the latter.
``--quick`` is small, only shows that everything runs, and leaves the page alone: its files are in build/growth-quick
or ``--folder``.
"""

import argparse
import json
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import crowd
import fan_out
import psutil
from bench import ROOT, current_commit, machine, profiles_in, run_once, versions
from growth_figures import Growth, read_growth, write_growth
from growth_page import fill_page
from round_overhead import run_rounds
from servers import HERE, Servers, Tls, write_devices

DOCS = ROOT / "docs"
ROUNDS = {
    136: (10, 30, 100, 300, 1000, 3000, 5000),
    46: (10, 100, 1000),
    1000: (10, 100, 300, 1000),
    5000: (10, 100, 1000, 3000),
    20_000: (10, 100, 300, 1000),
}
"""Number of devices in a round, by weights: with more than 20 million weights together a round fills the memory."""
CROWDS = {136: (100, 1000, 3000, 10_000), 1000: (1000, 10_000), 20_000: (100, 1000)}
CONNECTIONS = (1000, 3000, 5000)
PROFILES = ((100, 136), (1000, 136), (3000, 136), (1000, 20_000))
_VERSIONS = ("foltr", "numpy", "sqlalchemy", "aiomqtt", "paho-mqtt", "msgpack", "pynacl", "pydantic")


@dataclass(frozen=True)
class Cell:
    """One measurement.

    Attributes:
        measure: returns its results.
        about_s: approximate duration in seconds on two processors.
    """

    kind: str
    measure: Callable[[], dict[str, Any]]
    about_s: float


def rounds_of(n: int) -> int:
    """Return how many rounds of n updates suffice for a measurement. The first is dropped."""
    return min(30, max(4, 5000 // n))


def cells(*, is_quick: bool) -> dict[str, Cell]:
    """Return all cells by name, in order of execution."""
    return dict(_quick_cells() if is_quick else _cells())


def _cells() -> Iterator[tuple[str, Cell]]:
    for d, sizes in ROUNDS.items():
        yield from (_rounds(n, d) for n in sizes)
    for d, sizes in CROWDS.items():
        yield from (_crowd(n, d) for n in sizes)
    yield from (_fan_out(n, Tls.TLS) for n in CONNECTIONS)
    yield _fan_out(CONNECTIONS[-1], Tls.NONE)
    yield "paced", Cell("paced", lambda: measure_paced("--devices 2000 --minutes 1.5 --ramp 45"), 110)
    yield from (_profile(n, d) for n, d in PROFILES)


def _quick_cells() -> Iterator[tuple[str, Cell]]:
    for n, d in ((5, 46), (9, 46), (5, 300)):
        yield from (_rounds(n, d), _crowd(10 * n, d))
    yield from (_fan_out(20, tls) for tls in (Tls.TLS, Tls.NONE))
    yield "paced", Cell("paced", lambda: measure_paced("--devices 20 --minutes 1.2 --ramp 5 --updates 5"), 30)
    yield _profile(12, 46)


def _rounds(n: int, d: int) -> tuple[str, Cell]:
    return f"rounds-{n}-{d}", Cell("rounds", lambda: measure_rounds(n, d), 5 + n * (0.012 + d / 1e6))


def _crowd(n: int, d: int) -> tuple[str, Cell]:
    return f"crowd-{n}-{d}", Cell("crowd", lambda: measure_crowd(n, d), 4 + n * (0.002 + d / 5e6))


def _fan_out(n: int, tls: Tls) -> tuple[str, Cell]:
    return f"fan-out-{n}-{tls}", Cell("fan-out", lambda: measure_fan_out(n, tls), 5 + n * 0.003)


def _profile(n: int, d: int) -> tuple[str, Cell]:
    return f"profile-{n}-{d}", Cell("profile", lambda: measure_profile(n, d), 8 + n * (0.012 + d / 1e6))


def measure_rounds(n: int, d: int, profiles: Path | None = None) -> dict[str, Any]:
    """Run rounds of real devices."""
    with tempfile.TemporaryDirectory(prefix="foltr-growth-") as name, Servers(Path(name)) as servers:
        write_devices(servers.folder / "devices", servers.enrol([f"device-{i:05}" for i in range(n)]))
        found = run_rounds(servers, servers.start_broker(), n, rounds_of(n), d, 2, profiles)
        connection = sqlite3.connect(servers.folder / "federator.sqlite")
        refusals = "SELECT code, sum(n) FROM events WHERE kind = 'update_rejected' GROUP BY code"
        refused = dict(connection.execute(refusals).fetchall())
        offline = "SELECT count(*) FROM events WHERE kind = 'client_offline'"
        (n_lost,) = connection.execute(offline).fetchone()
        connection.close()
    return {
        "n": n,
        "dim": d,
        "round_ms": 1e3 * found.round_s,
        "cpu_ms": {name: 1e3 * n * seconds for name, seconds in found.cpu_s.items()},
        "memory_mb": found.memory_mb,
        "refused": refused,
        # No device may end before the federator.
        "n_lost_connections": n_lost,
    }


def measure_crowd(n: int, d: int) -> dict[str, Any]:
    return asdict(crowd.measure(n, d, min(10, rounds_of(n))))


def measure_fan_out(n: int, tls: Tls) -> dict[str, Any]:
    return asdict(fan_out.measure(n, tls, (1000, 20_000, 80_000)))


def measure_paced(options: str) -> dict[str, Any]:
    """Run a fleet that takes turns, without printing its lines."""
    with tempfile.TemporaryDirectory() as name:
        file = Path(name) / "paced.json"
        assert run_once([sys.executable, str(HERE / "paced_fleet.py"), *options.split(), "--json", str(file)]) == 0
        result: dict[str, Any] = json.loads(file.read_text())
    del result["lines"]
    cpu = result["cpu_ms_per_visit"]
    result["cpu_ms_per_visit"] = {
        "federator": cpu["federator"],
        "broker": cpu["broker"],
        "devices": sum(ms for name, ms in cpu.items() if name.startswith("devices")),
    }
    return result


def measure_profile(n: int, d: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        measure_rounds(n, d, Path(name))
        # One of the two processes of devices is enough.
        return {"n": n, "dim": d, "profiles": profiles_in(Path(name), n_told=8)}


def make(name: str, cell: Cell, folder: Path) -> None:
    """Make one cell and write its record."""
    print(f"== {name}", flush=True)
    busy, began = psutil.cpu_percent(interval=1.0) / 100, time.time()
    result = cell.measure()
    seconds = time.time() - began
    record = {
        "name": name,
        "kind": cell.kind,
        "commit": current_commit(),
        "began": time.strftime("%Y-%m-%d", time.gmtime(began)),
        "seconds": round(seconds, 1),
        "busy": round(busy, 3),
        "machine": machine(),
        "versions": versions(Path(sys.executable), _VERSIONS),
        "result": result,
    }
    (folder / f"{name}.json").write_text(json.dumps(record) + "\n")
    print(f"== {name}: {seconds:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", nargs="*", metavar="CELL", help="repeat these")
    parser.add_argument("--minutes", type=float, default=60.0, help="start no cell that would end later")
    parser.add_argument("--quick", action="store_true", help="small, and the page is left alone")
    parser.add_argument("--folder", type=Path, help="folder for the cells")
    parser.add_argument("--page", action="store_true", help="only fill the page")
    options = parser.parse_args()
    known = cells(is_quick=options.quick)
    if unknown := set(options.cells) - known.keys():
        parser.error(f"no such cell: {', '.join(sorted(unknown))}; known are {', '.join(known)}")
    folder = (options.folder or ROOT / "build" / ("growth-quick" if options.quick else "growth")).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    left = [] if options.page else run_cells(known, options.cells, folder, options.minutes)
    if left:
        print(f"{len(left)} of {len(known)} cells are left: run it again")
    kept = folder / "page" if options.quick else DOCS / "growth"
    if not options.page:
        records = [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]
        try:
            write_growth(Growth(sorted(records, key=in_order)), kept)
        except ValueError as error:
            print(f"nothing was written yet: {error}")
            return
    growth = read_growth(kept)
    if not options.quick:
        fill_page(growth, DOCS / "sizing.md")


def run_cells(known: dict[str, Cell], named: list[str], folder: Path, minutes: float) -> list[str]:
    """Make the named cells, or those this commit lacks, within ``minutes``. Return those still missing."""
    commit, ends_at = current_commit(), time.monotonic() + 60 * minutes

    def is_there(name: str) -> bool:
        file = folder / f"{name}.json"
        return file.exists() and json.loads(file.read_text())["commit"] == commit

    wanted = named or [name for name in known if not is_there(name)]
    if wanted:
        # The first processes of a checkout write byte code, and read all files from the disk.
        measure_rounds(3, 10)
    while wanted and time.monotonic() + known[wanted[0]].about_s <= ends_at:
        make(wanted[0], known[wanted[0]], folder)
        wanted = wanted[1:]
    return [name for name in known if not is_there(name)]


def in_order(record: dict[str, Any]) -> tuple[str, int, int]:
    """Return the sort key of cells: kind, weights, number of devices."""
    result = record["result"]
    return record["kind"], result.get("dim", 0), result.get("n", 0)


if __name__ == "__main__":
    main()
