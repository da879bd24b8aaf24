"""``foltr demo`` and the commands that look at what it left in the database agree."""

import asyncio
import json
import sqlite3

import numpy as np
import pytest
from cli.commands import foltr, foltr_process
from support.history_database import made_history
from support.prepared_processes import with_defaults

# No round ends because the machine is busy.
LONG_ROUNDS = with_defaults({"foltr.cli.demo._MAX_TIME_S": 3600.0})


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """One small demo run on a synthetic set: its folder, its results and its options for other commands."""
    folder = tmp_path_factory.mktemp("demo")
    db = f"sqlite:///{folder}/demo.sqlite"
    arguments = ("--clients", "4", "--rounds", "6", "--data", "synthetic", "--db", db, "--json", "out.json")
    done = foltr_process("demo", *arguments, cwd=folder, code=0, **LONG_ROUNDS)
    results = json.loads((folder / "out.json").read_text())
    return folder, results, ("--db", db, "--federation", results["federation"]), done.stdout


def test_the_results_have_what_was_promised(demo):
    """ndcg_at_10, updates, rounds and db, with the counts of a run without trouble."""
    _, results, _, _ = demo
    assert len(results["ndcg_at_10"]["per_round"]) == 6
    assert results["ndcg_at_10"]["last"] == results["ndcg_at_10"]["per_round"][-1]
    assert results["updates"]["accepted"] == 24
    # A receipt that is late has its update sent again.
    assert results["updates"]["rejected"].keys() <= {"duplicate"}
    assert results["rounds"] == {"completed": 6}
    assert results["db"].startswith("sqlite:///")


def test_show_and_list_commands_print_json_and_tables(demo):
    """Everything that prints a table also prints JSON; what is not there is exit code 2 and how to list what is."""
    _, _, options, _ = demo
    shown = json.loads(foltr("rounds", "show", "3", *options, "--json").stdout)
    assert shown["round"]["round"] == 3
    assert len(shown["contributions"]) == 4
    clients = json.loads(foltr("device", "list", *options, "--json").stdout)
    assert [client["client_id"] for client in clients] == [f"device-{i:03d}" for i in range(1, 5)]
    client = json.loads(foltr("device", "show", "device-002", *options, "--json").stdout)
    assert [row["round"] for row in client["contributions"]] == list(range(1, 7))
    models = json.loads(foltr("models", "list", *options, "--json").stdout)
    assert [model["version"] for model in models] == list(range(7))
    for command in (("rounds", "show", "3"), ("device", "list"), ("device", "show", "device-002"), ("models", "list")):
        assert foltr(*command, *options, code=0).stdout.strip()
    for command in (("rounds", "show", "99"), ("device", "show", "nobody")):
        assert f"foltr {command[0]} list" in foltr(*command, *options, code=2).stderr, command


def test_a_model_can_be_exported(demo):
    """The newest weights as a NumPy file: float32, one a feature, not all zero."""
    folder, _, options, _ = demo
    foltr("models", "export", "--out", "model.npy", *options, cwd=folder, code=0)
    weights = np.load(folder / "model.npy")
    assert weights.dtype == np.float32
    assert weights.shape == (136,)
    assert np.abs(weights).max() > 0


def test_rounds_why_says_that_no_round_is_open(demo):
    """The demo's last round has ended: no error, and what to do for more."""
    assert "No round is open: round 6" in foltr("rounds", "why", *demo[2], code=0).stdout
    report = json.loads(foltr("rounds", "why", *demo[2], "--json").stdout)
    assert report["round"]["number"] == 6
    assert report["in_words"].startswith("No round is open")
    assert report["awaited"] == report["online"]


def test_a_withdrawn_model_is_not_exported(tmp_path):
    """Its weights are deleted: that is said, and no empty file is written."""
    url = f"sqlite:///{tmp_path}/withdrawn.sqlite"
    asyncio.run(made_history(url, "default"))
    connection = sqlite3.connect(tmp_path / "withdrawn.sqlite")
    connection.execute("UPDATE models SET weights = NULL, tainted_at = created_at, withdrawn_at = created_at")
    connection.commit()
    connection.close()
    done = foltr("models", "export", "--db", url, "--out", tmp_path / "m.npy", cwd=tmp_path, code=2)
    assert "was withdrawn on" in done.stderr
    assert not (tmp_path / "m.npy").exists()
