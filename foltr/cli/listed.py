"""Lists that fit a screen: how many are asked for, and a line that says how many more there are."""

from collections.abc import Sequence
from typing import Any, TypeVar

from foltr.cli.output import n_fitting, print_rows, say, screen_rows

Row = TypeVar("Row")

JSON_ROWS = 1000
"""A program is given so many, unless it asks for another number."""
# The title, the headings, what is said below, and the line that the shell begins.
_OTHER_LINES = 6


def rows_to_list(limit: int | None, *, json: bool) -> int:
    """Say how many rows to ask for: as many as were wanted, else as fit the screen, or as a program is given."""
    if limit is not None:
        return limit
    return JSON_ROWS if json else screen_rows(_OTHER_LINES)


def fitting(rows: list[Row], columns: Sequence[str], limit: int | None, *, newest: bool = True) -> list[Row]:
    """Of lines that were asked for as `rows_to_list` says, those that fit: one may take more than a line of the screen.

    Args:
        newest: whether the last ones are kept, else the first.
    """
    if limit is not None:
        return rows
    n = n_fitting(rows[::-1] if newest else rows, columns, screen_rows(_OTHER_LINES))
    return rows[len(rows) - n :] if newest else rows[:n]


def say_more(n_more: int, what: str, option: str) -> None:
    """Say how many rows are not shown, and what shows them; nothing where all are.

    Args:
        what: "Earlier rounds", say.
        option: "--limit 1000", or a command.
    """
    if n_more > 0:
        say(f"{what} not shown: {n_more}; to see them: {option}")


def print_some(
    rows: Sequence[Any], columns: Sequence[str], *, title: str, option: str, show_all: bool, newest: bool = False
) -> None:
    """Print a table of as many rows as fit a screen, and say how many more there are.

    Args:
        option: the command that shows all.
        newest: whether the last ones are shown, else the first.
    """
    n = len(rows) if show_all else n_fitting(rows[::-1] if newest else rows, columns, screen_rows())
    shown = rows[len(rows) - n :] if newest else rows[:n]
    print_rows(shown, columns, title=title, as_json=False)
    say_more(len(rows) - n, "Earlier lines" if newest else "Lines", option)
