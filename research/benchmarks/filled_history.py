"""A federation's past, written in bulk: rounds that contain all clients, like those that a federator leaves.

Rows go through the tables' metadata, matched by column names. An interrupted history is continued after its newest
round.
"""

import asyncio
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import numpy as np
from sqlalchemy import Table, func, make_url, select, text
from sqlalchemy.dialects import postgresql, sqlite

from foltr.core.erasure.pseudonyms import pseudonym
from foltr.core.protocol.states import Privacy, RoundState
from foltr.core.protocol.trainings import PdgdTraining
from foltr.federator.closing.stored_rules import training_text
from foltr.federator.store import FederationStore
from foltr.storage.body_parts import part_for
from foltr.storage.body_tables import ROW_BY_ROW, update_bodies
from foltr.storage.cipher import AES_256_GCM
from foltr.storage.clients import find_keys
from foltr.storage.database import Database
from foltr.storage.erasure_tables import stored_rounds
from foltr.storage.keys import KeyStore, fingerprint
from foltr.storage.model_tables import models
from foltr.storage.records import Batch, MembershipChange
from foltr.storage.tables import events, rounds, updates

NAME = "web"
PSEUDONYM_KEY = bytes(range(32))
BEGAN = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)
_ROUND = timedelta(seconds=30)
_PER_UPDATE = 5  # interactions
_SEAL_BYTES = 28
_JOINED_AT_ONCE = 1000
_ROWS_AT_ONCE = 20_000
PART_ROUNDS, INTERVAL = 100, 10
"""Settings of a federator that keeps a thousand rounds whole, and every tenth of older ones."""
# One update in this many was refused.
_REFUSED = 100

Rows = Sequence[Mapping[str, Any]]
Insert = Callable[[Table, Rows], None]


@dataclass(frozen=True)
class Past:
    """The size of a history: every client has an update in every round, sealed if the database has keys.

    Attributes:
        n_updates: of all rounds together; rounded to whole rounds.
        dim: weights of a model.
    """

    n_updates: int
    n_clients: int
    dim: int

    @property
    def n_rounds(self) -> int:
        return max(2, self.n_updates // self.n_clients)

    @property
    def names(self) -> list[str]:
        return [f"device-{i:06d}" for i in range(self.n_clients)]


async def fill(db: Database, keys: KeyStore, past: Past) -> float:
    """Store the missing rounds. Return the seconds that took."""
    began = time.perf_counter()
    store = FederationStore(db, NAME)
    await _join(store, keys, past)
    members = [client.client_id for client in await store.load_clients()]
    async with db.reading() as connection:
        known = await find_keys(connection, NAME, members)
        newest = await connection.scalar(select(func.max(rounds.c.number)).where(rounds.c.federation == NAME)) or 0
    whose = [(known[name], fingerprint(keys.key(NAME, name))) for name in members]
    step = max(1, _ROWS_AT_ONCE // past.n_clients)
    for first in range(newest + 1, past.n_rounds + 1, PART_ROUNDS):
        end = min(first + PART_ROUNDS, past.n_rounds + 1)
        # As a federator does before it opens the first of them.
        await store.prepare_part(first - 1, PART_ROUNDS, INTERVAL)
        async with db.reading() as connection:
            part = await connection.scalar(select(part_for(NAME, first + (first % INTERVAL == 1))))
        batches = [(some, min(some + step, end)) for some in range(first, end, step)]
        write = _write_sqlite if db.dialect == "sqlite" else _write_postgresql
        await write(db, _Block(past, whose, part or ROW_BY_ROW), batches)
    await _settle(db)
    return time.perf_counter() - began


async def _join(store: FederationStore, keys: KeyStore, past: Past) -> None:
    await store.create_federation(
        past.dim, "linear", bytes(4 * past.dim), BEGAN, selection_seed=bytes(32), aggregation_seed=bytes(32),
        pseudonym_key=PSEUDONYM_KEY, method="fpdgd", hidden=None, privacy=Privacy.TRUSTED,
    )  # fmt: skip
    await store.claim_federation(time.time())
    await store.note_training(1, training_text(PdgdTraining()))
    joined = {client.client_id for client in await store.load_clients()}
    forgotten = await store.forgotten_pseudonyms()
    new = [name for name in past.names if name not in joined and pseudonym(PSEUDONYM_KEY, name) not in forgotten]
    for start in range(0, len(new), _JOINED_AT_ONCE):
        some = new[start : start + _JOINED_AT_ONCE]
        await asyncio.to_thread(keys.ensure, NAME, some)
        await store.commit_batch(Batch(membership=[MembershipChange(name, "joined", BEGAN) for name in some]))


@dataclass(frozen=True)
class _Block:
    """Rounds whose bodies are deleted together, except those that unlearning keeps.

    Attributes:
        whose: the key and the data key's fingerprint of each client.
    """

    past: Past
    whose: Sequence[tuple[int, bytes]]
    part: int

    def part_of(self, number: int) -> int:
        return ROW_BY_ROW if (number - 1) % INTERVAL == 0 else self.part


def _rows_of(block: _Block, first: int, end: int) -> Iterator[tuple[Table, Rows]]:
    numbers, past = range(first, end), block.past
    yield models, [_model(past, number) for number in numbers]
    yield rounds, [_round(past, number) | {"part": block.part_of(number)} for number in numbers]
    sent = [row for number in numbers for row in _updates(past, number, block.whose, block.part_of(number))]
    yield updates, sent
    yield update_bodies, sent
    yield stored_rounds, [{"federation": NAME, "round": number} for number in numbers]
    yield events, [
        {"federation": NAME, "at": row["received_at"], "kind": "update_rejected", "code": "late", "detail": "",
         "client": row["client"], "round": row["round"], "n": 1, "minute": int(row["received_at"].timestamp()) // 60}
        for row in sent[::_REFUSED]
    ]  # fmt: skip


def _model(past: Past, number: int) -> dict[str, Any]:
    at = BEGAN + number * _ROUND
    weights = np.random.default_rng(number).normal(size=past.dim).astype("<f4")
    return {
        "federation": NAME, "version": number, "base_version": number - 1, "round": number, "n_values": past.dim,
        "weights": weights.tobytes(), "weights_hash": os.urandom(16), "created_at": at, "published_at": at,
    }  # fmt: skip


def _round(past: Past, number: int) -> dict[str, Any]:
    at = BEGAN + number * _ROUND
    return {
        "federation": NAME, "number": number, "state": RoundState.COMPLETED, "base_version": number - 1,
        "model_version": number, "min_clients": 1, "max_clients": past.n_clients, "min_time_s": 0.0, "max_time_s": 60.0,
        "opened_at": at - _ROUND, "closes_at": at + _ROUND, "closed_at": at, "n_updates": past.n_clients,
        "n_interactions": _PER_UPDATE * past.n_clients,
    }  # fmt: skip


def _updates(past: Past, number: int, whose: Sequence[tuple[int, bytes]], part: int) -> Iterator[dict[str, Any]]:
    """Make a round's updates, each with a body of random bytes, which look like sealed ones."""
    n_bytes = 4 * past.dim
    stored = n_bytes + _SEAL_BYTES
    drawn, names = os.urandom(stored * len(whose)), os.urandom(16 * len(whose)).hex()
    after, at = _PER_UPDATE * (number - 1), BEGAN + number * _ROUND
    for i, (client, sealed_with) in enumerate(whose):
        yield {
            "federation": NAME, "round": number, "client": client, "update_id": names[32 * i : 32 * i + 32],
            "base_version": number - 1, "n_interactions": _PER_UPDATE, "encoding": "dense_f32", "n_bytes": n_bytes,
            "received_at": at, "covers_after": after, "covers_through": after + _PER_UPDATE,
            "body": drawn[stored * i : stored * i + stored], "cipher": AES_256_GCM, "key_fingerprint": sealed_with,
            "part": part,
        }  # fmt: skip


# --- into the databases -----------------------------------------------------------------------------------------


def _columns_of(table: Table, rows: Rows) -> list[str]:
    return [column.name for column in table.columns if column.name in rows[0]]


def _values_of(table: Table, rows: Rows, dialect: Any) -> Iterator[tuple[Any, ...]]:
    columns = _columns_of(table, rows)
    bind = [table.c[column].type.bind_processor(dialect) for column in columns]
    pairs = list(zip(columns, bind, strict=True))
    for row in rows:
        yield tuple(row[column] if convert is None else convert(row[column]) for column, convert in pairs)


# Uses the index of what updates cover.
_MARKS = f"""
    UPDATE clients
    SET counted_through = (SELECT max(covers_after) FROM updates WHERE client = clients.id) + {_PER_UPDATE}
    WHERE joined_at IS NOT NULL
"""  # noqa: S608 (our own number)


async def _settle(db: Database) -> None:
    """Set the clients' watermarks to the end of their updates, and update the database's statistics."""
    async with db.transaction() as connection:
        await connection.execute(text(_MARKS))
        await connection.execute(text("ANALYZE" if db.dialect == "postgresql" else "PRAGMA optimize"))


async def _write_sqlite(db: Database, block: _Block, batches: Sequence[tuple[int, int]]) -> None:
    dialect = sqlite.dialect()
    path = db.engine.url.database or ""

    def write() -> None:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            # A model and its round refer to each other, and all rows here are what a federator writes.
            for pragma in ("foreign_keys=OFF", "synchronous=OFF", "cache_size=-1000000", "wal_autocheckpoint=20000"):
                connection.execute(f"PRAGMA {pragma}")
            for first, end in batches:
                connection.execute("BEGIN IMMEDIATE")
                for table, rows in _rows_of(block, first, end):
                    columns = _columns_of(table, rows)
                    marks = ", ".join("?" * len(columns))
                    into = f"INSERT INTO {table.name} ({', '.join(columns)}) VALUES ({marks})"  # noqa: S608 (our own names)
                    connection.executemany(into, _values_of(table, rows, dialect))
                connection.execute("COMMIT")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    await asyncio.to_thread(write)


async def _write_postgresql(db: Database, block: _Block, batches: Sequence[tuple[int, int]]) -> None:
    dialect = postgresql.asyncpg.dialect()
    connection = await asyncpg.connect(make_url(db.engine.url).set(drivername="postgresql").render_as_string(False))
    try:
        # Foreign keys are triggers; rows as a federator writes them need no check.
        await connection.execute("SET session_replication_role = replica; SET synchronous_commit = off")
        for first, end in batches:
            async with connection.transaction():
                for table, rows in _rows_of(block, first, end):
                    records = list(_values_of(table, rows, dialect))
                    await connection.copy_records_to_table(
                        table.name, records=records, columns=_columns_of(table, rows)
                    )
    finally:
        await connection.close()


# --- how large it is --------------------------------------------------------------------------------------------

_SIZES = {
    "sqlite": "SELECT name, sum(pgsize) FROM dbstat GROUP BY name ORDER BY 2 DESC",
    # A partition counts as its table.
    "postgresql": """
        SELECT regexp_replace(relname, '_[0-9]+(?=_|$)', ''), sum(pg_relation_size(oid)) FROM pg_class
        WHERE relkind IN ('r', 'i', 't') AND relnamespace = 'public'::regnamespace GROUP BY 1 ORDER BY 2 DESC
    """,
}


async def sizes(db: Database, least: int = 1_000_000) -> dict[str, int]:
    """Return the bytes of each table and index of at least ``least``, the largest first."""
    async with db.engine.connect() as connection:
        if db.dialect == "postgresql":
            await connection.execute(text("SET statement_timeout = 0"))
        answer = await connection.execute(text(_SIZES[db.dialect]))
        return {str(name): int(n_bytes) for name, n_bytes in answer if n_bytes >= least}
