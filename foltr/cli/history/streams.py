"""Lists for programs: a line of JSON for each record, and with ``--watch`` another for each that is new or changes."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from foltr.cli.history.query import answering, run_query
from foltr.cli.listed import JSON_ROWS
from foltr.cli.output import errors, print_jsonl, to_plain
from foltr.errors import SettingsError, UnavailableError

if TYPE_CHECKING:
    from storage.database import Database

_LOOK_EVERY_S = 1.0
_LOOK_S = 10.0
_MOST_BUSY = 0.1

Read = Callable[["Database", str, int], Awaitable[Sequence[Any]]]
"""Read so many records of a federation, at most."""


def stream_records(
    db: str | None, federation: str | None, read: Read, key: str, limit: int | None, *, watch: bool
) -> None:
    """Print records as lines of JSON; ``watch``: until Ctrl-C, and a database that is away is waited for.

    Args:
        key: the field that says which record it is.
    """

    async def query(database: "Database", name: str) -> None:
        told: dict[Any, Any] = {}
        while True:
            began = time.monotonic()
            try:
                async with answering(database, _LOOK_S):
                    if watch:
                        await database.follow_file()
                    records = [to_plain(record) for record in await read(database, name, limit or JSON_ROWS)]
            except UnavailableError as error:
                if not watch:
                    raise
                errors.print(f"{error} Looking again", markup=False, highlight=False, soft_wrap=True)
            else:
                for record in records:
                    if told.get(record[key]) != record:
                        print_jsonl(record)
                # What is in the list no more was erased, say: nothing of it is kept here either.
                told = {record[key]: record for record in records}
            if not watch:
                return
            await asyncio.sleep(pause_after(time.monotonic() - began))

    run_query(db, federation, query)


def pause_after(look_s: float) -> float:
    """Return how long to wait after a look that took so many seconds: all is read again, and it may be much.

    A thousand large models, say, or a long audit log: whoever watches them must not keep the database busy.
    """
    return max(_LOOK_EVERY_S, look_s * (1 / _MOST_BUSY - 1))


def check_stream(*, watch: bool, json: bool, jsonl: bool) -> None:
    """Refuse combinations that mean nothing.

    Raises:
        SettingsError: a list is watched as something else than lines of JSON.
    """
    if json and jsonl:
        raise SettingsError("json: it is one list, and --jsonl a line for each record; give one of them")
    if watch and not jsonl:
        raise SettingsError("watch: of a list it goes with --jsonl; a screen that goes on is foltr status --watch")
