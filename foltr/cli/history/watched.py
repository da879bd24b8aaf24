"""``foltr rounds list --watch``: each round as it ends, as a line for people or a line of JSON for programs."""

import asyncio
from typing import TYPE_CHECKING

from foltr.cli.history.query import answering, run_query
from foltr.cli.listed import rows_to_list
from foltr.cli.output import errors, print_jsonl, say, to_plain
from foltr.errors import UnavailableError

if TYPE_CHECKING:
    from storage.database import Database
    from storage.history_records import RoundHistoryRow

_LOOK_EVERY_S = 1.0
_LOOK_S = 10.0


def watch_rounds(db: str | None, federation: str | None, limit: int | None, *, jsonl: bool) -> None:
    """Print the newest rounds that have ended, and then each one that ends. A database that is away is waited for.

    Where one with fewer rounds takes its place, by a restore, those that end in it are told from there on.
    """

    from storage.queries import erased_updates

    async def query(database: "Database", name: str) -> None:
        last = 0
        while True:
            try:
                async with answering(database, _LOOK_S):
                    await database.follow_file()
                    last = await _as_told(database, name, last)
                    rows = await _ended_since(database, name, last, rows_to_list(limit, json=jsonl))
                    erased = await erased_updates(database, name, rows[0].round, rows[-1].round) if rows else {}
            except UnavailableError as error:
                errors.print(f"{error} Looking again", markup=False, highlight=False, soft_wrap=True)
                rows = []
            for row in rows:
                last = row.round
                if jsonl:
                    print_jsonl(to_plain(row) | {"n_erased": erased.get(row.round, 0)})
                else:
                    say(_in_words(row))
            await asyncio.sleep(_LOOK_EVERY_S)

    run_query(db, federation, query)


async def _as_told(database: "Database", name: str, last: int) -> int:
    """The last round that was told and has ended; a lower one where the database knows nothing of its end any more."""
    from storage.rounds import latest_round

    newest = await latest_round(database, name)
    if newest is None:
        return 0
    n_ended = newest.number - (newest.closed_at is None)
    return min(last, n_ended)


async def _ended_since(database: "Database", name: str, last: int, n_first: int) -> "list[RoundHistoryRow]":
    """List the rounds after one that have ended; of the first look the newest so many."""
    from storage.queries import list_rounds
    from storage.rounds import latest_round

    newest = await latest_round(database, name)
    if newest is None or newest.number == last:
        return []
    n = n_first if last == 0 else newest.number - last
    rows = await list_rounds(database, name, limit=min(n, 1000))
    return [row for row in rows if row.closed_at is not None and row.round > last]


def _in_words(row: "RoundHistoryRow") -> str:
    how = f"abandoned ({row.reason})" if row.model_version is None else f"completed, model {row.model_version}"
    at = "" if row.closed_at is None else f"{row.closed_at:%m-%d %H:%M:%S} "
    return f"{at}round {row.round} {how}: {row.n_updates} updates, {row.n_rejected} refused, {row.duration_s:.1f} s"
