"""``foltr demo-secure`` does what it shows: noised sums teach, and a killed helper, lost and hostile devices do no
harm."""

import json
import sqlite3
from contextlib import closing

import pytest
from cli.commands import foltr, foltr_process
from cli.snippets import commands_of
from support.waiting import PATIENCE_S

SMALL = ("demo-secure", "--data", "synthetic", "--clients", "12", "--rounds", "4")


def run(folder, *words: str):
    """The results of a run in ``folder``, and what it printed."""
    file = folder / "results.json"
    done = foltr_process(*words, "--json", file, cwd=folder, timeout_s=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(file.read_text()), done.stdout


def check(results, *, n_rounds: int, mechanism: str, noise_by: str, delta: float, hostile: int = 0) -> None:
    assert results["rounds"] == {"completed": n_rounds, "abandoned": 0}
    assert results["privacy"] == {
        "mode": "secure",
        "mechanism": mechanism,
        "noise_by": noise_by,
        "epsilon": 8.0,
        "delta": delta,
        "participations": n_rounds,
        "helpers": 2,
    }
    assert set(results["ndcg_at_10"]) >= {"first", "last"}
    assert set(results["without_noise"]) == {"first", "last"}
    assert results["without_noise"]["first"] == pytest.approx(results["ndcg_at_10"]["first"], abs=1e-12)
    assert results["without_noise"]["last"] > results["without_noise"]["first"]
    assert results["vectors_stored"] == 0
    assert results["hostile"] == hostile
    if noise_by == "clients":
        assert results["norm_proofs"] is None
    else:
        assert results["norm_proofs"]["checked"] == results["updates"]["accepted"]
        assert (results["norm_proofs"]["failed"] > 0) == (hostile > 0)


def test_rounds_go_on_although_a_helper_is_killed_and_devices_vanish(tmp_path):
    """Each round has its model, the sums are in the database with what the helpers signed, and no vector is."""
    results, printed = run(tmp_path, *SMALL)
    check(results, n_rounds=4, mechanism="gaussian", noise_by="helpers", delta=1e-6)
    for said in (
        "Preparing the learner",
        "the helper north was killed",
        "the helper north restarts; round 3 continues once it has answered",
        "epsilon 8 with delta 1e-06 for 4 participations",
        "0 of them still have the sent vector",
    ):
        assert said in printed
    with closing(sqlite3.connect(tmp_path / "foltr-demo-secure.sqlite")) as connection:
        sums = connection.execute("SELECT round, n_clients FROM round_sums ORDER BY round").fetchall()
        answers = connection.execute("SELECT round, helper FROM helper_answers ORDER BY round, helper").fetchall()
        tallies = connection.execute("SELECT round FROM round_tallies ORDER BY round").fetchall()
    assert [number for (number,) in tallies] == [1, 2, 3, 4], "votes are paid for, and counted"
    assert [number for number, _ in sums] == [1, 2, 3, 4]
    # A round opens its sum with five of the seven that stay; on a slow machine it does not wait for the others.
    assert all(n_clients >= 5 for _, n_clients in sums)
    assert sums[-1][1] <= 7, "those that vanished are in no later sum"
    assert answers == [(number, helper) for number in (1, 2, 3, 4) for helper in ("north", "south")]
    replayed = foltr(
        "rounds", "replay", "4", "--db", results["db"], "--federation", results["federation"], cwd=tmp_path
    )
    assert replayed.returncode == 0, replayed.stdout + replayed.stderr


def test_hostile_devices_are_found_and_left_out(tmp_path):
    """Whoever sends what is far too long, with the best proof it can forge, is in no sum, and nobody else is blamed.

    By the command of the README.
    """
    (command,) = commands_of("docs/README.md", "foltr", "demo-secure")
    results, printed = run(tmp_path, *command[1:])
    check(results, n_rounds=6, mechanism="gaussian", noise_by="helpers", delta=1e-6, hostile=3)
    assert "3 devices send 50 times what the bound allows" in printed
    with closing(sqlite3.connect(tmp_path / "foltr-demo-secure.sqlite")) as connection:
        blamed = connection.execute("SELECT client_id, detail FROM event_history WHERE kind = 'ticket_refused'")
        found = blamed.fetchall()
    assert set(found) == {(f"device-00{i}", "norm_proof_failed") for i in (1, 2, 3)}
    assert results["norm_proofs"]["failed"] == len(found)
    assert f"{len(found)} failed and were left out of their sums" in printed


def test_noise_with_a_pure_epsilon(tmp_path):
    """Gamma's noise is drawn in shares by the clients, who prove no norms: there are models, and no delta."""
    results, _ = run(tmp_path, *SMALL, "--mechanism", "gamma", "--noise-by", "clients")
    check(results, n_rounds=4, mechanism="gamma", noise_by="clients", delta=0.0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--clients", "9"), "5 of them vanish"),
        (("--mechanism", "other"), "'other' is not one of gaussian, gamma"),
        (("--noise-by", "clients"), "only the noise of gamma"),
        (("--method", "foltr-es"), "foltr-es"),
        (("--clients", "15", "--hostile", "5"), "fewer than half may be hostile"),
        (
            ("--hostile", "1", "--mechanism", "gamma", "--noise-by", "clients"),
            "hostile devices are only found by norm proofs",
        ),
    ],
)
def test_what_cannot_be_shown_is_said(tmp_path, options, words):
    """In one line, without a federation having begun."""
    done = foltr("demo-secure", "--data", "synthetic", *options, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
