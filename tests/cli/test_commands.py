"""The table of commands says what they say themselves, and `foltr --help` imports nothing that takes its time."""

import sys

from cli.commands import environment
from support.completed_process import completed
from typer.testing import CliRunner

from foltr.cli.commands import ALL_COMMANDS, COMMANDS, RESEARCH, load_command
from foltr.cli.main import app

SUMMARIES = {name: command.summary for name, command in COMMANDS.items()} | RESEARCH
# Prints the modules that there are at the end, on standard error.
_MODULES = (
    "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr)); "
    "from foltr.cli.main import main; main()"
)


def test_the_table_says_of_a_command_what_its_help_says():
    """The first paragraph, which is what `foltr --help` would show if it imported everything."""
    for name in ALL_COMMANDS:
        first, *_ = load_command(name).help.split("\n\n")
        assert " ".join(first.split()) == SUMMARIES[name], name


def test_help_imports_the_table_and_nothing_else():
    """No module of ours but five small ones, and none of the packages that take long to import."""
    for arguments in (("--help",), ("--version",)):
        command = [sys.executable, "-c", _MODULES, *arguments]
        done = completed(command, env=environment(), check=True)
        imported = set(done.stderr.split())
        ours = {name for name in imported if name.partition(".")[0].startswith("foltr")}
        small = {"foltr.cli.commands", "foltr.cli.main", "foltr.core.errors", "foltr.core.extras", "foltr.core.version"}
        assert ours == {"foltr", "foltr.cli", "foltr.core", *small}, arguments
        assert imported.isdisjoint({"asyncio", "cryptography", "numpy", "pydantic", "sqlalchemy", "structlog"}), (
            arguments
        )


def test_a_mistyped_command_is_told_the_right_one():
    """Also where the right one was not imported yet."""
    done = CliRunner().invoke(app, ["simulat"])
    assert done.exit_code == 2
    assert "'simulate'" in done.stderr
