"""The reference of commands and messages says what the code has: each command with every option, each message."""

import re

import pytest
from cli.commands import PROJECT
from reference_pages import commands_reference, plain

from foltr.cli.commands import ALL_COMMANDS, load_command
from foltr.core.protocol.verdicts import Level, Reason


def commands_below(command, words):
    """Every command that does something, with the words that call it."""
    below = getattr(command, "commands", {})
    if not below:
        yield words, command
    for name, one in below.items():
        yield from commands_below(one, f"{words} {name}")


def test_every_command_has_a_section_with_every_option():
    """And with its help's first words; an option that is hidden from the help is not in it."""
    sections = dict(re.findall(r"^#+ (foltr .*?)\n(.*?)(?=^#|\Z)", commands_reference(), re.MULTILINE | re.DOTALL))
    found = [one for name in ALL_COMMANDS for one in commands_below(load_command(name), f"foltr {name}")]
    assert len(found) > 50
    for words, command in found:
        section = sections[words]
        assert plain(command.help.partition("\n")[0]) in section
        shown = {option for cell in re.findall(r"^\| `(.*?)` \|", section, re.MULTILINE) for option in cell.split()}
        for parameter in command.params:
            if parameter.param_type_name == "option" and not parameter.hidden and "--help" not in parameter.opts:
                assert {word.rstrip(",") for word in shown} & set(parameter.opts), (words, parameter.opts)


@pytest.mark.parametrize("level", [Level.DOWN, Level.DEGRADED])
def test_the_runbook_has_every_reason_in_the_order_of_a_verdict(level):
    """So a link from the page, from status and from an alert leads to its heading."""
    page = (PROJECT / "docs/runbook.md").read_text()
    section = re.search(rf"^## {level}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL | re.IGNORECASE)
    headings = re.findall(r"^### (\S+)$", section[1], re.MULTILINE)
    assert headings == [str(reason) for reason in Reason if reason.level is level]
