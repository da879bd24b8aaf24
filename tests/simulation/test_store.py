"""The simulated database against the real one: what a simulation stored, stored once more in SQLite."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import simulation.process
from simulation.database import NAME, QuietSession, Tables, quiet_database
from simulation.scenario import Operation, Scenario, draw
from simulation.seams import sign_stand_in
from simulation.store_unlearning import SimulatedFederationStore
from simulation.world import run
from sqlalchemy import select
from support.databases import open_migrated

import foltr.federator.eraser
from foltr.federator.store import FederationStore
from foltr.storage import erasure_tables, model_tables, tables
from foltr.storage.bodies import is_body_of
from foltr.storage.body_tables import update_bodies
from foltr.storage.clients import select_clients, select_named
from foltr.storage.database import Database, fetch_all
from foltr.storage.erasure.audit_log import stream_audit
from foltr.storage.erasure_records import ErasureRow, HeldReset, UnlearningJobRow
from foltr.storage.events import event_values
from foltr.storage.models import model_row
from foltr.storage.order_tables import orders
from foltr.storage.records import ClientRow, FederationRow, NewOrder, RoundRow, UpdateRow

# Seeds with two jobs, a job that failed, two who leave in one, and a key that the federator died after destroying.
_WITH_JOBS = [101, 121, 176, 196]

_QUESTIONS = (
    "latest_model",
    "newest_unlearned",
    "forgotten_pseudonyms",
    "deletions_to_purge",
    "unfinished_erasures",
    "waiting_erasures",
    "gathered",
    "load_trainings",
    "load_job",
    "list_jobs",
)


@dataclass
class Recording:
    """The transactions that were committed, in their order: which store's, its method, and what it was given."""

    calls: list[tuple[int, str, tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)
    n_stores: int = 0

    def store(self, session: Any) -> SimulatedFederationStore:
        """A store whose transactions are noted when they are committed, whether or not it hears of it."""
        number, store = self.n_stores, SimulatedFederationStore(session)
        self.n_stores += 1
        store.on_committed = lambda *call: self.calls.append((number, *call))
        return store


def _without_copies(scenario: Scenario) -> Scenario:
    """The real database is not put back in the middle of it."""
    kept = (step for step in scenario.steps if step.operation is not Operation.RESTORE_DATABASE)
    return replace(scenario, steps=tuple(kept))


def played(seed: int) -> tuple[Tables, Recording]:
    """What the run of a seed stored, and by which transactions."""
    recording = Recording()
    with mock.patch.object(simulation.process, "SimulatedFederationStore", recording.store):
        return run(_without_copies(draw(seed))).store.tables, recording


async def play_again(db: Database, recording: Recording) -> None:
    """The same transactions on a real database; receipts are signed once more, and come out the same."""
    stores = [FederationStore(db, NAME) for _ in range(recording.n_stores)]
    with mock.patch.object(foltr.federator.eraser, "sign_receipt", sign_stand_in):
        for number, name, args, options in recording.calls:
            await getattr(stores[number], name)(*args, **options)


@pytest.mark.parametrize("seed", [0, 2, 4, 11, *_WITH_JOBS])
async def test_the_simulated_database_is_like_the_real_one(seed: int, tmp_path: Path):
    """Every row and every answer, after the same transactions in the same order, some of them twice."""
    simulated, recording = played(seed)
    async with await open_migrated(f"sqlite:///{tmp_path / 'foltr.sqlite'}") as db:
        await play_again(db, recording)
        assert await _rows(db, tables.federations, FederationRow) == [simulated.federation]
        for table, row, stored in (
            (tables.clients, ClientRow, simulated.clients),
            (model_tables.models, model_row, simulated.models),
            (tables.rounds, RoundRow, simulated.rounds),
            (tables.updates, UpdateRow, simulated.updates),
            (orders, _stored_order, simulated.orders),
            (erasure_tables.erasures, ErasureRow, simulated.erasures),
            (erasure_tables.unlearning_jobs, UnlearningJobRow, simulated.jobs),
            (erasure_tables.unlearning_resets, HeldReset, simulated.resets),
        ):
            assert await _rows(db, table, row) == [stored[key] for key in sorted(stored)]
        assert await _events(db) == [event_values(NAME, event) for event in simulated.events]
        assert tuple([entry async for entry in stream_audit(db, NAME)]) == simulated.audit
        database = quiet_database()
        database.tables = simulated
        dicts, sql = SimulatedFederationStore(QuietSession(database)), FederationStore(db, NAME)
        for name, arguments in questions(simulated):
            assert await getattr(dicts, name)(*arguments) == await getattr(sql, name)(*arguments), name


def questions(simulated: Tables) -> list[tuple[str, tuple[Any, ...]]]:
    """What a federator asks about erasures and jobs when it starts, and when a job begins or goes on."""
    about = [(name, ()) for name in _QUESTIONS]
    about += [("find_erasure", (pseudonym,)) for pseudonym in simulated.erasures]
    about += [(name, (number,)) for name in ("load_job", "job_erasures") for number in simulated.jobs]
    about += [("job_entries", (number, limit)) for number in simulated.jobs for limit in (1, 32)]
    about += [("standing_orders", (after,)) for after in range(3)] + [("find_orders", ([1, 2, 99],))]
    about += [("is_named", (f"device-{i}",)) for i in range(3)]
    pages = [(first, limit) for first in range(len(simulated.rounds) + 2) for limit in (2, 99)]
    about += [("list_stored_rounds", page) for page in pages]
    about_rounds = ("last_clean_model", "first_round_on")
    return about + [(name, (number,)) for name in about_rounds for number in range(len(simulated.rounds) + 2)]


def _stored_order(federation: str, **row: Any) -> NewOrder:
    assert federation == NAME
    return NewOrder(**row)


async def _rows(db: Database, table: Any, row: Callable[..., Any]) -> list[Any]:
    async with db.reading() as connection:
        if table is tables.clients:
            return await fetch_all(connection, row, select_clients(NAME).order_by(table.c.client_id))
        if table is tables.updates:
            of_body = (update_bodies.c[name] for name in ("cipher", "key_fingerprint", "ticket", "body"))
            named = select_named(table, *of_body).outerjoin(update_bodies, is_body_of())
            return await fetch_all(connection, row, named.order_by(table.c.round, tables.clients.c.client_id))
        rows = select_named(table) if "client" in table.columns else select(table)
        return await fetch_all(connection, row, rows.order_by(*table.primary_key))


async def _events(db: Database) -> list[dict[str, Any]]:
    async with db.reading() as connection:
        stored = await fetch_all(connection, dict, select_named(tables.events).order_by(tables.events.c.id))
        return [{name: value for name, value in event.items() if name != "id"} for event in stored]
