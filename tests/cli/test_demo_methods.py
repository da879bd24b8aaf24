"""``foltr demo`` and ``foltr federator`` with other methods than the usual one."""

import asyncio
import json

import numpy as np
import pytest
from cli.commands import foltr, start, stop
from support.waiting import PATIENCE_S

from foltr.broker.embedded import embedded_broker
from foltr.core.learning.linear import rank_by_score, score
from foltr.core.methods.registry import METHODS
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.options import Connection, Experiment

# What a method needs beside its name.
NEEDED = {
    "fedper": ("--ranker", "neural", "--hidden", "4"),
    "fedprox": ("--ranker", "neural", "--set", "mu=0.5"),
    "foltr-es": ("--set", "noise_scale=0.1", "--set", "antithetic=false"),
    "fedips": ("--clicks", "fedips-1", "--set", "propensities=estimated"),
}
# By day dense updates, drawn seeds, and a neural ranker with propensities.
BY_NIGHT = dict.fromkeys(METHODS.keys() - {"fpdgd", "foltr-es", "fedips"}, pytest.mark.nightly)


@pytest.mark.parametrize("method", [pytest.param(name, marks=BY_NIGHT.get(name, ())) for name in METHODS])
def test_every_method_runs_over_mqtt(method, tmp_path, monkeypatch):
    """Three devices, three rounds: all updates count, and the results say by which method with which settings."""
    monkeypatch.setattr("foltr.cli.demo._MAX_TIME_S", 3600.0)  # no round ends because the machine is busy
    options = ("--data", "synthetic", "--clients", "3", "--rounds", "3", "--db", f"sqlite:///{tmp_path}/demo.sqlite")
    words = (*options, "--method", method, *NEEDED.get(method, ()), "--json", "results.json")
    foltr("demo", *words, cwd=tmp_path, code=0)
    results = json.loads((tmp_path / "results.json").read_text())
    assert results["updates"]["accepted"] == 9
    # A receipt that is late has its update sent again.
    assert results["updates"]["rejected"].keys() <= {"duplicate"}
    assert results["config"]["method"] == method
    assert results["config"]["training"]["serp_length"] in (5, 10)
    assert len(results["ndcg_at_10"]["per_round"]) == 3


def test_what_makes_no_sense_is_one_line(tmp_path):
    """Exit code 2 and what there is instead."""
    for options, said in (
        (("--method", "fedper"), "fedper: a linear ranker has no hidden layer to share"),
        (("--method", "lambdarank"), "method: unknown 'lambdarank'"),
        (("--ranker", "forest"), "ranker: "),
        (("--clicks", "careless"), "unknown click model 'careless'"),
        (("--method", "fpdgd-paper", "--set", "epsilon=1e-6"), "sensitivity, epsilon: "),
    ):
        done = foltr("demo", "--data", "synthetic", "--clients", "2", "--rounds", "1", *options, cwd=tmp_path, code=2)
        assert said in done.stderr, options
        assert len(done.stderr.strip().splitlines()) == 1, options


def test_a_logging_policy_that_cannot_be_one_is_one_line(tmp_path):
    """Which file, what is in it, and what was expected."""
    np.save(tmp_path / "fits.npy", np.zeros(7, np.float32))
    np.save(tmp_path / "short.npy", np.zeros(6, np.float32))
    (tmp_path / "empty.npy").touch()
    for method, file, said in (
        ("fedips", "none.npy", "logging_policy: cannot read none.npy: No such file"),
        ("fedips", "short.npy", "short.npy holds float32 values of shape (6,); expected one float32 weight for each"),
        ("fedips", "empty.npy", "empty.npy is not a .npy file, as `foltr models export` writes them"),
        ("fpdgd", "fits.npy", "logging_policy: fpdgd shows the lists of the model it learns, so leave it out"),
    ):
        options = ("--method", method, "--features", "7")
        done = foltr("federator", "run", "--allow-unsigned", *options, cwd=tmp_path, FOLTR_LOGGING_POLICY=file, code=2)
        # Before it, the warning that nothing is signed.
        assert said in done.stderr.strip().splitlines()[-1], method


async def _shown(broker, features):
    """What a device of federation `second` shows for these candidates."""
    async with EdgeClient(
        store=":memory:",
        connection=Connection(broker=broker, federation="second", client_id="device-1"),
        experiment=Experiment(seed=1),
    ) as client:
        await client.next_round(after=0, timeout_s=PATIENCE_S)
        return client.rank(features).ranking


def test_a_model_of_one_federation_shows_the_lists_of_another(tmp_path):
    """It is exported, named to the federator of the other, and the devices there rank by it."""
    db = f"sqlite:///{tmp_path}/demo.sqlite"
    options = ("--data", "synthetic", "--clients", "2", "--rounds", "2")
    foltr("demo", *options, "--db", db, cwd=tmp_path, code=0)
    foltr("models", "export", "--db", db, "--out", "policy.npy", cwd=tmp_path, code=0)
    policy = np.load(tmp_path / "policy.npy")
    assert (policy != 0).any()
    features = np.random.default_rng(3).random((30, len(policy)), np.float32)
    with embedded_broker() as address:
        options = ("--method", "fedips", "--features", str(len(policy)), "--federation", "second")
        named = {"FOLTR_LOGGING_POLICY": "policy.npy", "FOLTR_ALLOW_UNSIGNED": "true"}
        federator = start("federator", "run", *options, "--db", db, "--broker", str(address), cwd=tmp_path, **named)
        try:
            shown = asyncio.run(_shown(str(address), features))
        finally:
            code, output = stop(federator)
    assert code == 0, output
    np.testing.assert_array_equal(shown, rank_by_score(score(policy, features), len(shown)))
