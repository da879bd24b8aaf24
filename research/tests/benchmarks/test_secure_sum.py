"""The benchmark of secure sums runs, and what it prints can be read. No figure is judged."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from cli.commands import program_process

BENCHMARK = Path(__file__).parents[3] / "research/benchmarks" / "secure_sum.py"


def test_each_size_has_a_row(tmp_path: Path) -> None:
    """The machine, versions, and times of client, helper, noise and federator."""
    file = tmp_path / "results.json"
    sizes = ("--clients", "5,60", "--dims", "136", "--helpers", "2,3", "--repeats", "1")
    done = program_process(BENCHMARK, *sizes, "--json", file, timeout_s=100)
    assert done.returncode == 0, done.stderr
    assert re.search(r"Python [\d.]+, NumPy [\d.]+\n.*client ms", done.stdout)
    rows = json.loads(file.read_text())["results"]
    assert [(row["clients"], row["helpers"]) for row in rows] == [(5, 2), (60, 2), (5, 3), (60, 3)]
    assert all(row[name] > 0 for row in rows for name in row if "_ms" in name)


def test_the_sum_of_flowers_clients_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is timed is a whole round of SecAgg+: its mean is the updates', up to its grid."""
    pytest.importorskip("flwr", reason="flwr is no dependency of the project: make bench-peers installs it apart")
    monkeypatch.setattr(sys, "path", [str(BENCHMARK.parent), *sys.path])
    from secagg_plus import Group

    updates = np.random.default_rng(3).normal(size=(7, 50)).astype(np.float32)
    group = Group(updates)
    assert all(seconds > 0 for seconds in group.client_stages())
    np.testing.assert_allclose(group.release()[0], updates.mean(axis=0), atol=1e-5)


def test_neighbours_are_a_few_of_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the logarithm of the clients, and an odd number, so that as many are on either side."""
    monkeypatch.setattr(sys, "path", [str(BENCHMARK.parent), *sys.path])
    from secagg_plus import shares_of, threshold_of

    assert [shares_of(n) for n in (5, 50, 1000, 5000)] == [5, 13, 21, 27]
    assert [threshold_of(n) for n in (3, 13, 21)] == [2, 8, 14]
