"""The benchmark of comparisons says what a list costs and tells. No figure is judged."""

import json
from pathlib import Path

import pytest
from cli.commands import program_process

BENCHMARK = Path(__file__).parents[3] / "research/benchmarks" / "comparison.py"


@pytest.mark.slow
def test_it_writes_a_figure_for_every_pair_of_models(tmp_path: Path) -> None:
    """By click model; and the cost by candidates."""
    file = tmp_path / "found.json"
    options = ("--rounds", "31", "--lists", "20", "--json", file)
    done = program_process(BENCHMARK, "synthetic", *options, timeout_s=200)
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text())
    assert found["microseconds"].keys() == {"10 candidates", "100 candidates", "1000 candidates"}
    assert all(cost > 0 for cost in found["microseconds"].values())
    assert len(found["told"]) == 3 * 6
    assert found["told"][0].keys() == {"clicks", "newest, anchor", "agreement", "lead", "first clicks"}
