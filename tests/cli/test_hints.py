"""Each command that a message or a verdict names can be typed as it stands, with names in place of capitals."""

import ast
from pathlib import Path

import pytest
from cli.commands import PROJECT

from foltr.cli.commands import ALL_COMMANDS, load_command
from foltr.core.protocol.policies import NEW_POLICY
from foltr.core.protocol.verdicts import Ending, Reason

_PACKAGES = (
    "broker",
    "core",
    "edge_client",
    "federator",
    "foltr/api",
    "foltr/cli",
    "foltr/operations",
    "helper",
    "storage",
)


@pytest.mark.parametrize("named", [*Reason, *Ending], ids=str)
def test_the_command_of_a_reason_is_whole(named):
    """With all that the command requires; it is parsed, and not run."""
    program, *words = named.command.split()
    if program != "foltr":
        return
    command = next(" ".join(words[:n]) for n in (3, 2, 1) if " ".join(words[:n]) in ALL_COMMANDS)
    load_command(command).make_context(command, words[len(command.split()) :])


def test_a_new_policy_is_named_with_its_helpers():
    """Without them the command only says that they are missing."""
    assert NEW_POLICY == "foltr policy new --helper NAME.keys --helper NAME.keys"
    found = [file for package in _PACKAGES for file in (PROJECT / package).rglob("*.py") if _has_short(file)]
    assert not found


def _has_short(file: Path) -> bool:
    tree = ast.parse(file.read_text())
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    return any(
        "foltr policy new" in node.value.replace("foltr policy new --helper", "")
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
    )
