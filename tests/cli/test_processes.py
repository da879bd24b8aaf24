"""The command line as processes, one of each family of commands: what `cli.commands.foltr` runs inside the tests."""

import getpass
import os
import shutil
from pathlib import Path

import pytest
from cli.commands import foltr, foltr_fresh
from cli.forked import foltr_forked
from support.databases import migrated_sqlite

# No free port: by the time that a test runs somebody may listen there.
NOWHERE = "mqtt://127.0.0.1:1"
DB = ("--db", "sqlite:///foltr.sqlite")
MISSING = ("--db", "sqlite:///missing.sqlite")


@pytest.fixture
def folder(tmp_path):
    """With an operator who has enrolled one device, an empty database, and data that is none."""
    migrated_sqlite(tmp_path / "foltr.sqlite")
    foltr("device", "enrol", "device-7", "--broker", NOWHERE, cwd=tmp_path, code=0)
    for name in ("train.txt", "test.txt"):
        (tmp_path / name).write_text("1 qid:1 1:zero\n")
    return tmp_path


COMMANDS = {
    ("rounds", "list", *DB): 2,
    ("federator", "run", "--allow-unsigned", *DB, "--broker", NOWHERE): 3,
    ("client", "run", "--data", "."): 1,
}
AT_NIGHT = {
    ("erasure", "request", "device-7", "--print-payload", "--json"): 0,
    ("device", "revoke", "device-7"): 3,
    ("doctor", "--broker", NOWHERE): 1,
    ("--version",): 0,
    ("methods",): 0,
    ("db", "upgrade", *DB): 0,
    ("db", "current", *MISSING): 2,
    ("device", "enrol", "device-8"): 0,
    ("operator", "roster", "--json"): 0,
    ("rounds", "deadline", "1", "--max-time", "5"): 3,
    ("broker", "config", "--out", "m", "--user", getpass.getuser()): 0,
    ("erasure", "verify", "train.txt", "--key", "none.pub"): 2,
    ("data", "get", "everything"): 2,
    ("demo", "--method", "lambdarank"): 2,
    ("simulate", "--data", "synthetic", "--rounds", "0"): 2,
    ("reproduce", "list"): 0,
    **{(*words.split(), *MISSING): 2 for words in ("device list", "models list", "erasure list", "rounds replay 1")},
}


@pytest.mark.parametrize("codes", [COMMANDS, pytest.param(AT_NIGHT, marks=pytest.mark.nightly)])
def test_a_process_ends_with_the_exit_code_of_the_command(folder, tmp_path_factory, codes):
    """With results on standard output, what is wrong on standard error, and never a traceback."""
    copies = tmp_path_factory.mktemp("copies")
    commands = [(words, Path(shutil.copytree(folder, copies / str(i)))) for i, words in enumerate(codes)]
    cache = os.environ.get("FOLTR_CACHE", str(folder / "cache"))
    for done in foltr_forked(
        commands,
        tmp_path_factory.mktemp("said"),
        packages=("sqlalchemy.ext.asyncio", "alembic"),
        FOLTR_CACHE=cache,
        FOLTR_GIVE_UP_AFTER_S="0.5",
    ):
        assert done.returncode == codes[tuple(done.args)], (done.args, done.stderr)
        assert "Traceback" not in done.stderr, done.args
        assert done.stdout if done.returncode == 0 else done.stdout + done.stderr, done.args


def test_inside_the_tests_a_command_does_the_same(folder):
    """Exit code and both outputs, to the letter."""
    for command in (("--version",), ("operator", "roster"), ("db", "current", *MISSING)):
        inside, process = (run(*command, cwd=folder) for run in (foltr, foltr_fresh))
        assert vars(inside) | {"args": ()} == vars(process) | {"args": ()}, command
