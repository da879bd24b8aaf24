"""Lists of what the database remembers: a table that fits the screen, or JSON."""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from foltr.cli.database import run_query
from foltr.cli.output import fitting, print_json, print_rows, say, say_more, screen_rows, to_plain

if TYPE_CHECKING:
    from foltr.storage.database import Database

Row = TypeVar("Row")

JSON_ROWS = 1000
"""A program is given so many, unless it asks for another number."""


@dataclass(frozen=True)
class Listing(Generic[Row]):
    """One list, as a command describes it.

    Attributes:
        what: its records, e.g. "Rounds".
        columns: of each column of the table what it says of a record.
        read: so many records of a federation, at most.
        n_all: how many there are, by the records that were read.
        newest: whether the last ones are kept if not all fit, else the first.
        plain: a record as a program gets it.
        notes: the lines below the table.
    """

    what: str
    columns: Mapping[str, Callable[[Row], Any]]
    read: Callable[["Database", str, int], Awaitable[Sequence[Row]]]
    n_all: Callable[["Database", str, Sequence[Row]], Awaitable[int]]
    newest: bool = True
    plain: Callable[[Row], Any] = to_plain
    notes: Callable[[Sequence[Row]], Iterable[str]] = lambda _rows: ()


def print_listing(listing: Listing[Row], db: str | None, federation: str | None, limit: int | None, json: bool) -> None:
    """Print a list of the database, as JSON or as a table with a line below that says what it leaves out."""

    async def query(database: "Database", name: str) -> None:
        rows = await listing.read(database, name, limit or (JSON_ROWS if json else screen_rows()))
        if json:
            print_json([listing.plain(row) for row in rows])
            return
        shown = fitting(rows, listing.columns, newest=listing.newest) if limit is None else rows
        print_rows(shown, listing.columns, title=f"{listing.what} of {name}")
        n_all = await listing.n_all(database, name, rows)
        what = f"Earlier {listing.what.lower()}" if listing.newest else listing.what
        say_more(n_all - len(shown), what, f"--limit {n_all}")
        for sentence in listing.notes(rows):
            say(sentence)

    run_query(db, federation, query)
