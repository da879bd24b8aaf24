"""The benchmark of long histories, small: every part of it is measured, on both databases."""

import json
from pathlib import Path

import pytest
from cli.commands import program_process

BENCHMARK = Path(__file__).parents[3] / "research/benchmarks" / "histories.py"
# Twice the rounds that retention keeps, so that it finds old ones at once.
SMALL = ("--updates", "4000", "--clients", "20", "--seconds", "1", "--leaving", "2")


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_each_part_has_its_figures(database_url, tmp_path) -> None:
    """Updates are answered in every part, two clients are forgotten, and old bodies go; a second run fills nothing."""
    file = tmp_path / "results.json"
    kept = ("--folder", tmp_path / "kept", "--json", file)
    where = ("--db", database_url) if database_url.startswith("postgresql") else ()
    done = program_process(BENCHMARK, *SMALL, *kept, *where, timeout_s=100)
    assert done.returncode == 0, done.stderr
    results = json.loads(file.read_text())
    assert (results["n_updates"], results["n_rounds"]) == (4000, 200)
    assert results["queries"].keys() >= {"status", "rounds show", "device show", "erasure list"}
    for part in ("serving", "forgetting", "retention"):
        assert results[part]["answered"]["n"] > 0, part
        # An update waits a minute where something is wrong, and not on a busy machine.
        assert results[part]["answered"]["most_ms"] < 10_000, part
    assert len(results["forgetting"]["told_s"]) == 2
    assert results["retention"]["n_thinned"] > 0
    done = program_process(BENCHMARK, *SMALL, *kept, *where, "--only", "sizes")
    assert done.returncode == 0, done.stderr
    assert json.loads(file.read_text())["filled_s"] < results["filled_s"]
