"""Markdown tables and numbers with three digits for the pages of benchmarks."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def table(titles: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a Markdown table; cells are texts or numbers."""
    lines = [titles, ["---"] * len(titles), *([cell(value) for value in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def table_of(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return a table with a column for each key whose values are texts or numbers, in order of first occurrence.

    A key is its column's title, with spaces for underscores; a row may lack it.
    """
    found = list(rows)
    keys = dict.fromkeys(key for row in found for key, value in row.items() if not isinstance(value, dict | list))
    return table([key.replace("_", " ") for key in keys], [[row.get(key) for key in keys] for row in found])


def cell(value: Any) -> str:
    if value is None:
        return ""
    return number(value) if isinstance(value, int | float) and not isinstance(value, bool) else str(value)


def number(value: float) -> str:
    """Format with three significant digits and separated thousands."""
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def distinct(values: Iterable[Any]) -> list[Any]:
    """Return distinct values in order of first occurrence; they need not be hashable."""
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found
