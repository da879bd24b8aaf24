"""docs/logs.md has every line that a process may log, and docs/errors.md every exit code."""

import re

from cli.commands import PROJECT
from log_lines import find_log_lines
from log_words import PARTS

from foltr.core.protocol.events import EventKind


def test_every_log_line_is_in_one_table():
    """What the code logs is what the page tells of, but for lines that are named after an event."""
    told = [name for part in PARTS.values() for name in part]
    assert len(told) == len(set(told))
    found = find_log_lines(PROJECT)
    assert found - set(map(str, EventKind)) <= set(told) <= found
    page = (PROJECT / "docs/logs.md").read_text()
    assert [name for name in told if f"\n| `{name}` |" not in page] == []


def test_every_exit_code_is_in_the_table():
    """Each number that the command line ends with, wherever it says so."""
    source = "\n".join(path.read_text() for path in (PROJECT / "foltr/cli").rglob("*.py"))
    named = re.findall(r"^_?EXIT_.* = ([\d, ]+)$", source, re.MULTILINE)
    ends = {int(number) for numbers in named for number in numbers.split(", ")}
    ends |= {int(number) for number in re.findall(r"(?:typer\.Exit|sys\.exit)\((\d+)\)", source)}
    page = (PROJECT / "docs/errors.md").read_text()
    assert ends == {1, 2, 3, 130}
    assert [number for number in (0, *ends) if f"\n| {number} |" not in page] == []
