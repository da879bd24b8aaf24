"""The benchmark of long histories, small: every part of it is measured, on both databases."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "histories.py"
SMALL = ("--updates", "4000", "--clients", "40", "--seconds", "1", "--leaving", "2")


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_each_part_has_its_figures(database_url, tmp_path) -> None:
    """Updates are answered in every part, two clients are forgotten, and old bodies go; a second run fills nothing."""
    file = tmp_path / "results.json"
    kept = ("--folder", tmp_path / "kept", "--json", file)
    where = ("--db", database_url) if database_url.startswith("postgresql") else ()
    command = [sys.executable, str(BENCHMARK), *SMALL, *kept, *where]
    subprocess.run(command, capture_output=True, text=True, timeout=100, check=True)
    results = json.loads(file.read_text())
    assert (results["n_updates"], results["n_rounds"]) == (4000, 100)
    assert results["queries"].keys() >= {"status", "rounds show", "clients show", "erasures list"}
    for part in ("serving", "forgetting", "retention"):
        assert results[part]["answered"]["n"] > 0, part
        # An update waits a minute where something is wrong, and not on a busy machine.
        assert results[part]["answered"]["most_ms"] < 10_000, part
    assert len(results["forgetting"]["told_s"]) == 2
    assert results["retention"]["n_thinned"] > 0
    subprocess.run([*command, "--only", "sizes"], capture_output=True, timeout=60, check=True)
    assert json.loads(file.read_text())["filled_s"] < results["filled_s"]
