"""How results look: a table for people, JSON for programs; and log lines on standard error."""

import dataclasses
import json
import logging
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import structlog
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from foltr.errors import SettingsError

console = Console()
errors = Console(stderr=True)


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


def print_rows(rows: Sequence[Any], columns: Sequence[str], *, title: str, as_json: bool) -> None:
    """Print records: every field as JSON, or the named columns as a table."""
    if as_json:
        print_json(list(rows))
        return
    table = Table(title=title, title_justify="left", box=None, header_style="bold")
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*(_cell(getattr(row, column)) for column in columns))
    console.print(table if rows else f"{title}: none")


def print_record(record: Any, *, title: str, as_json: bool) -> None:
    """Print one record, a field a line."""
    if as_json:
        print_json(record)
        return
    table = Table(title=title, title_justify="left", box=None, show_header=False)
    table.add_column()
    table.add_column(overflow="fold")  # nothing of one record is left out
    for field in dataclasses.fields(record):
        table.add_row(field.name, _cell(getattr(record, field.name)))
    console.print(table)


def configure_logging(level: str, log_format: str) -> None:
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if log_format == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
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
    return escape(str(value))  # what devices say of themselves is no markup


def require_existing(db_url: str) -> None:
    """Refuse a SQLite file that is not there: looking must not create one, and a typo should be seen."""
    path = db_url.removeprefix("sqlite:///")
    if path != db_url and not Path(path).exists():
        raise SettingsError(
            f"db_url: there is no file {path}. Check the path; to create a database: foltr db upgrade --db {db_url}"
        )
