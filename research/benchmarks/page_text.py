"""What the page of benchmarks is written with: tables of Markdown, and numbers of three digits."""

from collections.abc import Iterable, Sequence
from typing import Any


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def number(value: float) -> str:
    """Three significant digits, thousands apart."""
    if value >= 100 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.3g}"


def distinct(values: Iterable[Any]) -> list[Any]:
    """In their first order."""
    found: list[Any] = []
    for value in values:
        if value not in found:
            found.append(value)
    return found
