"""The simulated database against the real one: what a simulation stored, stored once more in SQLite."""

from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import simulation.store
import simulation.store_erasure
import simulation.store_unlearning
from databases import open_migrated
from simulation.scenario import draw
from simulation.seams import sign_stand_in
from simulation.store import Session, Tables
from simulation.world import run
from sqlalchemy import select

import federator.eraser
import storage.arrivals
import storage.erasure.erasures
import storage.erasure.unlearning_jobs
import storage.federations
import storage.models
import storage.rounds
from storage import tables
from storage.database import Database, fetch_all
from storage.erasure import tables as erasure_tables
from storage.erasure.audit_log import stream_audit
from storage.erasure.records import ErasureRow, UnlearningJobRow
from storage.events import event_values
from storage.models import model_row
from storage.records import ClientRow, FederationRow, RoundRow, UpdateRow

# Seeds with two jobs, a job that failed, two who leave in one, and a key that the federator died after destroying.
_WITH_JOBS = [101, 121, 176, 196]

_ASKED = (
    "latest_model",
    "newest_unlearned",
    "forgotten_pseudonyms",
    "deletions_to_vacuum",
    "unfinished_erasures",
    "waiting_erasures",
    "load_job",
    "list_jobs",
)

Call = tuple[str, tuple[Any, ...], dict[str, Any]]


class _Store:
    """A store that notes which call it was that it took."""

    def __init__(self, session: Session, taken: Callable[[], None]) -> None:
        self._store, self._taken = session.store, taken

    @property
    def tables(self) -> Tables:
        return self._store.tables

    @property
    def keys(self) -> set[str]:
        return self._store.keys

    def transact(self, change: Callable[[Tables], Any], epoch: int | None) -> Any:
        result = self._store.transact(change, epoch)
        self._taken()
        return result


class _Session:
    def __init__(self, session: Session, taken: Callable[[], None]) -> None:
        self.before, self.after, self.store = session.before, session.after, _Store(session, taken)
        self.pass_failpoint = session.pass_failpoint


def noted(name: str, function: Callable[..., Awaitable[Any]], calls: list[Call]) -> Callable[..., Awaitable[Any]]:
    """``function``, which notes in ``calls`` every call that was committed."""

    async def call(session: Session, *args: Any, **options: Any) -> Any:
        return await function(_Session(session, lambda: calls.append((name, args, options))), *args, **options)

    return call


_SIMULATED = (
    simulation.store.FUNCTIONS,
    simulation.store_erasure.ERASURE_FUNCTIONS,
    simulation.store_unlearning.UNLEARNING_FUNCTIONS,
)
_REAL = (
    storage.federations,
    storage.models,
    storage.arrivals,
    storage.rounds,
    storage.erasure.erasures,
    storage.erasure.unlearning_jobs,
)


def played(seed: int) -> tuple[Tables, list[Call]]:
    """What the run of a seed stored, and by which transactions."""
    calls: list[Call] = []
    with ExitStack() as stack:
        for functions in _SIMULATED:
            those = {
                name: function if name == "stream_updates" else noted(name, function, calls)
                for name, function in functions.items()
            }
            stack.enter_context(mock.patch.dict(functions, those))
        return run(draw(seed)).store.tables, calls


async def play_again(db: Database, calls: list[Call]) -> None:
    """The same transactions on a real database; receipts are signed once more, and come out the same."""
    with mock.patch.object(federator.eraser, "sign_receipt", sign_stand_in):
        for name, args, options in calls:
            await real(name)(db, *args, **options)


def real(name: str) -> Callable[..., Awaitable[Any]]:
    return next(vars(module)[name] for module in _REAL if name in vars(module))


@pytest.mark.parametrize("seed", [0, 2, 4, 11, *_WITH_JOBS])
async def test_the_simulated_database_is_like_the_real_one(seed: int, tmp_path: Path):
    """Every row and every answer, after the same transactions in the same order, some of them twice."""
    simulated, calls = played(seed)
    async with await open_migrated(f"sqlite:///{tmp_path / 'foltr.sqlite'}") as db:
        await play_again(db, calls)
        assert await _rows(db, tables.federations, FederationRow) == [simulated.federation]
        for table, row, stored in (
            (tables.clients, ClientRow, simulated.clients),
            (tables.models, model_row, simulated.models),
            (tables.rounds, RoundRow, simulated.rounds),
            (tables.updates, UpdateRow, simulated.updates),
            (erasure_tables.erasures, ErasureRow, simulated.erasures),
            (erasure_tables.unlearning_jobs, UnlearningJobRow, simulated.jobs),
        ):
            assert await _rows(db, table, row) == [stored[key] for key in sorted(stored)]
        assert await _events(db) == [event_values("sim", event) for event in simulated.events]
        assert tuple([entry async for entry in stream_audit(db, "sim")]) == simulated.audit
        session = _Quiet(simulated)
        for name, arguments in questions(simulated):
            answer = next(functions[name] for functions in _SIMULATED if name in functions)
            assert await answer(session, "sim", *arguments) == await real(name)(db, "sim", *arguments), name


def questions(simulated: Tables) -> list[tuple[str, tuple[Any, ...]]]:
    """What a federator asks about erasures and jobs when it starts, and when a job begins or goes on."""
    asked: list[tuple[str, tuple[Any, ...]]] = [(name, ()) for name in _ASKED]
    asked += [("find_erasure", (pseudonym,)) for pseudonym in simulated.erasures]
    asked += [(name, (number,)) for name in ("load_job", "job_erasures") for number in simulated.jobs]
    asked += [("is_named", (f"device-{i}",)) for i in range(3)]
    about_rounds = ("stored_rounds", "last_clean_model", "first_round_on")
    return asked + [(name, (number,)) for name in about_rounds for number in range(len(simulated.rounds) + 2)]


class _Quiet:
    """A session that nothing happens to."""

    def __init__(self, stored: Tables) -> None:
        self.store = simulation.store.SimulatedStore(lambda _before, _after: None)
        self.store.tables = stored

    async def before(self) -> None:
        pass

    async def after(self) -> None:
        pass


async def _rows(db: Database, table: Any, row: Callable[..., Any]) -> list[Any]:
    async with db.reading() as connection:
        return await fetch_all(connection, row, select(table).order_by(*table.primary_key))


async def _events(db: Database) -> list[dict[str, Any]]:
    told = [column for column in tables.events.columns if column.name != "id"]
    async with db.reading() as connection:
        found = await connection.execute(select(*told).order_by(tables.events.c.id))
        return [dict(values) for values in found.mappings()]
