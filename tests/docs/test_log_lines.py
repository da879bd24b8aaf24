"""docs/logs.md has every line that a process may log, and docs/errors.md every exit code."""

import re

import pytest
from cli.commands import PROJECT
from log_lines import find_log_lines, log_lines_table
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


def test_a_log_line_is_named_by_a_literal(tmp_path):
    """A name that is put together when it is logged is in no table; a table's line that is gone is told, too."""
    (tmp_path / "helper").mkdir()
    (tmp_path / "helper/request_handler.py").write_text("log.warning(f'{what}_failed')")
    with pytest.raises(ValueError, match=r"helper/request_handler\.py:1: log lines are named by a literal"):
        find_log_lines(tmp_path)
    with pytest.raises(ValueError, match="any more: gone"):
        log_lines_table(set(), {"gone": "It was there once."})


def test_every_exit_code_is_in_the_table():
    """Each number that the command line ends with, wherever it says so."""
    source = "\n".join(path.read_text() for path in (PROJECT / "foltr/cli").rglob("*.py"))
    named = re.findall(r"^_?EXIT_.* = ([\d, ]+)$", source, re.MULTILINE)
    ends = {int(number) for numbers in named for number in numbers.split(", ")}
    ends |= {int(number) for number in re.findall(r"(?:typer\.Exit|sys\.exit)\((\d+)\)", source)}
    page = (PROJECT / "docs/errors.md").read_text()
    assert ends == {1, 2, 3, 130}
    assert [number for number in (0, *ends) if f"\n| {number} |" not in page] == []
