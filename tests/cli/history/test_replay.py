"""``foltr rounds replay`` as a user runs it: exit codes, what it prints, and what it says it cannot know."""

import asyncio
import hashlib
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from cli.commands import foltr
from support.sealed_federation import sealed_federation

from foltr.storage.keys import keys_folder


async def made(folder: Path) -> None:
    """Three rounds of FOLtR-ES, with updates sealed."""
    url = f"sqlite:///{folder}/foltr.sqlite"
    async with sealed_federation(url, keys_folder(url, None)) as federation:
        await federation.learn(3)


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("replayed")
    asyncio.run(made(folder))
    return folder


@pytest.fixture
def folder(original, tmp_path) -> Path:
    """The database and its keys, for one test to spoil."""
    shutil.copytree(original, tmp_path, dirs_exist_ok=True)
    return tmp_path


def run(folder: Path, *arguments: str, code: int | None = None):
    options = ("--db", f"sqlite:///{folder}/foltr.sqlite", "--federation", "mail")
    return foltr("rounds", "replay", *options, *arguments, code=code)


def query(folder: Path, statement: str):
    connection = sqlite3.connect(folder / "foltr.sqlite")
    try:
        found = connection.execute(statement).fetchall()
        connection.commit()
        return found
    finally:
        connection.close()


def test_a_stored_model_follows_from_its_round(folder):
    """Exit code 0, and the SHA-256 of the stored bytes; the same for a program."""
    ((weights,),) = query(folder, "SELECT weights FROM models WHERE version = 2")
    digest = hashlib.sha256(weights).hexdigest()
    done = run(folder, "2")
    assert (done.returncode, done.stderr) == (0, "")
    assert f"equal, SHA-256 {digest}" in done.stdout
    told = json.loads(run(folder, "2", "--json").stdout)
    assert (told["equal"], told["differs"], told["n_updates"], told["model"]) == (True, [], 3, 2)
    assert told["sha256"] == {"stored": digest, "replayed": digest}


def test_other_settings_make_another_model(folder):
    """Exit code 1 with what differs, where somebody has changed those that are stored."""
    query(folder, "UPDATE trainings SET training = replace(training, '0.5', '0.25')")
    assert "differs: 5 of 5 weights" in run(folder, "2", code=1).stdout
    told = json.loads(run(folder, "2", "--json").stdout)
    assert (told["equal"], told["sha256"]["stored"] == told["sha256"]["replayed"]) == (False, False)


def test_what_is_missing_is_no_verdict(folder):
    """Exit code 1 and the reason, as null for a program; without the keys, where they are looked for."""
    of_bob = "round = 2 AND client = (SELECT id FROM clients WHERE client_id = 'bob')"
    query(folder, f"DELETE FROM update_bodies WHERE {of_bob}")  # noqa: S608 (the test's own words)
    for table in ("update_bodies", "updates"):
        query(folder, f"DELETE FROM {table} WHERE {of_bob.replace('bob', 'alice')}")  # noqa: S608
    done = run(folder, "2", "--json", code=1)
    told = json.loads(done.stdout)
    assert told["equal"] is None
    assert "and no erasure says why: 1 of its 3 updates" in told["reason"]
    assert "because the round was thinned: 1 of its 3 updates" in done.stderr
    done = run(folder, "1", "--keys", str(folder / "elsewhere"), code=1)
    assert "its data key is not in" in done.stderr


def test_what_was_erased_with_a_client_is_no_failure(tmp_path):
    """It says so, with exit code 0, also of a restored database whose client's key was destroyed since."""
    url = f"sqlite:///{tmp_path}/foltr.sqlite"
    restored = tmp_path / "restored"
    restored.mkdir()

    async def forgotten() -> None:
        async with sealed_federation(url, keys_folder(url, None)) as federation:
            await federation.learn(2)
            with (
                closing(sqlite3.connect(tmp_path / "foltr.sqlite")) as now,
                closing(sqlite3.connect(restored / "foltr.sqlite")) as copy,
            ):
                now.backup(copy)
            await federation.forget("bob")

    asyncio.run(forgotten())
    keys = tmp_path / "foltr.sqlite.keys"
    done = run(tmp_path, "2", code=0)
    assert "Erased since: round 2 cannot be replayed" in done.stdout
    assert "because clients were erased: 1 of its 3 updates" in done.stdout
    told = json.loads(run(tmp_path, "2", "--json", code=0).stdout)
    assert (told["equal"], told["erased_since"]) == (None, True)
    done = run(restored, "1", "--keys", str(keys), code=0)
    assert "of 1 of its 3 updates" in done.stdout
    assert "its data key is not in" in run(restored, "1", "--keys", str(tmp_path / "elsewhere"), code=1).stderr


def test_wrong_usage_is_exit_code_2(original):
    """With the option to give."""
    for arguments, named in (
        (("9",), "foltr rounds list"),
        (("0",), "ROUND"),
        (("1", "--federation", "web"), "has no federation 'web'"),
    ):
        assert named in run(original, *arguments, code=2).stderr, arguments
