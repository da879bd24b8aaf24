"""Output: tables for people, JSON for programs, log lines on standard error, and written files."""

import dataclasses
import json
import logging
import math
import re
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, TypeVar

import structlog
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from foltr.core.errors import SettingsError
from foltr.core.user_files import check_file, resolve

Row = TypeVar("Row")
Columns = Mapping[str, Callable[[Any], Any]] | Sequence[str]

console = Console()
errors = Console(stderr=True)

_COMMAND = re.compile(r"foltr(?: [^\s,;()]*[^\s,;().:])+")
_NO_BREAK = "\N{WORD JOINER}"
_GAP = "  "
# The cause is at the beginning of a message, what to do at the end, and user input in between.
_LONGEST_ERROR = 1500


def to_plain(value: Any) -> Any:
    """Convert rows and times to JSON types. Infinity becomes null, and bytes (model weights) become their number."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return {"bytes": len(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        value = value._asdict()
    if isinstance(value, dict):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def print_json(value: Any) -> None:
    # Not through rich, which would wrap lines at the terminal's width.
    sys.stdout.write(json.dumps(to_plain(value), indent=2) + "\n")


def print_jsonl(value: Any) -> None:
    """Print one line of JSON and flush it, for readers of a stream."""
    sys.stdout.write(json.dumps(to_plain(value)) + "\n")
    sys.stdout.flush()


def report(as_json: bool, data: Any, *sentences: str) -> None:
    """Print a result as JSON or as sentences. Empty sentences are skipped."""
    if as_json:
        print_json(data)
        return
    for sentence in filter(None, sentences):
        say(sentence)


def print_rows(
    rows: Sequence[Any],
    columns: Columns = (),
    *,
    title: str,
    as_json: bool = False,
    all_with: str | None = None,
    newest: bool = False,
) -> None:
    """Print records: every field as JSON, or selected columns as a table without empty ones.

    Nothing is cut. In a narrow terminal cells wrap between words, except cells of several lines. If a word still does
    not fit, each record is printed one field per line.

    Args:
        columns: names of fields, or by column how to get its text from a record; default: all fields.
        all_with: the command that shows all records. The table then has as many as fit the screen, with a line that
            counts the others. None: it has all.
        newest: whether the last ones are kept then, else the first.
    """
    if as_json:
        print_json(list(rows))
        return
    shown = rows if all_with is None else fitting(rows, columns, newest=newest)
    _print_table(shown, columns, title)
    if all_with is not None:
        say_more(len(rows) - len(shown), "Earlier lines" if newest else "Lines", all_with)


def say_more(n_more: int, what: str, option: str) -> None:
    """Say how many rows are not shown, and the option or command that shows them."""
    if n_more > 0:
        say(f"{what} not shown: {n_more}; to see them: {option}")


def print_record(record: Any, *, title: str, as_json: bool = False) -> None:
    """Print one record or dict, one field per line and uncut: a truncated digest proves nothing."""
    if as_json:
        print_json(record)
        return
    if not isinstance(record, dict):
        record = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    console.print(title, style="italic", markup=False, highlight=False, soft_wrap=True)
    _print_fields([(name, _cell(value)) for name, value in record.items()])


def _print_table(rows: Sequence[Any], columns: Columns, title: str) -> None:
    if not rows:
        console.print(f"{title}: none", markup=False, highlight=False)
        return
    names, cells = _cells(rows, columns)
    widths = column_widths([names, *cells], console.width)
    if widths is None:
        console.print(title, style="italic", markup=False, highlight=False)
        for line in cells:
            _print_fields(list(zip(names, line, strict=True)))
            console.print()
        return
    padding = (0, len(_GAP), 0, 0)
    table = Table(title=escape(title), title_justify="left", box=None, header_style="bold", padding=padding)
    table.pad_edge = False
    for column, width in zip(names, widths, strict=True):
        table.add_column(column, width=width)
    for line in cells:
        table.add_row(*map(escape, line))
    console.print(table)


def _print_fields(fields: Sequence[tuple[str, str]]) -> None:
    table = Table(box=None, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, cell in fields:
        table.add_row(name, escape(cell))  # text from devices is not markup
    console.print(table)


def _cells(rows: Sequence[Any], columns: Columns) -> tuple[list[str], list[list[str]]]:
    """Return the columns with at least one value, and their cells."""
    if not isinstance(columns, Mapping):
        get, all_names = (itemgetter, rows[0]) if isinstance(rows[0], dict) else (attrgetter, None)
        columns = {name: get(name) for name in columns or all_names or rows[0]._fields}
    values = {name: [says(row) for row in rows] for name, says in columns.items()}
    kept = {name: said for name, said in values.items() if any(value is not None for value in said)}
    return list(kept), [[_cell(value) for value in line] for line in zip(*kept.values(), strict=True)]


def column_widths(lines: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """Return the column widths at which no word of a cell is broken or cut.

    Args:
        lines: the cells, including the headings.
        width: of the terminal; columns are two spaces apart.

    Returns:
        the longest cells' widths if they fit, else with narrowed widest columns. None if the longest words do not fit.
    """
    columns = list(zip(*lines, strict=True))
    widths = [max(cell_len(line) for cell in column for line in cell.splitlines() or [""]) for column in columns]
    least = [max(cell_len(part) for cell in column for part in _parts(cell)) for column in columns]
    room = width - len(_GAP) * (len(columns) - 1)
    if sum(least) > room:
        return None
    while sum(widths) > room:
        # Narrow the widest column that can be.
        i = max((i for i in range(len(widths)) if widths[i] > least[i]), key=widths.__getitem__)
        widths[i] -= 1
    return widths


def _parts(cell: str) -> list[str]:
    """Return the unbreakable parts of a cell: its words, or its lines if it has several."""
    return (cell.splitlines() if "\n" in cell else cell.split()) or [""]


def fitting(rows: Sequence[Row], columns: Columns = (), *, newest: bool) -> Sequence[Row]:
    """Return the records that fit one screen, from the first or the last on; at least one."""
    if not rows:
        return rows
    names, cells = _cells(rows, columns)
    widths = column_widths([names, *cells], console.width)
    n, n_used = 0, 0
    for line in reversed(cells) if newest else cells:
        if widths is None:
            n_used += len(names) + 1
        else:
            n_used += max(_n_lines(cell, width) for cell, width in zip(line, widths, strict=True))
        if n_used > screen_rows():
            break
        n += 1
    return rows[-max(1, n) :] if newest else rows[: max(1, n)]


def _n_lines(cell: str, width: int) -> int:
    return sum(len(textwrap.wrap(line, width)) or 1 for line in cell.splitlines() or [""])


def one_line(text: str) -> str:
    """Return a text as one printable line: names may contain line breaks, escapes and broken UTF-8."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode() for c in text)
    half = _LONGEST_ERROR // 2
    return shown if len(shown) <= _LONGEST_ERROR else f"{shown[:half]} ... {shown[-half:]}"


def screen_rows() -> int:
    """Return how many table lines fit a screen, beside title, headings, notes and the shell's prompt."""
    return max(5, console.height - 6)


def say(text: str) -> None:
    """Print a sentence: wrapped on a terminal, else on one line for programs."""
    text = wrapped(text, console.width) if console.is_terminal else text
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def warn(text: str) -> None:
    """Print a sentence on standard error. Empty ones are skipped."""
    if text:
        errors.print(text, markup=False, highlight=False, soft_wrap=True)


def wrapped(text: str, width: int) -> str:
    """Wrap between words, but keep a command together so that it can be copied.

    A command is the text from "foltr" up to a comma, a semicolon, a bracket or the end of the sentence.
    """
    kept = _COMMAND.sub(lambda found: found.group().replace(" ", _NO_BREAK), text)
    lines = textwrap.wrap(kept, width, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace(_NO_BREAK, " ")


def configure_logging(level: str, log_format: str) -> None:
    """Send log lines to standard error.

    On a terminal lines have the time of day and little padding. Elsewhere they may be stored, so they have the date in
    UTC, to the microsecond.
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
        # Three decimals would show a delta of a millionth as 0.
        return f"{value:.3f}" if value == 0.0 or abs(value) >= 0.001 else f"{value:.3g}"
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    return str(value)


def require_existing(db_url: str) -> None:
    """Raise SettingsError if a SQLite file does not exist: reading must not create one, and typos should show."""
    path = db_url.removeprefix("sqlite:///")
    if path != db_url and not Path(path).exists():
        raise SettingsError(
            f"db_url: {path} does not exist. Check the path, move the file back or restore a backup; only for a new "
            f"federation: foltr db upgrade --db {db_url}"
        )


def check_folder(out: Path) -> None:
    """Raise SettingsError if the folder of an output file does not exist."""
    if not resolve(out).parent.is_dir():
        raise SettingsError(f"out: the folder {resolve(out).parent} does not exist")


def check_writable(path: Path | None, option: str, *, replaced: bool = True) -> None:
    """Raise SettingsError before the work starts if an output file could not be written.

    Args:
        replaced: see `foltr.core.user_files.check_file`.
    """
    if path is None:
        return
    try:
        check_file(path, replaced=replaced)
    except SettingsError as error:
        raise SettingsError(f"{option}: {error}") from error
