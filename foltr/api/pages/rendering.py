"""Renders templates. Jinja escapes all text: what comes from the database is never markup."""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from foltr.core.protocol.events import EventKind
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.version import __version__
from foltr.operations.explanations import duration
from foltr.operations.situation import MOST_APART

HERE = Path(__file__).parent
_NOTHING = "\N{EN DASH}"
_REASONS: Mapping[str, str] = {code: code.explanation for code in ReceiptCode}
_KINDS: Mapping[str, str] = {kind: kind.meaning for kind in EventKind}


def render(template: str, code: int = 200, **values: Any) -> HTMLResponse:
    """Return a page."""
    return HTMLResponse(_templates.get_template(template).render(**values), code)


def _moment(at: datetime | None) -> str:
    return _NOTHING if at is None else f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}"


def _ago(at: datetime | None, now: datetime) -> str:
    if at is None:
        return _NOTHING
    if at > now + MOST_APART:
        return f"{duration((at - now).total_seconds())} in the future"
    return f"{duration((now - at).total_seconds())} ago"


def _counted(value: float | None) -> str:
    """Format a number: whole if it is, else with one decimal."""
    if value is None:
        return _NOTHING
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.1f}"


def _words(name: str) -> str:
    return str(name).replace("_", " ")


def _address(path: str, **parameters: Any) -> str:
    """Return an address with the parameters that have a value."""
    given = {name: value for name, value in parameters.items() if value not in (None, "", False)}
    return f"{path}?{urlencode(given)}" if given else path


def _many(n: int, noun: str) -> str:
    return f"{n:,} {noun}{'' if n == 1 else 's'}"


_templates = Environment(
    loader=FileSystemLoader(HERE / "templates"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_templates.filters |= {"moment": _moment, "ago": _ago, "counted": _counted, "words": _words, "many": _many}
_templates.globals |= {
    "address": _address,
    "reason_meaning": lambda code: _REASONS.get(code, ""),
    "kind_meaning": lambda kind: _KINDS.get(kind, ""),
    "version": __version__,
}
