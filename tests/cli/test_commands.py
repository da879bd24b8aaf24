"""The table of commands says what they say themselves, and `foltr --help` imports nothing that takes its time."""

import resource
import subprocess
import sys

import pytest
from cli.commands import FOLTR, environment, foltr
from typer.testing import CliRunner

from foltr.cli.commands import ALL_COMMANDS, COMMANDS, RESEARCH, load_command
from foltr.cli.main import app

SUMMARIES = {name: command.summary for name, command in COMMANDS.items()} | RESEARCH
# Prints the modules that there are at the end, on standard error.
_MODULES = (
    "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "
    "from foltr.cli.main import main; main()"
)
# Of processor time, where Typer and rich alone take 0.17.
_HELP_S = 0.25


@pytest.mark.parametrize("name", ALL_COMMANDS)
def test_the_table_says_of_a_command_what_its_help_says(name):
    """The first paragraph, which is what `foltr --help` would show if it imported everything."""
    first, *_ = load_command(name).help.split("\n\n")
    assert " ".join(first.split()) == SUMMARIES[name]


@pytest.mark.parametrize("arguments", [("--help",), ("--version",)])
def test_help_imports_the_table_and_nothing_else(arguments):
    """No module of ours but five small ones, and none of the packages that take long to import."""
    command = [sys.executable, "-c", _MODULES, *arguments]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=60, check=True)
    imported = set(done.stderr.split())
    ours = {name for name in imported if name.partition(".")[0].startswith("foltr")}
    small = {"foltr.cli.commands", "foltr.cli.main", "foltr.core.errors", "foltr.core.extras", "foltr.core.version"}
    assert ours == {"foltr", "foltr.cli", "foltr.core", *small}
    assert imported.isdisjoint({"asyncio", "cryptography", "numpy", "pydantic", "sqlalchemy", "structlog"})


@pytest.mark.undisturbed
def test_help_answers_at_once():
    """In a quarter of a second of processor time: the best of five, since others may want the processor, too."""
    taken = []
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([*FOLTR, "--help"], env=environment(), capture_output=True, timeout=60, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        taken.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(taken) <= _HELP_S


def test_a_mistyped_command_is_told_the_right_one():
    """Also where the right one was not imported yet."""
    done = CliRunner().invoke(app, ["simulat"])
    assert done.exit_code == 2
    assert "'simulate'" in done.stderr


def helps(words, command):
    """The words of a command and of all below it."""
    yield words
    for name, below in getattr(command, "commands", {}).items():
        yield from helps([*words, name], below)


@pytest.mark.parametrize("name", ALL_COMMANDS)
def test_nothing_of_a_help_is_cut_at_80_columns(name):
    """Names of options, URLs and summaries are whole, and no line is longer."""
    for words in helps([name], load_command(name)):
        done = foltr(*words, "--help", COLUMNS="80")
        assert done.returncode == 0
        assert "\N{HORIZONTAL ELLIPSIS}" not in done.stdout
        assert max(map(len, done.stdout.splitlines())) <= 80
    assert SUMMARIES[name] in " ".join(foltr("--help", COLUMNS="80").stdout.split())
