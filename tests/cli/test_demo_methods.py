"""``foltr demo`` and ``foltr federator`` with other methods than the usual one."""

import json

import pytest
from cli.commands import foltr

from foltr.methods.registry import METHOD_NAMES

# What a method needs beside its name.
NEEDED = {
    "fedper": ("--ranker", "neural", "--hidden", "4"),
    "fedprox": ("--ranker", "neural", "--set", "mu=0.5"),
    "foltr-es": ("--set", "noise_scale=0.1", "--set", "antithetic=false"),
    "fedips": ("--clicks", "fedips-1", "--set", "propensities=estimated"),
}


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_every_method_runs_over_mqtt(method, tmp_path):
    """Three devices, three rounds: all updates count, and the results say by which method with which settings."""
    file = tmp_path / "results.json"
    options = ("--data", "synthetic", "--clients", "3", "--rounds", "3", "--db", f"sqlite:///{tmp_path}/demo.sqlite")
    done = foltr(
        "demo", *options, "--method", method, *NEEDED.get(method, ()), "--json", file, cwd=tmp_path, timeout_s=100
    )
    assert done.returncode == 0, done.stderr
    results = json.loads(file.read_text())
    assert results["updates"] == {"accepted": 9, "rejected": {}}
    assert results["config"]["method"] == method
    assert results["config"]["training"]["serp_length"] in (5, 10)
    assert len(results["ndcg_at_10"]["per_round"]) == 3


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--method", "fedper"), "fedper: a linear ranker has no hidden layer to share"),
        (("--method", "lambdarank"), "method: there is no 'lambdarank'"),
        (("--method", "fedprox", "--set", "nu=1"), "nu: fedprox has no such parameter; it has"),
        (("--method", "fedprox", "--set", "mu"), "--set: 'mu' is not name=value"),
        (("--ranker", "forest"), "ranker: "),
        (("--clicks", "careless"), "unknown click model 'careless'"),
    ],
)
def test_what_makes_no_sense_is_one_line(options, said, tmp_path):
    """Exit code 2 and what there is instead."""
    done = foltr("demo", "--data", "synthetic", "--clients", "2", "--rounds", "1", *options, cwd=tmp_path, timeout_s=60)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
