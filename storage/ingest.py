"""How a leader shares a federation with ingest workers: it lets them take updates, and takes that back to decide.

``ingestion.takes_updates`` says who stores updates. Every transaction that stores one, or changes that, holds the
federation's row. So workers and leader never decide at the same time, and after taking updates back the leader's
reading stays valid until it lets workers take them again.
"""

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import JSON, BigInteger, Select, Text, cast, delete, func, literal, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from foltr.core.failpoints import Failpoint, failpoint
from foltr.core.protocol.states import TakesUpdates
from foltr.storage.database import Database, insert_into
from foltr.storage.database_clock import DatabaseNow
from foltr.storage.errors import WriterFencedError
from foltr.storage.federations import fenced_transaction
from foltr.storage.ingest_records import CollectedUpdate, WorkerHeartbeat, WorkerResults, WorkersRow
from foltr.storage.ingest_tables import ingest_batches, ingest_workers, ingestion
from foltr.storage.tables import IS_OPEN, clients, federations, rounds, updates

WORKER_GONE_S: Final = 5.0
"""How long without writing until a worker is not waited for, seconds."""


async def hand_over(db: Database, name: str, epoch: int, n_answers: int, n_collected: int, *, evaluation: bool) -> None:
    """Let workers take updates; repeating it changes nothing.

    Args:
        n_answers: how many are numbered so far.
        n_collected: how many updates the open round has.
        evaluation: whether devices should report their users' rewards.

    Raises:
        WriterFencedError: another federator has taken over.
    """
    async with fenced_transaction(db, name, epoch) as connection:
        # If workers take them already, the answer to this was lost, and they have gone on counting.
        handed = await connection.execute(
            update(ingestion)
            .where(ingestion.c.federation == name, ingestion.c.takes_updates == TakesUpdates.LEADER)
            .values(
                takes_updates=TakesUpdates.WORKERS,
                n_answers=n_answers,
                n_collected=n_collected,
                evaluation=evaluation,
            )
        )
        if handed.rowcount:
            # Here, not after reading them: that answer may have been lost, and the leader reads them again.
            await connection.execute(delete(ingest_batches).where(ingest_batches.c.federation == name))
        gone = ingest_workers.c.seen_at < DatabaseNow(-12 * WORKER_GONE_S)
        await connection.execute(delete(ingest_workers).where(ingest_workers.c.federation == name, gone))
    failpoint(Failpoint.HANDED_OVER)


async def take_back(db: Database, name: str, epoch: int) -> WorkerResults:
    """Stop workers from taking updates; return what they have left. Repeating it returns the same.

    Raises:
        WriterFencedError: another federator has taken over.
    """
    async with fenced_transaction(db, name, epoch) as connection:
        left = await connection.execute(
            update(ingestion)
            .where(ingestion.c.federation == name)
            .values(takes_updates=TakesUpdates.LEADER)
            .returning(ingestion.c.n_answers, ingestion.c.n_collected)
        )
        batches = select(ingest_batches.c.clients).where(ingest_batches.c.federation == name)
        new = [key for batch in await connection.scalars(batches) for key in json.loads(batch)]
        n_answers, n_collected = left.one()
    failpoint(Failpoint.TAKEN_BACK)
    return WorkerResults(n_answers, n_collected, new)


async def look_at_workers(db: Database, name: str, epoch: int = 0) -> WorkersRow | None:
    """Read the state of workers; None if no federator was ever started to share with them.

    Args:
        epoch: of the asking leader; 0 for anybody else.

    Raises:
        WriterFencedError: another federator has taken over.
    """
    live = (ingest_workers.c.federation == name) & (ingest_workers.c.seen_at >= DatabaseNow(-WORKER_GONE_S))
    n_live = select(func.count()).select_from(ingest_workers).where(live).scalar_subquery()
    slowest = select(func.min(ingest_workers.c.arrived_before)).where(live).scalar_subquery()
    statement = select(
        federations.c.writer_epoch,
        ingestion.c.takes_updates,
        ingestion.c.n_collected,
        n_live.label("n_workers"),
        slowest.label("arrived_before"),
        DatabaseNow().label("now"),
    ).join_from(federations, ingestion, ingestion.c.federation == federations.c.name)
    async with db.reading() as connection:
        row = (await connection.execute(statement.where(federations.c.name == name))).one_or_none()
    if row is None:
        return None
    if epoch and row.writer_epoch != epoch:
        raise WriterFencedError(
            f"federation {name!r} is at writer epoch {row.writer_epoch}, this federator holds {epoch}: "
            "another federator has taken over. Stop this one"
        )
    return WorkersRow(row.takes_updates, row.n_collected, row.n_workers, row.arrived_before, row.now)


async def list_collected(db: Database, name: str, number: int, of: Sequence[int]) -> list[CollectedUpdate]:
    """List the updates of these clients, by key, that count in an open round; with their watermarks."""
    columns = updates.c.update_id, updates.c.covers_after, updates.c.covers_through, updates.c.cohort
    async with db.reading() as connection:
        statement = (
            select(clients.c.client_id, *columns, updates.c.position)
            .join_from(updates, clients, clients.c.id == updates.c.client)
            .where(updates.c.federation == name, updates.c.round == number, updates.c.covers_after.is_not(None))
            .where(updates.c.client.in_(_keys(connection, of)))
        )
        return [CollectedUpdate(*row) for row in await connection.execute(statement)]


def _keys(connection: AsyncConnection, keys: Sequence[int]) -> Select[Any]:
    """Make a table of keys from one parameter: the statement is the same for any number."""
    listed = literal(json.dumps(keys), Text())
    if connection.dialect.name == "sqlite":
        return select(func.json_each(listed).table_valued("value").c.value)
    elements = func.json_array_elements_text(cast(listed, JSON)).column_valued("value")
    return select(cast(elements, BigInteger))


async def note_worker(db: Database, name: str, worker_id: str, arrived_before: datetime) -> WorkerHeartbeat:
    """Note that a worker is alive, and its progress.

    Works without the federation's row, which may be locked for long. A worker has no claim that a restore would end,
    and continues in the restored file.
    """
    await db.follow_file()
    async with db.transaction() as connection:
        await store_worker(connection, name, worker_id, arrived_before)
        columns = rounds.c.opened_at, rounds.c.min_time_s, rounds.c.closes_at
        opened = await connection.execute(select(*columns).where(rounds.c.federation == name, IS_OPEN))
        ends = [may_end_at(*row) for row in opened]
        now = (await connection.execute(select(DatabaseNow()))).scalar_one()
    return WorkerHeartbeat(ends[0] if ends else (), now)


def may_end_at(opened_at: datetime, min_time_s: float, closes_at: datetime) -> tuple[datetime, datetime]:
    """When an open round may end: the earliest moment with a quorum, and its deadline."""
    return min(opened_at + timedelta(seconds=min_time_s), closes_at), closes_at


async def store_worker(connection: AsyncConnection, name: str, worker_id: str, arrived_before: datetime) -> None:
    """Note a worker within a transaction; see `note_worker`."""
    seen = {"seen_at": DatabaseNow(), "arrived_before": arrived_before}
    insert = insert_into(connection, ingest_workers).values(federation=name, worker_id=worker_id, **seen)
    await connection.execute(insert.on_conflict_do_update(index_elements=["federation", "worker_id"], set_=seen))


async def forget_worker(db: Database, name: str, worker_id: str) -> None:
    """Note that a worker has ended properly: nobody waits for it."""
    which = ingest_workers.c.federation == name, ingest_workers.c.worker_id == worker_id
    async with db.transaction() as connection:
        await connection.execute(delete(ingest_workers).where(*which))
