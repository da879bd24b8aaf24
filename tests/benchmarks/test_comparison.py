"""The benchmark of comparisons says what a list costs and tells. No figure is judged."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "comparison.py"


@pytest.mark.slow
def test_it_writes_a_figure_for_every_pair_of_models(tmp_path: Path) -> None:
    """By click model; and the cost by candidates."""
    file = tmp_path / "found.json"
    command = [sys.executable, str(BENCHMARK), "synthetic", "--rounds", "31", "--lists", "20", "--json", str(file)]
    subprocess.run(command, timeout=200, check=True)
    found = json.loads(file.read_text())
    assert found["microseconds"].keys() == {"10 candidates", "100 candidates", "1000 candidates"}
    assert all(cost > 0 for cost in found["microseconds"].values())
    assert len(found["told"]) == 3 * 6
    assert found["told"][0].keys() == {"clicks", "newest, anchor", "agreement", "lead", "first clicks"}
