"""``foltr erasure log``: what it has is listed, and what was changed, taken out or added by others is named."""

import asyncio
import json
import re
import shutil
import sqlite3
from datetime import UTC, datetime, timedelta

import pytest
from cli.commands import foltr
from support.databases import open_migrated
from support.erasure_database import DONE, IDLE, PAUSED, WAITING, made_erasures, pseudonym_of, tampered
from support.erasure_receipts import KEY, RECEIPT

from foltr.core.erasure.audit import AuditEntry, next_entry
from foltr.core.erasure.receipt import sign_receipt, verify_receipt
from foltr.core.protocol.signing import SigningKey, key_to_text

KEY_TEXT = key_to_text(KEY.public)
OTHER_KEY = key_to_text(SigningKey(bytes(32)).public)
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


async def make_log(folder, n: int) -> list[str]:
    """A database with a federation and ``n`` entries in its audit log; their hashes."""
    from sqlalchemy import insert

    from foltr.storage.federations import create_federation
    from foltr.storage.tables import metadata

    entries = []
    for number in range(n):
        body = {"pseudonym": f"{number:032x}", "n_updates": number, "coverage": 0.1 * number}
        entries.append(next_entry(entries[-1] if entries else None, AT + timedelta(seconds=number), "erased", body))
    rows = [{"federation": "mail", **vars(entry), "body": json.dumps(entry.body)} for entry in entries]
    async with await open_migrated(f"sqlite:///{folder}/foltr.sqlite") as db:
        await create_federation(db, "mail", 1, "linear", bytes(4), AT)
        if rows:
            async with db.transaction() as connection:
                await connection.execute(insert(metadata.tables["audit_log"]), rows)
    return [entry.hash for entry in entries]


def logged(folder, n: int) -> list[str]:
    return asyncio.run(make_log(folder, n))


def audit(folder, *arguments: str, code: int | None = None):
    return foltr("erasure", "verify-log", "--db", "sqlite:///foltr.sqlite", *arguments, cwd=folder, code=code)


def refused(done, *reasons: str) -> None:
    """One line that says that somebody has written to the database, and the same as JSON."""
    assert done.returncode == 1
    assert done.stderr.startswith("error: audit log: ")
    for why in reasons:
        assert why in done.stderr
    assert "restore a backup" in done.stderr
    assert done.stderr.count("\n") == 1
    told = json.loads(done.stdout)
    assert (told["verified"], f"error: {told['reason']}\n") == (False, done.stderr)


def test_a_whole_log_is_counted(tmp_path):
    """Also one that comes in several batches; the last hash is there to be noted."""
    for n, said in ((0, "is empty"), (1, "has 1 entry"), (1_001, "has 1001 entries")):
        folder = tmp_path / f"{n}"
        folder.mkdir()
        hashes = logged(folder, n)
        done = audit(folder, code=0)
        assert f"The audit log of mail {said}" in done.stdout
        found = json.loads(audit(folder, "--federation", "mail", "--json").stdout)
        last = hashes[-1] if hashes else None
        counts = {"entries": n, "erasures": 0, "places": 0}
        assert found == {"verified": True, "federation": "mail", **counts, "last_hash": last, "published": None}
        assert "What the federator has published was not compared: no broker is known" in done.stdout
        assert last is None or last in done.stdout


def write_receipt(folder, **fields) -> tuple[str, ...]:
    """A receipt with other fields; the options that name it."""
    (folder / "receipt.jws").write_text(sign_receipt(RECEIPT.model_copy(update=fields), KEY))
    return ("--receipt", "receipt.jws", "--key", KEY_TEXT)


def test_a_receipt_has_its_place_in_the_log(tmp_path):
    """By number and hash, in its federation; where the chain is whole, but was cut or made again, it is not found."""
    hashes = logged(tmp_path, 5)
    options = write_receipt(tmp_path, audit_seq=5, audit_hash=hashes[4])
    (tmp_path / "another.jws").write_text(sign_receipt(RECEIPT, KEY))
    assert f"names entry {RECEIPT.audit_seq}, but the" in audit(tmp_path, *options, "--receipt", "another.jws").stderr
    done = audit(tmp_path, *options, code=0)
    assert f"The receipt of {RECEIPT.pseudonym} matches entry 5." in done.stdout
    assert json.loads(audit(tmp_path, *options, "--json").stdout)["entries"] == 5
    tampered(tmp_path, "DELETE FROM audit_log WHERE seq = 5")
    audit(tmp_path, code=0)
    done = audit(tmp_path, *options)
    assert (done.returncode, done.stdout) == (1, "")
    assert "names entry 5, but the log ends with entry 4" in done.stderr
    options = write_receipt(tmp_path, audit_seq=4, audit_hash=hashes[4])
    assert "the entry there has another hash" in audit(tmp_path, *options).stderr


def test_no_place_is_looked_for_that_nobody_vouches_for(tmp_path):
    """A receipt that is forged, of another federation, or without a key to check it with."""
    hashes = logged(tmp_path, 5)
    options = write_receipt(tmp_path, audit_seq=3, audit_hash=hashes[2])
    forged = audit(tmp_path, *options[:3], OTHER_KEY)
    assert (forged.returncode, forged.stdout) == (1, "")
    assert "not this key's" in forged.stderr
    done = audit(tmp_path, *options[:2], code=2)
    assert "name the federator's public key with --key, too" in done.stderr
    other = write_receipt(tmp_path, federation="news", audit_seq=3, audit_hash=hashes[2])
    assert "has no federation 'news'" in audit(tmp_path, *other).stderr
    done = audit(tmp_path, *other, "--federation", "mail", code=2)
    assert "choose with --federation news" in done.stderr


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    path = tmp_path_factory.mktemp("forgotten") / "foltr.sqlite"
    asyncio.run(made_erasures(f"sqlite:///{path}"))
    return path


@pytest.fixture
def forgotten(original, tmp_path):
    """The folder of a database in which clients were forgotten."""
    shutil.copy(original, tmp_path)
    return tmp_path


def stored(folder, sql: str, *values):
    connection = sqlite3.connect(folder / "foltr.sqlite")
    try:
        return connection.execute(sql, values).fetchall()
    finally:
        connection.close()


def test_what_the_log_and_the_table_do_not_both_say_is_named(original, tmp_path):
    """Exit code 1 as for a broken chain; which of the two lacks it, of whom, and which entry."""
    names = {"waiting": WAITING, "paused": PAUSED, "done": DONE, "idle": IDLE}
    conditions = {key: f"pseudonym = '{pseudonym_of(name)}'" for key, name in names.items()}
    pseudonyms = {f"p_{key}": pseudonym_of(name) for key, name in names.items()}
    for statement, why in (
        ("DELETE FROM erasures WHERE {waiting}", "entry 11 says that {p_waiting} was erased, and its row is missing"),
        ("DELETE FROM erasures WHERE {done}", "entry 1 says that {p_done} was erased, and its row is missing"),
        ("UPDATE erasures SET n_events = 7 WHERE {done}", "entry 1 and the row of {p_done} differ in n_events"),
        (
            "UPDATE erasures SET requested_at = '2020-01-02 03:04:05', erased_at = '2020-01-02 03:04:05' WHERE {done}",
            "entry 1 and the row of {p_done} differ in requested_at, erased_at",
        ),
        ("UPDATE erasures SET requested_at = 'garbage' WHERE {done}", "a table beside it cannot be read"),
        ("UPDATE unlearning_jobs SET strategy = 'relearn' WHERE number = 1", "of unlearning job 1 differ in strategy"),
        ("DELETE FROM unlearning_jobs WHERE number = 2", "unlearning job 2 began, and its row is missing"),
        ("UPDATE erasures SET key_destroyed = 1 - key_destroyed WHERE {done}", "differ in key_destroyed"),
        ("UPDATE erasures SET completed_at = '2020-01-02 03:04:05' WHERE {done}", "differ in completed_at"),
        (
            "UPDATE erasures SET requested_by = 'operator', n_updates = 9 WHERE {paused}",
            "entry 7 and the row of {p_paused} differ in requested_by, n_updates",
        ),
        (
            "UPDATE erasures SET state = 'erased', completed_at = NULL, audit_seq = NULL, receipt = NULL WHERE {done}",
            "entry 4 says that the erasure of {p_done} was completed, and its row is erased",
        ),
        (
            "UPDATE erasures SET audit_seq = 6 WHERE {done}",
            "entry 4 says that the erasure of {p_done} was completed, and its row names entry 6",
        ),
        (
            "UPDATE erasures SET receipt = (SELECT receipt FROM erasures WHERE {idle}) WHERE {done}",
            "the stored receipt of {p_done} does not name entry 4 and its hash",
        ),
        ("UPDATE erasures SET receipt = 'no receipt' WHERE {done}", "the stored receipt of {p_done} does not name"),
        (
            "DELETE FROM audit_log WHERE seq = 11",
            "{p_waiting} is waiting, and the entry that says that it was erased is missing",
        ),
        ("DELETE FROM audit_log WHERE seq > 5", "{p_idle} is done, and entry 6, which says so, is missing"),
        ("DELETE FROM audit_log", "; and 3 more. "),
        ("UPDATE audit_log SET body = '{{}}' WHERE seq = 3", "entry 3 was changed"),
        ("DELETE FROM audit_log WHERE seq = 3", "entry 3 is missing"),
    ):
        shutil.copy(original, tmp_path)
        tampered(tmp_path, statement.format(**conditions))
        refused(audit(tmp_path, "--json"), why.format(**pseudonyms))


def test_who_is_being_erased_has_no_entry_yet(original, tmp_path):
    """It comes with the last of its rows; without it nobody is erased."""
    columns = "requested_at, requested_by, erased_at, n_rounds, n_updates, n_events, erased_digest"
    for state, agrees in (("erasing", True), ("erased", False)):
        shutil.copy(original, tmp_path)
        tampered(
            tmp_path,
            f"INSERT INTO erasures (federation, pseudonym, state, {columns}, key_destroyed, told) "  # noqa: S608 (ours)
            f"SELECT federation, '{'e' * 32}', '{state}', {columns}, 0, 0 FROM erasures "
            "WHERE first_round IS NULL LIMIT 1",
        )
        assert (audit(tmp_path).returncode == 0) == agrees, state
        shown = foltr("erasure", "show", "e" * 32, "--db", "sqlite:///foltr.sqlite", cwd=tmp_path).stdout
        # Without its rows it is not erased either, as long as nothing says that its data key is gone.
        assert "begins when the last of its rows and its data key are deleted" in shown, state
        assert re.search(r"forget_state +erasing", shown), state
        assert re.search(r"erased_at +-", shown), state


def test_the_key_alone_checks_every_stored_receipt(forgotten):
    """One whose signature is another's, or that was taken away, is named; without the key only what it says is read."""
    done = audit(forgotten, "--key", KEY_TEXT)
    assert (done.returncode, done.stderr) == (0, "")
    assert "The table of erasures agrees with it: 4 in all, 2 done." in done.stdout
    assert "The holder of the key has signed 2 stored receipts." in done.stdout
    why = f"the erasure of {pseudonym_of(DONE)} is done, but has no receipt signed with this key"
    refused(audit(forgotten, "--key", OTHER_KEY, "--json"), why)
    tampered(forgotten, "UPDATE erasures SET receipt = NULL WHERE audit_seq = 4")
    refused(audit(forgotten, "--key", KEY_TEXT, "--json"), why)


def rewritten(folder, change) -> None:
    """The chain made again, right in itself, with one entry that is another."""
    rows = stored(folder, "SELECT seq, at, kind, body, previous_hash, hash FROM audit_log ORDER BY seq")
    last, made = None, []
    for _, at, kind, body, _, _ in rows:
        entry = AuditEntry(0, datetime.fromisoformat(at).replace(tzinfo=UTC), kind, json.loads(body), "", "")
        last = next_entry(last, *change(entry))
        made.append(last)
    connection = sqlite3.connect(folder / "foltr.sqlite")
    connection.executemany(
        "UPDATE audit_log SET kind = ?, body = ?, previous_hash = ?, hash = ? WHERE seq = ?",
        [(entry.kind, json.dumps(entry.body), entry.previous_hash, entry.hash, entry.seq) for entry in made],
    )
    connection.commit()
    connection.close()


def test_a_chain_made_anew_is_found_by_the_table(forgotten):
    """Its hashes are right, and the receipts that the table has name others; an entry without an object, too."""
    rewritten(forgotten, lambda entry: (entry.at, entry.kind, {**entry.body, "n_erasures": 2}))
    refused(
        audit(forgotten, "--json"), f"the stored receipt of {pseudonym_of(DONE)} does not name entry 4 and its hash"
    )
    rewritten(forgotten, lambda entry: (entry.at, entry.kind, [1]))
    refused(audit(forgotten, "--json"), "entry 11 says that None was erased, and its row is missing", "; and ")


def listed(folder, *arguments: str, **more):
    return foltr("erasure", "log", "--db", "sqlite:///foltr.sqlite", *arguments, cwd=folder, **more)


def test_the_entries_are_listed_oldest_first(forgotten):
    """In columns if the terminal is wide, else a field a line; as JSON with the hashes, which are those of receipts."""
    done = listed(forgotten, COLUMNS="300", LINES="40", code=0)
    _, header, *lines = done.stdout.splitlines()
    assert header.split() == ["entry", "at", "kind", "about", "says"]
    assert [int(line.split()[0]) for line in lines] == list(range(1, 12))
    said = lines[0].split()
    assert said[:5] == ["1", "2026-01-02", "03:15:05", "client_erased", pseudonym_of(DONE)]
    assert said[5] == "erased_digest"
    assert lines[8].split()[:6] == ["9", "2026-01-02", "03:37:05", "job_failed", "job", "2"]
    assert "reason coverage 10%, of at least 50%" in lines[8]
    narrow = listed(forgotten, "--limit", "11", COLUMNS="80").stdout
    assert max(len(line.rstrip()) for line in narrow.splitlines()) <= 80
    assert pseudonym_of(DONE) in narrow
    entries = json.loads(listed(forgotten, "--json").stdout)
    assert [entry["seq"] for entry in entries] == list(range(1, 12))
    ((text,),) = stored(forgotten, "SELECT receipt FROM erasures WHERE pseudonym = ?", pseudonym_of(DONE))
    assert entries[3]["hash"] == verify_receipt(text, KEY.public).audit_hash
    assert entries[3]["body"]["pseudonym"] == pseudonym_of(DONE)


def test_a_log_that_is_empty_or_cannot_be_read_is_one_line(tmp_path):
    """An empty list for a program; exit code 1 for what cannot be read."""
    logged(tmp_path, 0)
    assert listed(tmp_path).stdout == "Entries of the audit log of mail: none\n"
    assert json.loads(listed(tmp_path, "--json").stdout) == []
    (tmp_path / "foltr.sqlite").unlink()
    logged(tmp_path, 3)
    tampered(tmp_path, "UPDATE audit_log SET body = '{' WHERE seq = 2")
    done = listed(tmp_path, code=1)
    assert "an entry from 2 on was changed: it cannot be read" in done.stderr
