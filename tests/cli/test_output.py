"""How results look: what a device says is shown as it is, and nothing of one record is left out."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from foltr.cli.output import print_record, print_rows, to_plain, wrapped


@dataclass(frozen=True)
class Row:
    name: str


def test_what_was_said_is_no_markup_and_whole(capsys):
    """In a table as in one record, where a long value is folded and not cut."""
    for name in ("[/b]", "[red]x", "[link=file:///etc/passwd]x[/link]", "a\\[b]"):
        print_rows([Row(name)], ["name"], title="rows", as_json=False)
        print_record(Row(name), title="record", as_json=False)
        assert capsys.readouterr().out.count(name) == 2, name
    print_record(Row("0123456789" * 50), title="record", as_json=False)
    printed = "".join(capsys.readouterr().out.split())
    assert "0123456789" * 50 in printed.removeprefix("record").replace("name", "")


WIDE = {
    "client_id": "device-001",
    "n_interactions": 5,
    "at": "2026-01-02 03:04:05",
    "detail": "what a person reads " * 5,
}


@pytest.mark.parametrize("width", [200, 80, 50, 30])
def test_no_word_of_a_table_is_cut_or_broken(capsys, monkeypatch, width):
    """Cells are wrapped between words; where even that is too wide each record is a field a line."""
    monkeypatch.setattr("foltr.cli.output.console._width", width)
    print_rows([SimpleNamespace(**WIDE)] * 2, list(WIDE), title="Rows", as_json=False)
    printed = capsys.readouterr().out
    words = printed.split()
    assert {*WIDE, "device-001", "2026-01-02"} <= set(words)
    assert words.count("person") == 10
    assert max(map(len, printed.splitlines())) <= width


@pytest.mark.parametrize("on_terminal", [True, False])
def test_log_lines_are_short_on_a_terminal_and_dated_elsewhere(on_terminal):
    """Who reads along needs the time of day; what is kept needs the date, in UTC."""
    main_end, log_end = os.openpty() if on_terminal else os.pipe()
    logs = "import structlog; from foltr.cli.output import configure_logging; configure_logging('info', 'text'); "
    logs += "structlog.get_logger().info('round_completed', round=3, model=2, n_updates=20)"
    with subprocess.Popen([sys.executable, "-c", logs], stderr=log_end, env=os.environ | {"NO_COLOR": "1"}) as process:
        os.close(log_end)
        line = re.sub(r"\x1b\[[0-9;]*m", "", os.read(main_end, 10_000).decode()).strip()
    os.close(main_end)
    assert process.returncode == 0
    pattern = r"\d\d:\d\d:\d\d \[info\] round_completed model=2 n_updates=20 round=3"
    dated = r"\d{4}-\d\d-\d\dT[0-9:.]+Z \[info +\] round_completed +model=2 n_updates=20 round=3"
    assert re.fullmatch(pattern if on_terminal else dated, line), line


def test_a_command_is_not_broken_across_lines():
    """Whoever copies the line has all of it; the sentence's own punctuation is no part of it."""
    text = "Two are missing: let one out with foltr device quarantine NAME --lift, or see foltr rounds show latest."
    assert wrapped(text, 40).splitlines() == [
        "Two are missing: let one out with",
        "foltr device quarantine NAME --lift, or",
        "see foltr rounds show latest.",
    ]
    assert " ".join(wrapped(text, 12).split()) == text


class Line(NamedTuple):
    name: str
    at: str | None
    score: float


def test_a_table_leaves_out_what_nobody_has_and_says_which_lines_it_leaves_out(capsys, monkeypatch):
    """The first, or the newest, as many as fit the screen, and what shows them all; a program gets every field."""
    monkeypatch.setattr("foltr.cli.output.console._width", 80)
    monkeypatch.setattr("foltr.cli.output.console._height", 14)
    rows = [Line(f"row-{i:02}", None, float(i)) for i in range(30)]
    print_rows(rows, title="Lines", all_with="foltr x --all", newest=True)
    printed = capsys.readouterr().out
    assert printed.splitlines()[1].split() == ["name", "score"]
    assert to_plain([Line("a", None, float("inf"))]) == [{"name": "a", "at": None, "score": None}]
    assert ("row-29" in printed, "row-00" in printed) == (True, False)
    assert "Earlier lines not shown: 22; to see them: foltr x --all" in printed
    print_rows(rows, title="Lines", all_with=None)
    assert "not shown" not in capsys.readouterr().out
    # The lines of a cell are not broken, also if the other column makes room for them.
    monkeypatch.setattr("foltr.cli.output.console._width", 40)
    print_rows([Line("asked  2026-01-02\nerased 2026-01-03", "what a person reads " * 4, 1.0)], title="Lines")
    printed = capsys.readouterr().out
    assert all(line in printed for line in ("asked  2026-01-02", "erased 2026-01-03"))
    assert max(len(line.rstrip()) for line in printed.splitlines()) <= 40
