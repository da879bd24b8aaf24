"""Seconds, memory and speed of reading MSLR-like LETOR text: 136 features, normalised by query, on one core.

Run: python research/benchmarks/reading.py [--megabytes N] [--repeats N] [--json FILE]

The file is made of random numbers in a temporary folder and deleted afterwards. Every reading is a separate process
with an empty cache of parsed files; the file itself is in the system's page cache, as after a download. Machine code
comes from numba's cache on disk, as in every run except a machine's first. The cost of compiling that first time is
measured separately, with an empty numba cache. Memory is the process's peak (VmHWM), beside its memory before reading
and after reading a tiny file. Figures are medians.

If scikit-learn is installed, its ``load_svmlight_file`` is the peer: it reads the same file in turns with ours, into a
dense float32 array and without normalising. The JSON file has the medians of both, times in seconds and memory in
bytes.
"""

import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
from command_line import parser_of, write_json

FEATURES, DOCS_A_QUERY, DISTINCT_LINES = 136, 120, 2_000

READ = """
import json, re, sys, time
from pathlib import Path
from foltr.core.data.letor import load_letor
def memory(field):
    return int(re.search(field + r":\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024
start = time.perf_counter()
load_letor(Path(sys.argv[2]), cache_dir=Path(sys.argv[3]))
first = time.perf_counter() - start
before = memory("VmRSS")
start = time.perf_counter()
data = load_letor(Path(sys.argv[1]), cache_dir=Path(sys.argv[3]))
seconds = time.perf_counter() - start
peak = memory("VmHWM")
start = time.perf_counter()
load_letor(Path(sys.argv[1]), cache_dir=Path(sys.argv[3]))
again = time.perf_counter() - start
print(json.dumps(dict(first=first, seconds=seconds, again=again, before=before, peak=peak, array=data.features.nbytes,
    docs=len(data.relevance))))
"""

READ_BY_PEER = """
import json, re, sys, time
from pathlib import Path
from sklearn.datasets import load_svmlight_file
def memory(field):
    return int(re.search(field + r":\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024
load_svmlight_file(sys.argv[2], query_id=True)
before = memory("VmRSS")
start = time.perf_counter()
import numpy as np
features, relevance, queries = load_svmlight_file(sys.argv[1], dtype=np.float32, query_id=True)
dense = features.toarray()
seconds = time.perf_counter() - start
print(json.dumps(dict(seconds=seconds, before=before, peak=memory("VmHWM"), array=dense.nbytes)))
"""


def write_collection(path: Path, megabytes: float, rng: np.random.Generator) -> int:
    """Write random lines like MSLR-WEB10K's: counts, ratios, scores and a few very large values."""
    endings = []
    for _ in range(DISTINCT_LINES):
        kind = rng.integers(4, size=FEATURES)
        numbers = rng.gamma(1.0, 20.0, size=FEATURES)
        words = [
            f"{i}:{int(x)}" if k < 2 else f"{i}:{x / 100:.6g}" if k == 2 else f"{i}:{x:.6f}"
            for i, (k, x) in enumerate(zip(kind.tolist(), numbers.tolist(), strict=True), start=1)
        ]
        words[rng.integers(FEATURES)] = ""
        endings.append(" ".join(filter(None, words)).encode() + b" \n")
    written, line = 0, 0
    with path.open("wb") as file:
        while written < megabytes * 1e6:
            grades = rng.integers(5, size=DOCS_A_QUERY).tolist()
            query = line // DOCS_A_QUERY + 1
            written += file.write(
                b"".join(
                    b"%d qid:%d %b" % (grade, query, endings[(line + i) * 7 % DISTINCT_LINES])
                    for i, grade in enumerate(grades)
                )
            )
            line += DOCS_A_QUERY
    return written


def read_once(path: Path, tiny: Path, script: str = READ, **environment: str) -> dict[str, float]:
    """Read in a separate process, pinned to one core."""
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run(
            [sys.executable, "-c", script, str(path), str(tiny), cache],
            env=os.environ | {"OPENBLAS_NUM_THREADS": "1"} | environment,
            capture_output=True,
            text=True,
            check=True,
            preexec_fn=lambda: os.sched_setaffinity(0, [min(os.sched_getaffinity(0))]),
        )
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--megabytes", type=float, default=192.0)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    print(f"{platform.platform()}, {platform.machine()}, Python {platform.python_version()}, NumPy {np.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        path, tiny = Path(folder) / "train.txt", Path(folder) / "tiny.txt"
        size = write_collection(path, options.megabytes, np.random.default_rng(0)) / 1e6
        tiny.write_text("1 qid:1 1:1.5\n")
        # Fills numba's cache for the other processes.
        read_once(tiny, tiny)
        has_peer = importlib.util.find_spec("sklearn") is not None
        runs, peer_runs = [], []
        for _ in range(options.repeats):
            runs.append(read_once(path, tiny))
            if has_peer:
                peer_runs.append(read_once(path, tiny, READ_BY_PEER))
        with tempfile.TemporaryDirectory() as numba_cache:
            compiling = read_once(tiny, tiny, NUMBA_CACHE_DIR=numba_cache)["first"]
    median = medians(runs)
    above = median["peak"] - median["before"]
    print(f"{size:.0f} MB of text, {median['docs']:,.0f} documents, array {median['array'] / 1e6:.0f} MB")
    speed = f"{median['seconds']:.2f} s, {size / median['seconds']:.0f} MB/s"
    print(f"reading: {speed}; again, from the cache: {median['again'] * 1e3:.1f} ms")
    print(f"loading the machine code, in each process: {median['first']:.2f} s; making it, once: {compiling:.2f} s")
    print(
        f"peak while reading: {above / median['array']:.2f} x the array above the {median['before'] / 1e6:.0f} MB of a "
        f"process that is ready to read; {median['peak'] / 1e6:.0f} MB in all"
    )
    results = {"megabytes": size, "ours": {**median, "compiling": compiling}}
    if peer_runs:
        results["peer"] = peer = medians(peer_runs)
        print(f"scikit-learn: {peer['seconds']:.2f} s, peak {peer['peak'] / 1e6:.0f} MB in all")
    write_json(options.json, results)


def medians(runs: list[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.median(run[key] for run in runs) for key in runs[0]}


if __name__ == "__main__":
    main()
