"""The simulated database against the real one: what a simulation stored, stored once more in SQLite."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import simulation.store
from simulation.scenario import draw
from simulation.store import Session, Tables
from simulation.world import run
from sqlalchemy import select

import federator.actor
from storage import tables
from storage.database import Database
from storage.migrate import upgrade
from storage.records import ClientRow, FederationRow, ModelRow, RoundRow, UpdateRow

Call = tuple[str, tuple[Any, ...], dict[str, Any]]


class _Store:
    """A store that notes which call it was that it took."""

    def __init__(self, session: Session, taken: Callable[[], None]) -> None:
        self._store, self._taken = session.store, taken

    @property
    def tables(self) -> Tables:
        return self._store.tables

    def transact(self, change: Callable[[Tables], Any], epoch: int | None) -> Any:
        result = self._store.transact(change, epoch)
        self._taken()
        return result


class _Session:
    def __init__(self, session: Session, taken: Callable[[], None]) -> None:
        self.before, self.after, self.store = session.before, session.after, _Store(session, taken)


def noted(name: str, function: Callable[..., Awaitable[Any]], calls: list[Call]) -> Callable[..., Awaitable[Any]]:
    """``function``, which notes in ``calls`` every call that was committed."""

    async def call(session: Session, *args: Any, **options: Any) -> Any:
        return await function(_Session(session, lambda: calls.append((name, args, options))), *args, **options)

    return call


@pytest.mark.parametrize("seed", [0, 2, 4, 11])
async def test_the_simulated_database_is_like_the_real_one(seed: int, tmp_path: Path):
    """Every row of every table, after the same transactions in the same order, some of them twice."""
    calls: list[Call] = []
    functions = {
        name: function if name == "stream_updates" else noted(name, function, calls)
        for name, function in simulation.store.FUNCTIONS.items()
    }
    with mock.patch.dict(simulation.store.FUNCTIONS, functions):
        simulated = run(draw(seed)).store.tables
    url = f"sqlite:///{tmp_path / 'foltr.sqlite'}"
    async with await Database.connect(url) as db:
        await upgrade(db)
        for name, args, options in calls:
            await getattr(federator.actor, name)(db, *args, **options)
        assert await _rows(db, tables.federations, FederationRow) == [simulated.federation]
        for table, row, stored in (
            (tables.clients, ClientRow, simulated.clients),
            (tables.models, ModelRow, simulated.models),
            (tables.rounds, RoundRow, simulated.rounds),
            (tables.updates, UpdateRow, simulated.updates),
        ):
            assert await _rows(db, table, row) == [stored[key] for key in sorted(stored)]


async def _rows(db: Database, table: Any, row: type) -> list[Any]:
    async with db.reading() as connection:
        found = await connection.execute(select(table).order_by(*table.primary_key))
        return [row(*values) for values in found]
