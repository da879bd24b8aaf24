"""``foltr receipt verify`` and ``foltr audit verify``: right ones pass, wrong ones say why, and exit codes differ."""

import asyncio
import json
import sqlite3
import subprocess
from datetime import UTC, datetime, timedelta

import pytest
from cli.commands import FOLTR, environment, foltr
from receipts import KEY, NOTHING_TAUGHT, RECEIPT, signed

from foltr.credentials import BrokerAccess, Credentials, write_secret
from foltr.erasure.audit import next_entry
from foltr.erasure.receipt import sign_receipt
from foltr.identity import SigningKey, key_to_text

KEY_TEXT = key_to_text(KEY.public)
OTHER_KEY = key_to_text(SigningKey(bytes(32)).public)
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def write_credentials(path, role: str) -> None:
    """A process's file, in which the federator's key is public."""
    device = SigningKey(bytes([7] * 32))
    credentials = Credentials(
        role=role,
        federation="mail",
        name="device-7",
        broker=BrokerAccess(broker_url="mqtt://localhost:1883"),
        signing_key=(KEY if role == "federator" else device).to_text(),
        enrolment_key=OTHER_KEY,
        federator_key=KEY_TEXT,
    )
    write_secret(path, credentials.model_dump_json())


@pytest.fixture
def folder(tmp_path):
    """A receipt, as an editor would save it, and the federator's key in each form there is."""
    (tmp_path / "receipt.jws").write_text(sign_receipt(RECEIPT, KEY) + "\n")
    (tmp_path / "federator.pub").write_text(KEY_TEXT + "\n")
    for role in ("device", "operator", "federator"):
        write_credentials(tmp_path / f"{role}.json", role)
    return tmp_path


def verify(folder, *arguments: str):
    return foltr("receipt", "verify", *arguments, cwd=folder)


# --- foltr receipt verify -------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [KEY_TEXT, "federator.pub", "device.json", "operator.json", "federator.json"])
def test_a_receipt_is_verified_with_the_key_in_any_form(folder, key):
    """As text, in a file, and in the credentials of any process; as JSON it has every field and the key."""
    done = verify(folder, "receipt.jws", "--key", key, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"valid": True, "federator_key": KEY_TEXT, "receipt": RECEIPT.model_dump()}
    assert done.stderr == ""


def test_a_receipt_is_put_in_words(folder):
    """All that it says, and whose key signed it."""
    words = verify(folder, "receipt.jws", "--key", KEY_TEXT).stdout
    assert f"the client with the pseudonym {RECEIPT.pseudonym}" in words
    assert "Requested by the device 2026-01-02T03:04:05.678900Z, erased 2026-01-02T03:04:06.000000Z" in words
    assert "40 updates of 39 rounds, 7 events; the key they were encrypted with exists no more" in words
    assert (
        "Model 44, made without the client (fed_eraser, 4 rounds replayed, coverage 90%), replaced model 41." in words
    )
    assert "weights are deleted: 41." in words
    assert "ndcg_at_10 0.41, relative_distance 0.02" in words
    assert f"entry 2, hash {RECEIPT.audit_hash}" in words
    assert f"the holder of the key {KEY_TEXT} signed this very text" in words
    nothing = RECEIPT.model_copy(update={**NOTHING_TAUGHT, "key_destroyed": False})
    (folder / "nothing.jws").write_text(sign_receipt(nothing, KEY))
    words = verify(folder, "nothing.jws", "--key", KEY_TEXT).stdout
    assert "no key was destroyed." in words
    assert "It had taught no model, so there was none to unlearn." in words
    assert "Model" not in words


def test_a_receipt_is_read_from_standard_input(folder):
    """For `-`."""
    command = [*FOLTR, "receipt", "verify", "-", "--key", "federator.pub"]
    with (folder / "receipt.jws").open("rb") as receipt:
        done = subprocess.run(
            command, cwd=folder, env=environment(), stdin=receipt, capture_output=True, timeout=60, check=False
        )
    assert done.returncode == 0, done.stderr
    assert RECEIPT.pseudonym.encode() in done.stdout


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (sign_receipt(RECEIPT, KEY).replace(".", ".A", 1), "not this key's"),
        (sign_receipt(RECEIPT, SigningKey(bytes(32))), "not this key's"),
        (signed(RECEIPT.model_dump(), '{"alg":"none","typ":"foltr-erasure+jws"}'), "only EdDSA is believed"),
        (signed({"version": 2}), "upgrade foltr"),
        ("", "not three texts"),
        ("é", "not the text of a receipt"),
        ("A" * 70_000, "more than 65536"),
    ],
)
def test_what_is_no_receipt_is_refused_with_the_reason(folder, text, why):
    """Exit code 1, one line on standard error, and nothing that a program could take for a receipt."""
    (folder / "receipt.jws").write_text(text)
    done = verify(folder, "receipt.jws", "--key", KEY_TEXT, "--json")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: receipt: ")
    assert why in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_file_without_end_is_not_read_to_it(folder):
    """Nor is what is larger than any receipt held in memory."""
    done = verify(folder, "/dev/zero", "--key", KEY_TEXT)
    assert done.returncode == 1
    assert "more than 65536" in done.stderr


@pytest.mark.parametrize(
    ("file", "key", "why"),
    [
        ("nowhere.jws", KEY_TEXT, "receipt: nowhere.jws: No such file"),
        (".", KEY_TEXT, "receipt: .: Is a directory"),
        ("receipt.jws", "nowhere.pub", "key: nowhere.pub: No such file"),
        ("receipt.jws", "x" * 5_000, "File name too long"),
        ("receipt.jws", KEY_TEXT[:-4], "No such file"),
        ("receipt.jws", "receipt.jws", "key: receipt.jws holds no key"),
        ("receipt.jws", "other.json", "key: other.json is no credentials file"),
        ("receipt.jws", "open.json", "chmod 600"),
    ],
)
def test_wrong_usage_is_told_from_a_wrong_receipt(folder, file, key, why):
    """Exit code 2: nothing is said of the receipt, and where keys are found."""
    (folder / "other.json").write_text('{"role": []}')
    write_credentials(folder / "open.json", "device")
    (folder / "open.json").chmod(0o644)
    done = verify(folder, file, "--key", key)
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr


def test_the_key_must_be_named(folder):
    """A receipt cannot vouch for itself."""
    done = verify(folder, "receipt.jws")
    assert done.returncode == 2
    assert "--key" in done.stderr


# --- foltr audit verify ---------------------------------------------------------------------------------------


async def make_log(folder, n: int) -> list[str]:
    """A database with a federation and ``n`` entries in its audit log; their hashes."""
    from sqlalchemy import insert

    from storage.database import Database
    from storage.federations import create_federation
    from storage.migrate import upgrade
    from storage.tables import metadata

    entries = []
    for number in range(n):
        body = {"pseudonym": f"{number:032x}", "n_updates": number, "coverage": 0.1 * number}
        entries.append(next_entry(entries[-1] if entries else None, AT + timedelta(seconds=number), "erased", body))
    rows = [{"federation": "mail", **vars(entry), "body": json.dumps(entry.body)} for entry in entries]
    async with await Database.connect(f"sqlite:///{folder}/foltr.sqlite") as db:
        await upgrade(db)
        await create_federation(db, "mail", 1, "linear", bytes(4), AT)
        if rows:
            async with db.transaction() as connection:
                await connection.execute(insert(metadata.tables["audit_log"]), rows)
    return [entry.hash for entry in entries]


def logged(folder, n: int) -> list[str]:
    return asyncio.run(make_log(folder, n))


def tampered(folder, statement: str) -> None:
    connection = sqlite3.connect(folder / "foltr.sqlite")
    try:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(statement)
        connection.commit()
    finally:
        connection.close()


def audit(folder, *arguments: str):
    return foltr("audit", "verify", "--db", "sqlite:///foltr.sqlite", *arguments, cwd=folder)


@pytest.mark.parametrize(("n", "said"), [(0, "is empty"), (1, "has 1 entry"), (1_001, "has 1001 entries")])
def test_a_whole_log_is_counted(tmp_path, n, said):
    """Also one that comes in several batches; the last hash is there to be noted."""
    hashes = logged(tmp_path, n)
    done = audit(tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"The audit log of mail {said}" in done.stdout
    found = json.loads(audit(tmp_path, "--federation", "mail", "--json").stdout)
    last = hashes[-1] if hashes else None
    assert found == {"valid": True, "federation": "mail", "entries": n, "last_hash": last}
    assert last is None or last in done.stdout


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("UPDATE audit_log SET body = '{}' WHERE seq = 3", "entry 3 was changed"),
        ("UPDATE audit_log SET body = '[]' WHERE seq = 3", "entry 3 was changed"),
        ("UPDATE audit_log SET body = '{\"coverage\": NaN}' WHERE seq = 3", "entry 3 was changed"),
        ("UPDATE audit_log SET body = '{' WHERE seq = 3", "an entry from 3 on was changed: it cannot be read"),
        ("UPDATE audit_log SET at = 'today' WHERE seq = 3", "an entry from 1 on was changed: it cannot be read"),
        ("UPDATE audit_log SET at = '2027-01-01 00:00:00.000000' WHERE seq = 3", "entry 3 was changed"),
        ("DELETE FROM audit_log WHERE seq = 3", "entry 3 is missing"),
        ("UPDATE audit_log SET seq = 9 WHERE seq = 3", "entry 3 is missing"),
    ],
)
def test_a_changed_log_is_refused_with_the_entry(tmp_path, statement, why):
    """Exit code 1, nothing on standard output, and what to do next."""
    logged(tmp_path, 5)
    tampered(tmp_path, statement)
    done = audit(tmp_path, "--json")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: audit log: ")
    assert why in done.stderr
    assert "restore a backup" in done.stderr


def write_receipt(folder, **fields) -> tuple[str, ...]:
    """A receipt with other fields; the options that name it."""
    (folder / "receipt.jws").write_text(sign_receipt(RECEIPT.model_copy(update=fields), KEY))
    return ("--receipt", "receipt.jws", "--key", KEY_TEXT)


def test_a_receipt_has_its_place_in_the_log(tmp_path):
    """Found by number and hash; the federation is the receipt's unless another is named."""
    hashes = logged(tmp_path, 5)
    options = write_receipt(tmp_path, audit_seq=3, audit_hash=hashes[2])
    done = audit(tmp_path, *options)
    assert done.returncode == 0, done.stderr
    assert f"The receipt of {RECEIPT.pseudonym} is entry 3, as it says." in done.stdout
    assert json.loads(audit(tmp_path, *options, "--json").stdout)["entries"] == 5


def test_a_log_that_was_cut_or_made_anew_is_found_by_a_receipt(tmp_path):
    """The chain is whole; what was given out does not fit it."""
    hashes = logged(tmp_path, 5)
    options = write_receipt(tmp_path, audit_seq=5, audit_hash=hashes[4])
    tampered(tmp_path, "DELETE FROM audit_log WHERE seq = 5")
    assert audit(tmp_path).returncode == 0
    done = audit(tmp_path, *options)
    assert (done.returncode, done.stdout) == (1, "")
    assert "names entry 5, and the log ends with entry 4" in done.stderr
    options = write_receipt(tmp_path, audit_seq=4, audit_hash=hashes[4])
    assert "the entry there has another hash" in audit(tmp_path, *options).stderr


def test_no_place_is_looked_for_that_nobody_vouches_for(tmp_path):
    """A receipt that is forged, of another federation, or without a key to check it with."""
    hashes = logged(tmp_path, 5)
    options = write_receipt(tmp_path, audit_seq=3, audit_hash=hashes[2])
    forged = audit(tmp_path, *options[:3], OTHER_KEY)
    assert (forged.returncode, forged.stdout) == (1, "")
    assert "not this key's" in forged.stderr
    for alone in (options[:2], options[2:]):
        done = audit(tmp_path, *alone)
        assert done.returncode == 2
        assert "with --receipt and the federator's public key with --key" in done.stderr
    other = write_receipt(tmp_path, federation="news", audit_seq=3, audit_hash=hashes[2])
    assert "holds no 'news'" in audit(tmp_path, *other).stderr
    done = audit(tmp_path, *other, "--federation", "mail")
    assert done.returncode == 2
    assert "choose with --federation news" in done.stderr


def test_a_log_that_is_not_there_is_said(tmp_path):
    """No database file: exit code 2, and none is created."""
    done = audit(tmp_path)
    assert done.returncode == 2
    assert "foltr db upgrade" in done.stderr
    assert not (tmp_path / "foltr.sqlite").exists()
