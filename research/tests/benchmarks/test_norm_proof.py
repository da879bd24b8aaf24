"""The benchmark of norm proofs runs, and what it prints can be read. No figure is judged but sizes, which are exact."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from foltr.core.numerics.compiled import COMPILED

BENCHMARK = Path(__file__).parents[3] / "research/benchmarks" / "norm_proof.py"


@pytest.mark.parametrize("numba", ["with numba", "without"])
def test_each_size_has_a_row(tmp_path: Path, numba: str) -> None:
    """The machine, versions, times of a device and of each verifier; without numba by whole arrays alone."""
    file = tmp_path / "results.json"
    sizes = ("--dims", "136,1000", "--helpers", "2,3", "--repeats", "1")
    environment = os.environ | ({"NUMBA_DISABLE_JIT": "1"} if numba == "without" else {})
    command = [sys.executable, str(BENCHMARK), *sizes, "--json", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True, env=environment)
    assert re.search(r"Python [\d.]+, NumPy [\d.]+\n.*client ms", done.stdout)
    rows = json.loads(file.read_text())["results"]
    assert [(row["dim"], row["helpers"]) for row in rows] == [(136, 2), (136, 3), (1000, 2), (1000, 3)]
    assert [row["proof_bytes"] for row in rows[:2]] == [1080, 1080]
    assert [row["answer_bytes"] for row in rows[:2]] == [944, 944]
    verifiers = {"helper_numpy_ms", "federator_numpy_ms"}
    if COMPILED and numba == "with numba":
        verifiers |= {"helper_ms", "federator_ms"}
    assert {name for name in rows[0] if name.endswith("_ms")} == verifiers | {"client_ms"}
    assert all(row[name] > 0 for row in rows for name in verifiers)
