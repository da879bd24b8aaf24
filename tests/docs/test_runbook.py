"""The runbook has every finding of a verdict, under its level, and commands that exist."""

import re

import pytest
from cli.commands import PROJECT

from foltr.cli.commands import ALL_COMMANDS, load_command
from foltr.core.protocol.verdicts import Ending, Level, Reason

PAGE = (PROJECT / "docs/runbook.md").read_text()


def headings(level: Level) -> list[str]:
    """Return the headings below that of a level."""
    section = re.search(rf"^## {level}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL | re.IGNORECASE)
    return re.findall(r"^### (\S+)$", section[1], re.MULTILINE)


@pytest.mark.parametrize("level", [Level.DOWN, Level.DEGRADED])
def test_it_has_every_reason_in_the_order_of_a_verdict(level):
    """So a link from the page, from status and from an alert leads to its heading."""
    assert headings(level) == [str(reason) for reason in Reason if reason.level is level]


def exists(words: list[str]) -> bool:
    """Return whether these words name a command, and its options are options of it."""
    command = load_command(words[0]) if words[0] in ALL_COMMANDS else None
    rest = words[1:]
    while command is not None and rest and rest[0] in getattr(command, "commands", {}):
        command, rest = command.commands[rest[0]], rest[1:]
    if command is None or (hasattr(command, "commands") and not command.params and rest):
        return False
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    return all(word in known for word in rest if word.startswith("--"))


def test_its_commands_and_those_of_the_reasons_exist():
    """With each of their options."""
    named = re.findall(r"`foltr ([^`]+)`", PAGE)
    commands = [each.command for each in (*Reason, *Ending)]
    named += [command.removeprefix("foltr ") for command in commands if command.startswith("foltr ")]
    assert [command for command in named if not exists(command.split())] == []
