"""Run every benchmark beside its peer, one after the other, and write docs/benchmarks.md from the results.

Run: python research/benchmarks/bench.py [RUN ...] [--peers PYTHON] [--quick] [--page] [--folder FOLDER]

Each run is a process and writes build/bench/RUN.json: its results, the machine, the commit, and how busy others kept
the machine just before. A run that exists for this commit is skipped, so the same command resumes an interrupted one;
naming runs repeats them. If a run fails, the page says so and the others continue. Peers are measured by the Python of
a separate environment (make bench-peers); without it the page says so.

``--quick`` is small and only shows that everything runs: its page is beside its figures, in build/bench-quick or
``--folder``.
``--page`` runs nothing and writes the page from the existing figures.
"""

import argparse
import hashlib
import json
import os
import platform
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from bench_page import page_of

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
_TIMEOUT_S = 900.0
_OURS = ("foltr", "numpy", "numba", "scipy", "scikit-learn", "cryptography", "paho-mqtt", "aiomqtt", "sqlalchemy")
_PEERS = ("numpy", "byzfl", "torch", "flwr", "grpcio", "cryptography")


@dataclass(frozen=True)
class Run:
    """One benchmark.

    Attributes:
        script: in this folder.
        arguments: of the real run; "{folder}" is replaced by the folder for figures.
        quick: of a run that only shows that it works.
        by_peers: runs in the peers' environment, if it exists.
        needs_peers: it measures nothing but peers.
    """

    script: str
    arguments: str
    quick: str
    by_peers: bool = False
    needs_peers: bool = False


RUNS = {
    "learners": Run("learners.py", "--repeats 5", "--repeats 1 --scale 0.05"),
    "reading": Run("reading.py", "--repeats 3", "--repeats 1 --megabytes 4"),
    "rounds": Run("round_overhead.py", "--clients 10 100 1000 --rounds 20", "--clients 4 10 --rounds 4"),
    "rounds-profile": Run(
        "round_overhead.py",
        "--signed --clients 1000 --rounds 12 --profile {folder}/profiles",
        "--signed --clients 10 --rounds 12 --profile {folder}/profiles",
    ),
    "rounds-flower": Run(
        "flower_rounds.py", "--clients 10 100 --nodes 2", "--clients 4 --nodes 2 --rounds 4", True, True
    ),
    "aggregation": Run("aggregation.py", "--repeats 7", "--repeats 1 --sizes 20x30 --no-peers", True),
    "secure-sums": Run(
        "secure_sum.py",
        "--clients 50,1000 --dims 136,20000 --helpers 2,5",
        "--clients 5 --dims 136 --helpers 2 --repeats 1",
        True,
    ),
    "norm-proofs": Run("norm_proof.py", "--repeats 20", "--dims 136 --helpers 2 --repeats 1"),
    "secure-round": Run(
        "secure_round.py",
        "--clients 300 --rounds 5 --turns 2 --fleets 2 --norm-proof none",
        "--clients 6 --rounds 3 --turns 1",
    ),
    "unlearning": Run("unlearning_time.py", "--rounds 5000", "--rounds 100 --repeats 1"),
    "histories": Run(
        "histories.py",
        "--updates 1000000 --clients 300 --seconds 15",
        "--updates 4000 --clients 40 --seconds 1 --leaving 1",
    ),
    "start-up": Run("start_up.py", "--repeats 5", "--repeats 1"),
    "memory-mean": Run(
        "footprint.py", "--clients 1000 --rounds 3 --dims 136 20000", "--clients 4 --rounds 2 --dims 136 20000"
    ),
    "memory-median": Run(
        "footprint.py",
        "--clients 1000 --rounds 3 --dims 136 20000 --aggregation median",
        "--clients 4 --rounds 2 --dims 136 20000 --aggregation median",
    ),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="*", metavar="RUN", help=f"repeat these: {', '.join(RUNS)}")
    parser.add_argument("--peers", type=Path, default=ROOT / ".venv-peers/bin/python", metavar="PYTHON")
    parser.add_argument("--quick", action="store_true", help="small, and the page is written beside the figures")
    parser.add_argument("--folder", type=Path, help="folder for the figures")
    parser.add_argument("--page", action="store_true", help="only write the page")
    options = parser.parse_args()
    if unknown := set(options.runs) - RUNS.keys():
        parser.error(f"no such run: {', '.join(sorted(unknown))}; known are {', '.join(RUNS)}")
    folder = (options.folder or ROOT / "build" / ("bench-quick" if options.quick else "bench")).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    peers = options.peers if options.peers.exists() else None
    if not options.page:
        if peers is None:
            print(f"No peers: {options.peers} does not exist (make bench-peers)", flush=True)
        for name in options.runs or RUNS:
            make_run(name, folder, peers, options.quick, is_named=bool(options.runs))
    records = {name: json.loads(file.read_text()) for name in RUNS if (file := folder / f"{name}.json").exists()}
    page = (folder if options.quick else ROOT / "docs") / "benchmarks.md"
    page.write_text(page_of(records))
    failed = [name for name, record in records.items() if record["results"] is None]
    print(f"{page}: {len(records) - len(failed)} of {len(RUNS)} runs", flush=True)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


def make_run(name: str, folder: Path, peers: Path | None, is_quick: bool, *, is_named: bool) -> None:
    """Make one run, unless this commit has it already, and write its record."""
    run, file = RUNS[name], folder / f"{name}.json"
    commit = current_commit()
    if file.exists() and not is_named and still_counts(json.loads(file.read_text()), commit, has_peers=bool(peers)):
        print(f"{name}: exists for this commit", flush=True)
        return
    if run.needs_peers and peers is None:
        return
    python = peers if run.by_peers and peers else Path(sys.executable)
    words = (run.quick if is_quick else run.arguments).format(folder=folder).split()
    written = folder / f"{name}.results.json"
    written.unlink(missing_ok=True)
    shown = " ".join(words).replace(f"{folder}", "build/bench")
    print(f"== {name}: {run.script} {shown}", flush=True)
    busy, began = psutil.cpu_percent(interval=2.0) / 100, time.time()
    status = run_once([str(python), str(HERE / run.script), *words, "--json", str(written)])
    results = json.loads(written.read_text()) if status == 0 and written.exists() else None
    if results is not None and "--profile" in words:
        results = {"results": results, "profiles": profiles_in(folder / "profiles")}
    written.unlink(missing_ok=True)
    record = {
        "command": f"{run.script} {shown}",
        "commit": commit,
        "began": time.strftime("%Y-%m-%d", time.gmtime(began)),
        "seconds": time.time() - began,
        "busy": busy,
        "machine": machine(),
        "versions": versions(python, _PEERS if python == peers else _OURS),
        "has_peers": peers is not None,
        "results": results,
    }
    file.write_text(json.dumps(record, indent=1) + "\n")
    print(f"== {name}: {record['seconds']:.0f} s{'' if results is not None else ', FAILED'}", flush=True)


def still_counts(record: dict[str, Any], commit: str, *, has_peers: bool) -> bool:
    """Whether a record is current: it succeeded at this commit, and with peers if any exist now."""
    return record["results"] is not None and record["commit"] == commit and record["has_peers"] >= has_peers


def run_once(command: list[str]) -> int:
    """Run a command and return its exit code. It is stopped at a time limit."""
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "FLWR_TELEMETRY_ENABLED": "0",
    }
    with subprocess.Popen(command, env=environment, cwd=ROOT) as process:
        try:
            return process.wait(timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.terminate()
            return 1


def profiles_in(folder: Path, n_told: int = 12) -> dict[str, dict[str, list[tuple[str, float]]]]:
    """Return, by process, the folders of modules and the functions by their share of processor time, largest first.

    As in profiled.py a function's share includes C functions that it calls, but not Python functions.
    """
    profiles: dict[str, dict[str, list[tuple[str, float]]]] = {}
    for file in sorted(folder.iterdir()):
        own: dict[str, Counter[str]] = {"folders": Counter(), "functions": Counter()}
        for place, n in json.loads(file.read_text())["own"].items():
            function = place.partition(":")[0]
            own["functions"][function] += n
            own["folders"][function.partition("/")[0]] += n
        profiles[file.name.partition("-")[0]] = {
            kind: [(name, n / counts.total()) for name, n in counts.most_common(n_told)] for kind, counts in own.items()
        }
        file.unlink()
    return profiles


def current_commit() -> str:
    """Return its short name, with a digest of later changes. Changes to documents do not count."""
    commit, changes = (
        subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
        for words in (["rev-parse", "--short=10", "HEAD"], ["diff", "HEAD", "--", ".", ":!docs"])
    )
    changed = f"+{hashlib.sha256(changes.encode()).hexdigest()[:6]}" if changes else ""
    return f"{commit or 'unknown'}{changed}"


def machine() -> dict[str, Any]:
    cpu = platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        models = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        cpu = models[0] if models else cpu
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    return {
        "cpu": cpu,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(gigabytes),
        "system": platform.system(),
    }


def versions(python: Path, packages: tuple[str, ...]) -> str:
    script = (
        "import importlib.metadata as m, platform, sys\n"
        "found = ['Python ' + platform.python_version()]\n"
        "for name in sys.argv[1:]:\n"
        "    try: found.append(name + ' ' + m.version(name))\n"
        "    except m.PackageNotFoundError: pass\n"
        "print(', '.join(found))"
    )
    done = subprocess.run([str(python), "-c", script, *packages], capture_output=True, text=True, check=True)
    return done.stdout.strip()


if __name__ == "__main__":
    main()
