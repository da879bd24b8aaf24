"""The benchmark of the robust rules runs without peers, and what it prints can be read. No figure is judged."""

import json
import re
from pathlib import Path

from cli.commands import program_process

from foltr.core.aggregation.rule_spec import PRE_STEPS, RULES

BENCHMARK = Path(__file__).parents[3] / "research/benchmarks" / "aggregation.py"


def test_every_rule_beside_its_limit(tmp_path: Path) -> None:
    """Machine, versions, and for each rule and pre-step our time, the limit's, their ratio and the memory."""
    file = tmp_path / "results.json"
    options = ("--sizes", "20x30", "--repeats", "1", "--no-peers", "--json", file)
    done = program_process(BENCHMARK, *options, timeout_s=100)
    assert done.returncode == 0, done.stderr
    assert re.search(r"Python [\d.]+, NumPy [\d.]+\n.*one core, float32, m = n / 5, medians of 1", done.stdout)
    rows = {row["rule"]: row for row in json.loads(file.read_text())["results"]}
    assert rows.keys() >= {*RULES, *PRE_STEPS} - {"adaptive"}
    for row in rows.values():
        assert row["ours_ms"] > 0 < row["limit_ms"]
        assert row["ratio"] > 0 < row["memory"]
