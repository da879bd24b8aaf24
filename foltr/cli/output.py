"""How results look: a table for people, JSON for programs; and log lines on standard error."""

import dataclasses
import json
import logging
import re
import sys
import textwrap
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import structlog
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from foltr.errors import SettingsError

console = Console()
errors = Console(stderr=True)

_COMMAND = re.compile(r"foltr(?: [^\s,;()]*[^\s,;().:])+")
_NO_BREAK = "\N{WORD JOINER}"
_GAP = "  "
# A message has its cause at the beginning and what to do at the end; what a user named is between.
_LONGEST_ERROR = 1500


def to_plain(value: Any) -> Any:
    """Rows and times as what JSON has; bytes only as their length, they are numbers of a model."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return {"bytes": len(value)}
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    return value


def print_json(value: Any) -> None:
    # Not through rich: it would wrap lines at the width of the terminal.
    sys.stdout.write(json.dumps(to_plain(value), indent=2) + "\n")


def print_jsonl(value: Any) -> None:
    """Print one line of JSON, at once: whoever reads a stream waits for it."""
    sys.stdout.write(json.dumps(to_plain(value)) + "\n")
    sys.stdout.flush()


def print_rows(rows: Sequence[Any], columns: Sequence[str], *, title: str, as_json: bool) -> None:
    """Print records: every field as JSON, or the named columns as a table.

    Nothing is cut. Where the terminal is too narrow cells are wrapped between words; where a word does not fit then,
    each record is printed a field a line.
    """
    if as_json:
        print_json(list(rows))
        return
    cells = [[_cell(getattr(row, column)) for column in columns] for row in rows]
    if not rows:
        console.print(f"{title}: none", markup=False, highlight=False)
        return
    widths = column_widths([list(columns), *cells], console.width)
    if widths is None:
        _print_stacked(cells, columns, title)
        return
    padding = (0, len(_GAP), 0, 0)
    table = Table(title=escape(title), title_justify="left", box=None, header_style="bold", padding=padding)
    table.pad_edge = False
    for column, width in zip(columns, widths, strict=True):
        table.add_column(column, width=width)
    for line in cells:
        table.add_row(*map(escape, line))
    console.print(table)


def column_widths(lines: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """Return how wide each column of a table is to be, so that no word of its cells is broken or cut.

    Args:
        lines: the cells, with the headings.
        width: of the terminal; between two columns are two spaces.

    Returns:
        As wide as the longest cell where that fits. Else the widest columns are narrower; None where not even the
        longest words fit.
    """
    columns = list(zip(*lines, strict=True))
    natural = [max(map(cell_len, column)) for column in columns]
    least = [max(cell_len(word) for cell in column for word in cell.split() or [""]) for column in columns]
    room = width - len(_GAP) * (len(columns) - 1)
    if sum(least) > room:
        return None
    widths = list(natural)
    while sum(widths) > room:
        # The widest of those that can be narrower.
        i = max((i for i in range(len(widths)) if widths[i] > least[i]), key=widths.__getitem__)
        widths[i] -= 1
    return widths


def one_line(text: str) -> str:
    """Return a text as one line that any terminal can show: names may hold line breaks, escapes and broken UTF-8."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)
    half = _LONGEST_ERROR // 2
    return shown if len(shown) <= _LONGEST_ERROR else f"{shown[:half]} ... {shown[-half:]}"


def n_fitting(rows: Sequence[Any], columns: Sequence[str], n_lines: int) -> int:
    """How many of these records, from the first one on, a table of so many lines has room for; at least one."""
    cells = [[_cell(getattr(row, column)) for column in columns] for row in rows]
    widths = column_widths([list(columns), *cells], console.width) if rows else None
    n_used = 0
    for n, line in enumerate(cells):
        if widths is None:
            n_used += len(columns) + 1
        else:
            n_used += max(len(textwrap.wrap(cell, width)) or 1 for cell, width in zip(line, widths, strict=True))
        if n_used > n_lines:
            return max(1, n)
    return len(rows)


def screen_rows(n_other_lines: int = 4) -> int:
    """How many lines of a table fit a screen beside its title, its headings and what is said below."""
    return max(5, console.height - n_other_lines)


def say(text: str) -> None:
    """Print a sentence of a result: on a terminal wrapped between words, else in one line, as programs like it."""
    text = wrapped(text, console.width) if console.is_terminal else text
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def wrapped(text: str, width: int) -> str:
    """Wrap between words; the words of a command stay together, so that it can be copied whole.

    A command is what follows "foltr", up to a comma, a semicolon, a bracket or the end of its sentence.
    """
    kept = _COMMAND.sub(lambda found: found.group().replace(" ", _NO_BREAK), text)
    lines = textwrap.wrap(kept, width, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace(_NO_BREAK, " ")


def print_record(record: Any, *, title: str, as_json: bool) -> None:
    """Print one record, a field a line."""
    if as_json:
        print_json(record)
        return
    table = Table(title=title, title_justify="left", box=None, show_header=False)
    table.add_column()
    table.add_column(overflow="fold")  # nothing of one record is left out
    for field in dataclasses.fields(record):
        table.add_row(field.name, escape(_cell(getattr(record, field.name))))
    console.print(table)


def configure_logging(level: str, log_format: str) -> None:
    """Send log lines to standard error.

    On a terminal somebody reads along: the time of day is enough, and little is padded. Elsewhere lines are kept, so
    each has its date, in UTC and to the microsecond.
    """
    on_terminal = log_format != "json" and sys.stderr.isatty()
    stamp = structlog.processors.TimeStamper(fmt="%H:%M:%S" if on_terminal else "iso", utc=not on_terminal)
    renderer: Any = structlog.processors.JSONRenderer()
    if log_format != "json":
        renderer = structlog.dev.ConsoleRenderer(
            colors=on_terminal, pad_level=not on_terminal, pad_event_to=0 if on_terminal else 30
        )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            stamp,
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
    )


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    if isinstance(value, float):
        # Three places say nothing of a delta of a millionth.
        return f"{value:.3f}" if value == 0.0 or abs(value) >= 0.001 else f"{value:.3g}"
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    return str(value)


def _print_stacked(cells: Sequence[Sequence[str]], columns: Sequence[str], title: str) -> None:
    console.print(title, style="italic", markup=False, highlight=False)
    longest = max(map(len, columns))
    for line in cells:
        table = Table(box=None, show_header=False)
        table.add_column(width=longest)
        table.add_column(overflow="fold")
        for column, cell in zip(columns, line, strict=True):
            table.add_row(column, escape(cell))  # what devices say of themselves is no markup
        console.print(table)
        console.print()


def require_existing(db_url: str) -> None:
    """Refuse a SQLite file that is not there: looking must not create one, and a typo should be seen."""
    path = db_url.removeprefix("sqlite:///")
    if path != db_url and not Path(path).exists():
        raise SettingsError(
            f"db_url: there is no file {path}. Check the path; to create a database: foltr db upgrade --db {db_url}"
        )
