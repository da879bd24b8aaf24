"""Each command that a message, a verdict, a page or a unit names is one, with the options that are given."""

import re
import shlex

import pytest
from cli.commands import PROJECT
from docs.markdown_files import markdown_files, snippets

from foltr.cli.commands import ALL_COMMANDS, load_command
from foltr.core.protocol.policies import NEW_POLICY
from foltr.core.protocol.verdicts import Ending, Reason

_PACKAGES = ("broker", "core", "edge_client", "federator", "foltr/api", "foltr/cli", "foltr/operations", "helper")
_PACKAGES += ("storage",)
_KEYS = (PROJECT / "docs/keys.md").read_text()


def unknown_in(words):
    """Return what is wrong with the words after ``foltr``: a command or an option that is not there."""
    if words[0] not in ALL_COMMANDS:
        return words[0]
    command, rest = load_command(words[0]), words[1:]
    while rest and rest[0] in getattr(command, "commands", {}):
        command, rest = command.commands[rest[0]], rest[1:]
    if hasattr(command, "commands") and not command.params and rest:
        return rest[0]
    known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    options = (word.partition("=")[0] for word in rest if word.startswith("--"))
    return next((option for option in options if option not in {*known, "--help"}), None)


def commands_of_documents():
    """Those in blocks of every document, and those in sentences of the runbook and of the page of keys."""
    for file in markdown_files():
        if not file.startswith("research/results/"):
            lines = [line.strip() for snippet in snippets(file) for line in snippet.splitlines()]
            commands = (line.partition(" | ")[0] for line in lines if line.startswith("foltr "))
            yield from (shlex.split(command, comments=True) for command in commands)
    for page in ("runbook", "keys"):
        named = re.findall(r"`(foltr [^`]+)`", (PROJECT / f"docs/{page}.md").read_text())
        yield from (re.split(r"[\s,;|]+", command) for command in named)


def test_every_command_of_a_document_exists():
    """And each of its flags is one of that command."""
    found = [words[1:] for words in commands_of_documents() if words[:1] == ["foltr"] and len(words) > 1]
    assert len(found) > 100
    assert {shlex.join(words): unknown for words in found if (unknown := unknown_in(words)) is not None} == {}


@pytest.mark.parametrize("named", [*Reason, *Ending], ids=str)
def test_the_command_of_a_reason_is_whole(named):
    """With all that the command requires, and names in place of capitals; it is parsed, and not run."""
    program, *words = named.command.split()
    if program != "foltr":
        return
    command = next(" ".join(words[:n]) for n in (3, 2, 1) if " ".join(words[:n]) in ALL_COMMANDS)
    load_command(command).make_context(command, words[len(command.split()) :])


def test_each_row_of_the_page_of_keys_names_a_test_that_is_there():
    """A row that nobody tries is a promise that nobody keeps."""
    rows = _KEYS.split("<!-- keys:begin -->")[1].split("<!-- keys:end -->")[0].strip().splitlines()[2:]
    assert len(rows) >= 3
    for row in rows:
        path, _, name = row.strip("|").split("|")[-1].strip(" `").partition("::")
        assert re.search(rf"^(async )?def {name}\(", (PROJECT / path).read_text(), re.MULTILINE), row


def test_a_new_policy_is_named_with_its_helpers():
    """Without them the command only says that they are missing."""
    assert NEW_POLICY == "foltr policy new --helper NAME.keys --helper NAME.keys"
    files = [file for package in _PACKAGES for file in (PROJECT / package).rglob("*.py")]
    short = re.compile(r'(?<!"")"[^"\n]*foltr policy new(?! --helper)')  # in a text that is no docstring
    assert [file for file in files if short.search(file.read_text())] == []
