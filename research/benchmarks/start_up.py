"""How long foltr's processes take to be ready: the command line, a device's import, its first list, a federator.

Run: python research/benchmarks/start_up.py [--repeats N] [--json FILE]

Each time is of a fresh process whose files the system has read before, as after the first start. ``help_s``:
``foltr --help`` to its end. ``import_s``: ``from foltr import EdgeClient`` in a running interpreter. ``rank_ms``: the
first list that a device ranks by a federation's model of 136 weights, 120 documents, as soon as it has the model; it
uses numba if that is installed here. ``again_ms``: another list, after everything is loaded. ``federator_s``: from
``foltr federator run`` on a migrated SQLite file to its first retained message at the broker. Figures are medians, in
seconds except ``rank_ms`` and ``again_ms``. ``import_parts`` are the packages that take longest to import for a device,
with the seconds of their own modules; ``federator_parts`` are those of a federator. flower_rounds.py measures Flower's
start.
"""

import importlib.util
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from bare_exchange import PEER, connected
from command_line import parser_of, write_json
from servers import FEDERATION, FOLTR, Servers, describe_machine, stop

DIM = 136

_IMPORT = """
import time
began = time.perf_counter()
from foltr import EdgeClient
print(time.perf_counter() - began)
"""

_RANK = """
import asyncio, sys, time
import numpy as np
from foltr import Connection, EdgeClient
async def main():
    features = np.random.default_rng(0).random((120, int(sys.argv[2])), dtype=np.float32)
    connection = Connection(sys.argv[1], sys.argv[3], "one")
    async with EdgeClient(store=":memory:", connection=connection) as client:
        while client.model_version is None:
            await asyncio.sleep(0.001)
        for _ in range(2):
            began = time.perf_counter()
            client.rank(features)
            print(time.perf_counter() - began)
            await client.next_round(timeout_s=60)
asyncio.run(main())
"""


def seconds_of(command: list[str]) -> float:
    """Return the seconds until a command has ended."""
    began = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def said_by(script: str, *arguments: str) -> list[float]:
    """Return the numbers that a script prints in a separate process."""
    command = [sys.executable, "-c", script, *arguments]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    return [float(number) for number in done.stdout.split()]


def import_parts(statement: str, n: int = 5) -> dict[str, float]:
    """Return the seconds of an import by package, without its dependencies; the n longest."""
    command = [sys.executable, "-X", "importtime", "-c", statement]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stderr
    parts: Counter[str] = Counter()
    for line in told.splitlines():
        own, _, module = (word.strip() for word in line.removeprefix("import time:").split("|"))
        if own.isdigit():
            parts[module.partition(".")[0]] += int(own)
    return {package: 1e-6 * microseconds for package, microseconds in parts.most_common(n)}


def federator_and_rank() -> tuple[float, float, float]:
    """Return seconds until a federator runs, and those of a device's first and second list."""
    with tempfile.TemporaryDirectory() as name, Servers(Path(name), signed=False) as servers:
        access = servers.access(PEER)
        servers.start_broker()
        is_there = threading.Event()
        with connected(access, PEER, [f"foltr/v1/{FEDERATION}/#"], lambda _message: is_there.set()):
            began = time.perf_counter()
            federator = servers.start_federator("--features", str(DIM), "--min-clients", "1", "--max-clients", "2")
            assert is_there.wait(60), "the federator said nothing"
            ready_s = time.perf_counter() - began
        first_s, again_s = said_by(_RANK, servers.broker_url, str(DIM), FEDERATION)
        stop(federator)
    return ready_s, first_s, again_s


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    print(describe_machine())
    help_command = [*FOLTR, "--help"]
    if options.repeats > 1:  # by then the system has read all files
        seconds_of(help_command), said_by(_IMPORT)
    starts = [federator_and_rank() for _ in range(options.repeats)]
    results = {
        "help_s": statistics.median(seconds_of(help_command) for _ in range(options.repeats)),
        "import_s": statistics.median(said_by(_IMPORT)[0] for _ in range(options.repeats)),
        "rank_ms": 1e3 * statistics.median(first_s for _, first_s, _ in starts),
        "again_ms": 1e3 * statistics.median(again_s for _, _, again_s in starts),
        "federator_s": statistics.median(ready_s for ready_s, _, _ in starts),
        "import_parts": import_parts("from foltr import EdgeClient"),
        "federator_parts": import_parts("import foltr.federator.service, foltr.cli.federator"),
        "numba": importlib.util.find_spec("numba") is not None,
    }
    print(
        f"foltr --help {results['help_s']:.2f} s; importing a device {results['import_s']:.2f} s; its first list "
        f"{results['rank_ms']:.1f} ms; a federator {results['federator_s']:.2f} s"
    )
    write_json(options.json, results)


if __name__ == "__main__":
    main()
