"""Lists of what the database remembers: a table that fits the screen, JSON, or a stream of JSON lines that goes on."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from foltr.cli.database import answering, run_query
from foltr.cli.output import (
    errors,
    n_fitting,
    print_json,
    print_jsonl,
    print_rows,
    say,
    say_more,
    screen_rows,
    to_plain,
)
from foltr.core.errors import SettingsError, UnavailableError

if TYPE_CHECKING:
    from foltr.storage.database import Database

Row = TypeVar("Row")

JSON_ROWS = 1000
"""A program is given so many, unless it asks for another number."""
# The title, the headings, what is said below, and the line that the shell begins.
_OTHER_LINES = 6
_LOOK_EVERY_S = 1.0
_LOOK_S = 10.0
_MOST_BUSY = 0.1


def _nothing(_rows: Sequence[Any]) -> Iterable[str]:
    return ()


@dataclass(frozen=True)
class Listing(Generic[Row]):
    """One list, as a command describes it.

    Attributes:
        what: its records, e.g. "Rounds".
        key: the field that says which record it is.
        read: so many records of a federation, at most.
        lines: the named tuples that the records are in a table.
        n_all: how many there are, by the records that were read.
        newest: whether the last ones are kept where not all fit, else the first.
        plain: a record as a program gets it.
        notes: the lines below the table.
        in_words: a record as a sentence, for people who watch; None: only programs watch.
    """

    what: str
    key: str
    read: Callable[["Database", str, int], Awaitable[Sequence[Row]]]
    lines: Callable[[Sequence[Row]], Sequence[Any]]
    n_all: Callable[["Database", str, Sequence[Row]], Awaitable[int]]
    newest: bool = True
    plain: Callable[[Row], Any] = to_plain
    notes: Callable[[Sequence[Row]], Iterable[str]] = _nothing
    in_words: Callable[[Row], str] | None = None


@dataclass(frozen=True)
class Wanted:
    """What is asked of a list: its options.

    Raises:
        SettingsError: two of them contradict each other.
    """

    limit: int | None
    watch: bool = False
    json: bool = False
    jsonl: bool = False

    def __post_init__(self) -> None:
        if self.json and self.jsonl:
            raise SettingsError("json: it is one list, and --jsonl a line for each record; give one of them")
        if self.json and self.watch:
            raise SettingsError("json: a stream has a line of JSON for each record: --jsonl --watch")

    @property
    def n_rows(self) -> int:
        """How many rows to ask for: those wanted, else what a program is given or what fits the screen."""
        return self.limit or (JSON_ROWS if self.json or self.jsonl else screen_rows(_OTHER_LINES))


def print_listing(listing: Listing[Row], db: str | None, federation: str | None, wanted: Wanted) -> None:
    """Print a list of the database as it is wanted. See `Wanted` for what raises SettingsError."""
    if wanted.watch and not wanted.jsonl and listing.in_words is None:
        raise SettingsError("watch: of a list it goes with --jsonl; a screen that goes on is foltr status --watch")

    async def query(database: "Database", name: str) -> None:
        if wanted.watch:
            await _watch(listing, database, name, wanted)
            return
        rows = await listing.read(database, name, wanted.n_rows)
        if wanted.json:
            print_json([listing.plain(row) for row in rows])
        elif wanted.jsonl:
            for row in rows:
                print_jsonl(listing.plain(row))
        else:
            await _print_table(listing, database, name, rows, wanted.limit)

    run_query(db, federation, query)


async def _print_table(
    listing: Listing[Row], database: "Database", name: str, rows: Sequence[Row], limit: int | None
) -> None:
    lines = print_fitting(listing.lines(rows), f"{listing.what} of {name}", limit, newest=listing.newest)
    n_all = await listing.n_all(database, name, rows)
    what = f"Earlier {listing.what.lower()}" if listing.newest else listing.what
    say_more(n_all - len(lines), what, f"--limit {n_all}")
    for sentence in listing.notes(rows):
        say(sentence)


def print_fitting(lines: Sequence[Any], title: str, limit: int | None, *, newest: bool = True) -> Sequence[Any]:
    """Print those lines that fit the screen, unless so many were asked for; return them."""
    if limit is None:
        n = n_fitting(lines, newest=newest, n_other_lines=_OTHER_LINES)
        lines = lines[len(lines) - n :] if newest else lines[:n]
    print_rows(lines, title=title)
    return lines


async def _watch(listing: Listing[Row], database: "Database", name: str, wanted: Wanted) -> None:
    """Print records, and then each that is new or changes; a database that is away is waited for."""
    told: dict[Any, Any] | None = None
    while True:
        began = time.monotonic()
        try:
            async with answering(database, _LOOK_S):
                await database.follow_file()
                rows = await listing.read(database, name, max(wanted.n_rows, JSON_ROWS))
        except UnavailableError as error:
            errors.print(f"{error} Looking again", markup=False, highlight=False, soft_wrap=True)
        else:
            found = [(listing.plain(row), row) for row in rows]
            if told is None:
                new = found[-wanted.n_rows :] if listing.newest else found[: wanted.n_rows]
            else:
                new = [(record, row) for record, row in found if told.get(record[listing.key]) != record]
            for record, row in new:
                if wanted.jsonl or listing.in_words is None:
                    print_jsonl(record)
                else:
                    say(listing.in_words(row))
            # What is in the list no more was erased, say: nothing of it is kept here either.
            told = {record[listing.key]: record for record, _ in found}
        await asyncio.sleep(pause_after(time.monotonic() - began))


def pause_after(look_s: float) -> float:
    """Return how long to wait after a look that took so many seconds: all is read again, and it may be much.

    A thousand large models, say, or a long audit log: who watches them must not keep the database busy.
    """
    return max(_LOOK_EVERY_S, look_s * (1 / _MOST_BUSY - 1))
