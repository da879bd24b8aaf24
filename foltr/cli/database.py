"""Shared by commands that read the database: choosing it and the federation, listings, and errors as JSON."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from foltr.cli.output import (
    errors,
    fitting,
    print_json,
    print_rows,
    require_existing,
    say,
    say_more,
    screen_rows,
    to_plain,
)
from foltr.cli.settings import Settings, load_settings
from foltr.core.erasure.states import UNTIL_ERASED
from foltr.core.errors import FoltrError, SettingsError, UnavailableError

if TYPE_CHECKING:
    from foltr.storage.database import Database


Row = TypeVar("Row")
JSON_ROWS = 1000
"""The number of records in JSON unless another is requested."""


def run_query(
    db: str | None,
    federation: str | None,
    query: Callable[["Database", str], Awaitable[None]],
    *,
    keys: str | None = None,
    opens: bool = False,
) -> None:
    """Run a query on the database.

    Args:
        keys: the folder of data keys; None for the one that belongs to the database.
        opens: whether the query decrypts stored updates and so needs the keys.
    """
    settings = load_settings(db_url=db, federation=federation, keys=keys)

    async def run() -> None:
        async with open_federation(settings, named=federation is not None, opens=opens) as (database, name):
            await query(database, name)

    asyncio.run(run())


@asynccontextmanager
async def open_federation(
    settings: Settings, *, named: bool, opens: bool = False
) -> "AsyncIterator[tuple[Database, str]]":
    """Open the database of the settings, and find the federation.

    Args:
        named: whether the user named the federation, so that no other may be used.
        opens: whether stored updates are decrypted, which needs the data keys.
    """
    from foltr.storage.database import Database
    from foltr.storage.keys import KeyStore, keys_folder
    from foltr.storage.migrate import require_head

    require_existing(settings.db_url)
    data_keys = KeyStore(keys_folder(settings.db_url, settings.keys)) if opens else None
    async with await Database.connect(settings.db_url, keys=data_keys) as database:
        await require_head(database)
        yield database, await _federation(database, settings.federation, named=named)


@asynccontextmanager
async def answering(database: "Database", within_s: float) -> AsyncIterator[None]:
    """Limit the time that a database, and perhaps a broker, may take to answer.

    Raises:
        UnavailableError: no answer in time, or the connection to the database was lost.
    """
    from sqlalchemy.exc import SQLAlchemyError

    try:
        async with asyncio.timeout(within_s):
            yield
    except TimeoutError as error:
        raise UnavailableError(
            f"{database.location} has not answered within {within_s:g} s. See: foltr doctor"
        ) from error
    except SQLAlchemyError as error:
        raise database.unavailable(error) from error


async def no_such_client(database: "Database", federation: str, client_id: str) -> SettingsError:
    """Return the error for an unknown client: it was forgotten, or it never existed."""
    from foltr.storage.pages import erasure_of

    row = await erasure_of(database, federation, client_id)
    if row is None:
        return SettingsError(f"federation {federation!r} knows no client {client_id!r}; see: foltr device list")
    when = f"was forgotten on {row.erased_at:%Y-%m-%d}"
    if row.state in UNTIL_ERASED:
        when = f"is being erased, since {row.requested_at:%Y-%m-%d}"
    return SettingsError(f"{client_id} of {federation} {when}; see: foltr erasure show {client_id}")


@contextmanager
def reason_as_json(json: bool, asked: dict[str, Any]) -> Iterator[None]:
    """Print the query and the reason for an error as JSON, then let the error propagate.

    Args:
        asked: the query. Entries that the block adds are printed, too.
    """
    try:
        yield
    except FoltrError as error:
        if json:
            print_json({**asked, "reason": str(error)})
        raise


async def _federation(database: "Database", name: str, *, named: bool) -> str:
    """Return the named federation, else the default one, else the only or newest one."""
    from foltr.storage.federations import list_federations

    known = await list_federations(database)
    if name in {row.name for row in known}:
        return name
    if not known or named:
        names = ", ".join(row.name for row in known) or "none"
        raise SettingsError(f"federation: {database.location} has no federation {name!r}; it has: {names}")
    newest = max(known, key=lambda row: row.created_at)
    if len(known) > 1:
        errors.print(f"{len(known)} federations; showing the newest, {newest.name} (choose with --federation)")
    return newest.name


@dataclass(frozen=True)
class Listing(Generic[Row]):
    """One list, as a command describes it.

    Attributes:
        what: its records, e.g. "Rounds".
        columns: by column of the table, how to get its text from a record.
        read: reads up to so many records of a federation.
        n_all: the total number, computed from the records that were read.
        newest: whether the last records are kept if not all fit, else the first.
        plain: a record for JSON.
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
    """Print a list as JSON, or as a table with a line that counts the omitted records."""

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
