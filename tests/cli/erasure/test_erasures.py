"""``foltr erasure``: what an officer is told of each erasure, and the receipt, by pseudonym or by name."""

import asyncio
import json
import shutil
import sqlite3

import pytest
from cli.commands import foltr
from support.databases import migrated_sqlite
from support.erasure_database import (
    DONE,
    IDLE,
    PAUSE_REASON,
    PAUSED,
    STAYED,
    WAITING,
    made_erasures,
    pseudonym_of,
    tampered,
)
from support.erasure_receipts import KEY

from foltr.core.erasure.receipt import verify_receipt
from foltr.core.protocol.enrolment import issue_roster
from foltr.core.protocol.roster import Revocation, Roster
from foltr.core.protocol.signing import SigningKey, key_to_text


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The folder of a database in which clients were forgotten."""
    folder = tmp_path_factory.mktemp("erasures")
    asyncio.run(made_erasures(f"sqlite:///{folder}/foltr.sqlite"))
    return folder


def erasures(folder, *arguments: str, **more):
    return foltr("erasure", *arguments, "--db", "sqlite:///foltr.sqlite", cwd=folder, **more)


def test_every_erasure_is_listed_with_its_job(folder):
    """Newest last, by pseudonym alone; state, times, progress, and whether there is a receipt."""
    done = erasures(folder, "list", "--json", code=0)
    rows = json.loads(done.stdout)
    assert [row["pseudonym"] for row in rows] == [pseudonym_of(name) for name in (DONE, IDLE, PAUSED, WAITING)]
    assert [row["state"] for row in rows] == ["done", "done", "unlearning", "waiting"]
    assert [row["has_receipt"] for row in rows] == [True, True, False, False]
    assert [row["requested_by"] for row in rows] == ["device", "device", "device", "operator"]
    of_done, of_idle, of_paused, of_waiting = (row["job"] for row in rows)
    assert (of_done["strategy"], of_done["step"], of_done["n_steps"], of_done["coverage"]) == ("rollback", 2, 2, 0.75)
    assert (of_done["model_version"], of_done["figures"]) == (3, {"cosine": 0.75})
    assert of_idle is None
    assert (of_paused["number"], of_paused["state"], of_paused["reason"]) == (3, "paused", PAUSE_REASON)
    assert of_waiting is None
    assert rows[0]["completed_at"] == "2026-01-02T03:19:05+00:00"
    # A name waits in the table until its device was told; a list that is passed around has none.
    assert "device-" not in done.stdout
    assert "weights" not in of_paused


def test_the_list_tells_how_far_each_one_is(folder):
    """In words; in 80 columns pseudonyms and times are whole, to be copied."""
    text = erasures(folder, "list").stdout
    for words in (
        "job 1, rollback: step 2 of 2, coverage 75%; made model 3",
        "not needed: it was in no model",
        f"job 3, rollback: step 1 of 2, coverage 90%; paused: {PAUSE_REASON}",
        "waits for a job",
    ):
        assert words in text
    narrow = erasures(folder, "list", COLUMNS="80").stdout
    assert max(len(line.rstrip()) for line in narrow.splitlines()) <= 80
    assert "…" not in narrow
    pseudonyms = map(pseudonym_of, (DONE, IDLE, PAUSED, WAITING))
    said = ("unlearning, by device", "waiting, by operator", "erased    2026-01-02 03:15", "no receipt yet")
    assert all(words in narrow for words in (*pseudonyms, *said))


def test_what_became_of_a_job_and_of_a_key_is_told(folder, tmp_path):
    """It failed, waits for the open round, or is gone; a fingerprint is whole, to be looked for in a folder of keys."""
    done = "UPDATE unlearning_jobs SET step = 2, state = 'running', reason = NULL WHERE number = 3"
    failed = "UPDATE erasures SET state = 'waiting', job = 2 WHERE state = 'unlearning'"
    gone = "DELETE FROM unlearning_jobs WHERE number = 1", "job 1, which the database does not have"
    for statement, said, arguments in (
        (failed, "step 0 of 2; failed: coverage 10%, of at least 50%; waits for another job", ("show", PAUSED)),
        ("UPDATE erasures SET key_fingerprint = x'0123456789abcdef'", "0123456789abcdef", ("show", PAUSED)),
        (*gone, ("list",)),
        (*gone, ("show", DONE)),
        (done, "step 2 of 2, coverage 45%; goes into service when the open round ends", ("list",)),
    ):
        shutil.copy(folder / "foltr.sqlite", tmp_path)
        tampered(tmp_path, statement)
        assert said in erasures(tmp_path, *arguments).stdout, statement


def test_an_erasure_whose_deadline_has_passed_is_told_of(folder, tmp_path):
    """In the list and by its exit code, until it is done."""
    shutil.copy(folder / "foltr.sqlite", tmp_path)
    tampered(tmp_path, "UPDATE erasures SET overdue_at = requested_at WHERE state IN ('waiting', 'done')")
    listed = erasures(tmp_path, "list", code=1)
    assert listed.stdout.count("OVERDUE") == 1
    assert "1 of them are not done, and their deadline has passed" in listed.stdout


def test_an_erasure_is_shown_by_pseudonym_and_by_name(folder):
    """In full, with its job; the digest is whole in a narrow terminal, too."""
    by_name = json.loads(erasures(folder, "show", DONE, "--json").stdout)
    by_pseudonym = json.loads(erasures(folder, "show", pseudonym_of(DONE), "--json").stdout)
    assert by_name == by_pseudonym | {"rows_of_it": {"clients": 1, "erasures": 1}}
    assert by_name["erasure"]["pseudonym"] == pseudonym_of(DONE)
    assert by_name["job"]["number"] == 1
    assert verify_receipt(by_name["erasure"]["receipt"], KEY.public).pseudonym == pseudonym_of(DONE)
    text = erasures(folder, "show", DONE, COLUMNS="80").stdout
    assert by_name["erasure"]["erased_digest"] in "".join(text.split())
    assert "Unlearning job 1" in text
    assert f"foltr erasure show {pseudonym_of(DONE)} --receipt FILE" in text


def test_what_still_names_a_client_is_counted(folder, tmp_path):
    """By its name alone: its row, the operator's roster; or none."""
    shutil.copy(folder / "foltr.sqlite", tmp_path)
    key = SigningKey(bytes(32))
    revoked = [Revocation(client_id=DONE, void_below=2)]
    roster = issue_roster(
        key, Roster(federation="mail", version=1, through=0, revoked=revoked, salt=bytes(32), forgotten=[])
    )
    connection = sqlite3.connect(tmp_path / "foltr.sqlite")
    waiting = "1 of clients, 1 of erasures; its row of clients keeps the name until its device has the answer"
    assert f"Rows of {WAITING} now: {waiting}" in erasures(tmp_path, "show", WAITING).stdout
    connection.execute("UPDATE erasures SET client = NULL, told = 1 WHERE pseudonym = ?", (pseudonym_of(DONE),))
    connection.execute("DELETE FROM clients WHERE client_id = ?", (DONE,))
    connection.commit()
    assert f"Rows of {DONE} now: none" in erasures(tmp_path, "show", DONE).stdout
    assert "Rows of" not in erasures(tmp_path, "show", pseudonym_of(DONE)).stdout
    connection.execute("UPDATE federations SET roster_version = 1, roster = ?", (roster,))
    connection.commit()
    connection.close()
    shown = erasures(tmp_path, "show", DONE).stdout
    assert f"Rows of {DONE} now: 1 of federations; federations has it in the operator's roster" in shown
    assert json.loads(erasures(tmp_path, "show", DONE, "--json").stdout)["rows_of_it"] == {"federations": 1}


def test_the_stored_receipt_is_written_and_is_genuine(folder):
    """To a file as `erasure request` writes it, or alone on standard output: what `foltr erasure verify` takes."""
    done = erasures(folder, "show", DONE, "--receipt", "device-7.jws", code=0)
    assert "foltr erasure verify device-7.jws" in done.stdout
    text = (folder / "device-7.jws").read_text()
    assert erasures(folder, "show", DONE, "--receipt", "-").stdout == text
    checked = foltr("erasure", "verify", "device-7.jws", "--key", key_to_text(KEY.public), "--json", cwd=folder)
    assert json.loads(checked.stdout)["receipt"]["pseudonym"] == pseudonym_of(DONE)


def test_what_cannot_be_shown_is_one_line_with_the_next_step(folder):
    """Exit code 1 for an unknown erasure, 2 for wrong usage; nothing on standard output."""
    for arguments, code, why in (
        (("nobody",), 1, "has erased no 'nobody', by pseudonym or name; see: foltr erasure list"),
        (("f" * 32,), 1, "see: foltr erasure list"),
        ((STAYED,), 1, f"{STAYED} of mail was not forgotten; see: foltr device show {STAYED}"),
        (("a/b",), 2, "'a/b' is not a name"),
        ((PAUSED, "--receipt", "-"), 1, "is unlearning: its receipt is signed when it is done"),
        ((DONE, "--receipt", "nowhere/r.jws"), 2, "receipt: nowhere/r.jws: No such file or directory"),
        ((DONE, "--receipt", "-", "--json"), 2, "because it has the receipt as a field"),
    ):
        done = erasures(folder, "show", *arguments)
        assert (done.returncode, done.stdout) == (code, ""), arguments
        assert why in done.stderr, arguments
        assert done.stderr.count("\n") == 1, arguments


def test_a_federator_that_signs_nothing_leaves_no_receipt(tmp_path):
    """That is said, and where the erasure is told of all the same."""
    asyncio.run(made_erasures(f"sqlite:///{tmp_path}/foltr.sqlite", signs=False))
    done = erasures(tmp_path, "show", DONE, "--receipt", "-")
    assert (done.returncode, done.stdout) == (1, "")
    assert "had no key to sign one with. Entry 4 of the audit log records it: foltr erasure log" in done.stderr
    assert "no receipt: nothing is signed" in erasures(tmp_path, "list").stdout
    erasures(tmp_path, "verify-log", code=0)  # no receipts, and nothing is missing


def test_a_federation_where_nobody_was_forgotten(tmp_path):
    """An empty list; and no name is found, also where no federator has made the key of pseudonyms yet."""
    migrated_sqlite(tmp_path / "foltr.sqlite")
    columns, at = "name, writer_epoch, ranker, n_features, created_at", "2026-01-02 03:04:05.000000"
    tampered(tmp_path, f"INSERT INTO federations ({columns}) VALUES ('mail', 0, 'linear', 1, '{at}')")  # noqa: S608 (ours)
    assert erasures(tmp_path, "list").stdout == "Erasures of mail: none\n"
    assert json.loads(erasures(tmp_path, "list", "--json").stdout) == []
    erasures(tmp_path, "show", "anna", code=1)


def test_rounds_show_where_updates_were_taken_out(folder):
    """How many of how many, in the list and in the round; programs have the number for every round."""
    options = ("--db", "sqlite:///foltr.sqlite")
    gone = foltr("device", "show", DONE, *options, cwd=folder, code=2).stderr
    assert f"{DONE} of mail was forgotten on 2026-01-02; see: foltr erasure show {DONE}" in gone
    rows = json.loads(foltr("rounds", "list", *options, "--json", cwd=folder).stdout)
    counts = [(row["round"], row["n_updates"], row["n_erased"]) for row in rows]
    assert counts == [(1, 1, 3), (2, 1, 2), (3, 0, 0), (4, 0, 0)]
    text = foltr("rounds", "list", *options, cwd=folder, COLUMNS="80").stdout
    assert "1 of 4" in text.splitlines()[2]
    assert "1 of 3" in text.splitlines()[3]
    assert "one of 4 updates is stored, the others were erased with clients" in text
    shown = foltr("rounds", "show", "1", *options, cwd=folder).stdout
    assert "Updates taken out since, with clients that were forgotten: 3; see: foltr erasure list" in shown
    assert "taken out" not in foltr("rounds", "show", "3", *options, cwd=folder).stdout
    assert json.loads(foltr("rounds", "show", "2", *options, "--json", cwd=folder).stdout)["round"]["n_erased"] == 2
