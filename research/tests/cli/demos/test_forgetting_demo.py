"""``foltr demo-forget`` does what it shows: harm, a request by MQTT, recovery, a receipt, and no byte left."""

import json
import sqlite3
from dataclasses import replace

import pytest
from cli.commands import foltr, foltr_process
from cli.snippets import commands_of
from support.waiting import PATIENCE_S

from foltr.core.data.sources import load_data
from foltr.core.erasure.receipt import verify_receipt
from foltr.core.errors import FoltrError
from foltr.core.protocol.signing import key_from_text
from foltr_research.cli.demos.departure import check_promise
from foltr_research.cli.demos.residue import in_files, sqlite_files
from foltr_research.simulation.clients.population import iid_population
from foltr_research.simulation.config import SimulationConfig
from foltr_research.simulation.unlearning.departure import Leaver, UnlearningSimulation

KEPT = {
    "client": "leaver-0a1b2c3d",
    "state": "forgotten",
    "receipt_verified": True,
    "bytes_before": {"database": 5, "broker": 3},
    "bytes_left": 0,
}


def demo(folder, *options: str):
    """The results of a run in ``folder``, and what it printed."""
    file = folder / "results.json"
    (command,) = commands_of("docs/README.md", "foltr", "demo-forget")
    done = foltr_process(*command[1:], *options, "--json", file, cwd=folder, timeout_s=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(file.read_text()), done.stdout


def check(results, n_steps: int) -> None:
    forget = results["forget"]
    assert (forget["state"], forget["receipt_verified"], forget["bytes_left"]) == ("forgotten", True, 0)
    assert set(forget["bytes_before"]) == {"database", "data keys", "its own store", "broker"}
    assert all(found > 0 for found in forget["bytes_before"].values())
    assert (forget["strategy"], forget["rounds_replayed"], forget["coverage"]) == ("relearn", n_steps, 1.0)
    ndcg = forget["ndcg_at_10"]
    assert ndcg["poisoned"] < min(ndcg["honest"], ndcg["retrained"])
    assert ndcg["poisoned"] < ndcg["unlearned"]


def test_a_client_is_forgotten_before_our_eyes(tmp_path):
    """The figures are the simulator's, the receipt is the federator's, the files are clean, and progress is shown."""
    results, printed = demo(tmp_path, "--clients", "5", "--rounds", "10", "--clicks", "perfect")
    check(results, n_steps=10)
    forget, name = results["forget"], results["forget"]["client"]
    receipt = verify_receipt(forget["receipt"], key_from_text("key", forget["federator_key"]))
    assert (receipt.n_updates, receipt.requested_by, receipt.key_destroyed) == (10, "device", True)

    data = load_data("synthetic", seed=1)
    config = SimulationConfig(clients=5, rounds=10, clicks=("perfect",), eval_every=10)
    population = iid_population(data.train, data.test, 5, config.clicks, config.interactions, data.n_grades)
    harmed = UnlearningSimulation(config, population, Leaver(4, z=2.0)).federate()
    assert forget["ndcg_at_10"]["poisoned"] == pytest.approx(harmed.trained.ndcg[-1][1], abs=1e-12)
    others = replace(population, clients=population.clients[:4])
    alone = UnlearningSimulation(config.changed(clients=4), others, Leaver(3, z=None)).federate()
    assert forget["ndcg_at_10"]["retrained"] == pytest.approx(alone.trained.ndcg[-1][1], abs=1e-12)

    database = tmp_path / "foltr-demo-forget.sqlite"
    assert in_files([*sqlite_files(database), tmp_path / f"{database.name}.keys"], (name.encode(),)) == 0
    assert len([file for file in (tmp_path / f"{database.name}.keys").rglob("*") if file.is_file()]) == 4
    with sqlite3.connect(database) as connection:
        (left,) = connection.execute("SELECT count(*) FROM models WHERE tainted_at IS NOT NULL AND weights IS NOT NULL")
    connection.close()
    assert left == (0,)
    for said in (name, "round 10/10", "unlearning, relearn: step 10/10", "verified with the federator's key"):
        assert said in printed
    (command,) = [line.split() for line in printed.splitlines() if " erasure verify " in line]
    verified = foltr(*command[1:], cwd=tmp_path)
    assert verified.returncode == 0, verified.stderr
    assert receipt.pseudonym in verified.stdout
    assert (tmp_path / "foltr-demo-forget.sqlite.receipt.jws").read_text().strip() == forget["receipt"]
    verified = foltr(
        "erasure", "verify-log", "--db", results["db"], "--federation", results["federation"], cwd=tmp_path
    )
    assert verified.returncode == 0, verified.stderr


def test_at_the_size_it_has_by_default(tmp_path, mosquitto_server):
    """Ten clients and forty rounds, over Mosquitto: else the command of the README as it stands there."""
    results, _ = demo(tmp_path, "--broker", mosquitto_server.url)
    check(results, n_steps=40)
    assert (results["config"]["clients"], results["config"]["rounds"]) == (10, 40)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--clients", "1"), "clients: 1; at least 2 are needed"),
        (("--method", "foltr-es"), "method: foltr-es; this demonstration needs fpdgd or fedprox"),
    ],
)
def test_what_makes_no_sense_is_one_line(options, said, tmp_path):
    """Exit code 2, and no database is made."""
    done = foltr("demo-forget", "--data", "synthetic", *options, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("otherwise", "said"),
    [
        ({"state": "forgetting", "receipt_verified": False}, "after 600 s its request is only forgetting"),
        ({"receipt_verified": False}, "its receipt is not valid"),
        ({"bytes_left": 15}, "15 bytes of it are left"),
        ({"bytes_before": {"database": 5, "broker": 0}}, "nothing of it was found in broker even before"),
    ],
)
def test_a_broken_promise_is_an_error(otherwise, said):
    """In one line, which says what of it is broken."""
    check_promise(KEPT)
    with pytest.raises(FoltrError, match=said) as raised:
        check_promise({**KEPT, **otherwise})
    assert "\n" not in str(raised.value)
