"""What the pages of benchmarks are written with: tables of Markdown, and numbers of three digits."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def table(titles: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table of Markdown; cells are texts or numbers."""
    lines = [titles, ["---"] * len(titles), *([cell(value) for value in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def table_of(rows: Iterable[Mapping[str, Any]]) -> str:
    """Return a table with a column for each key of the rows whose values are texts or numbers, in their first order.

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
    """Three significant digits, thousands apart."""
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def distinct(values: Iterable[Any]) -> list[Any]:
    """In their first order; they need not be hashable."""
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found
