"""The benchmark of secure sums runs, and what it prints can be read. No figure is judged."""

import json
import re
import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "secure_sum.py"


def test_each_size_has_a_row(tmp_path: Path) -> None:
    """The machine, versions, and times of client, helper, noise and federator."""
    file = tmp_path / "results.json"
    sizes = ("--clients", "5,60", "--dims", "136", "--helpers", "2,3", "--repeats", "1")
    command = [sys.executable, str(BENCHMARK), *sizes, "--json", str(file)]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=100, check=True).stdout
    assert re.search(r"Python [\d.]+, NumPy [\d.]+\n.*client ms", printed)
    rows = json.loads(file.read_text())["results"]
    assert [(row["clients"], row["helpers"]) for row in rows] == [(5, 2), (60, 2), (5, 3), (60, 3)]
    assert all(row[name] > 0 for row in rows for name in row if "_ms" in name)
