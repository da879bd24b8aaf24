"""The command line as processes, one of each family of commands: what `cli.commands.foltr` runs inside the tests."""

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


def test_a_process_ends_with_the_exit_code_of_the_command(folder, tmp_path_factory):
    """With results on standard output, what is wrong on standard error, and never a traceback."""
    copies = tmp_path_factory.mktemp("copies")
    commands = [(words, Path(shutil.copytree(folder, copies / str(i)))) for i, words in enumerate(COMMANDS)]
    packages = ("sqlalchemy.ext.asyncio", "alembic")
    said = tmp_path_factory.mktemp("said")
    for done in foltr_forked(commands, said, packages=packages, FOLTR_GIVE_UP_AFTER_S="0.5"):
        assert done.returncode == COMMANDS[tuple(done.args)], (done.args, done.stderr)
        assert "Traceback" not in done.stderr, done.args
        assert done.stdout + done.stderr, done.args


def test_inside_the_tests_a_command_does_the_same(folder):
    """Exit code and both outputs, to the letter."""
    for command in (("--version",), ("operator", "roster"), ("db", "current", *MISSING)):
        inside, process = (run(*command, cwd=folder) for run in (foltr, foltr_fresh))
        assert vars(inside) | {"args": ()} == vars(process) | {"args": ()}, command
