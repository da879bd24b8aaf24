"""Lists of what the database remembers: a table that fits the screen, or JSON."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from foltr.cli.database import run_query
from foltr.cli.output import n_fitting, print_json, print_rows, say, say_more, screen_rows, to_plain

if TYPE_CHECKING:
    from foltr.storage.database import Database

Row = TypeVar("Row")

JSON_ROWS = 1000
"""A program is given so many, unless it asks for another number."""
# The title, the headings, what is said below, and the line that the shell begins.
_OTHER_LINES = 6


@dataclass(frozen=True)
class Listing(Generic[Row]):
    """One list, as a command describes it.

    Attributes:
        what: its records, e.g. "Rounds".
        read: so many records of a federation, at most.
        lines: the named tuples that the records are in a table.
        n_all: how many there are, by the records that were read.
        newest: whether the last ones are kept if not all fit, else the first.
        plain: a record as a program gets it.
        notes: the lines below the table.
    """

    what: str
    read: Callable[["Database", str, int], Awaitable[Sequence[Row]]]
    lines: Callable[[Sequence[Row]], Sequence[Any]]
    n_all: Callable[["Database", str, Sequence[Row]], Awaitable[int]]
    newest: bool = True
    plain: Callable[[Row], Any] = to_plain
    notes: Callable[[Sequence[Row]], Iterable[str]] = lambda _rows: ()


def print_listing(listing: Listing[Row], db: str | None, federation: str | None, limit: int | None, json: bool) -> None:
    """Print a list of the database, as JSON or as a table with a line below that says what it leaves out."""

    async def query(database: "Database", name: str) -> None:
        rows = await listing.read(database, name, limit or (JSON_ROWS if json else screen_rows(_OTHER_LINES)))
        if json:
            print_json([listing.plain(row) for row in rows])
            return
        n_all = await listing.n_all(database, name, rows)
        print_fitting(listing.lines(rows), listing.what, f" of {name}", n_all, limit, newest=listing.newest)
        for sentence in listing.notes(rows):
            say(sentence)

    run_query(db, federation, query)


def print_fitting(
    lines: Sequence[Any], what: str, whose: str, n_all: int, limit: int | None, *, newest: bool = True
) -> None:
    """Print those lines that fit the screen, unless so many were asked for, and how many of all there are beside."""
    if limit is None:
        n = n_fitting(lines, newest=newest, n_other_lines=_OTHER_LINES)
        lines = lines[len(lines) - n :] if newest else lines[:n]
    print_rows(lines, title=f"{what}{whose}")
    say_more(n_all - len(lines), f"Earlier {what.lower()}" if newest else what, f"--limit {n_all}")
