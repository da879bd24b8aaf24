"""What an unlearning job waits for before it begins: more requests, time since the last swap, an operator's order."""

from dataclasses import asdict, fields
from datetime import datetime

from sqlalchemy import ColumnElement, delete, exists, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from foltr.core.erasure.states import ErasureState
from foltr.core.protocol.states import JobState, RoundState
from foltr.storage.clients import is_left
from foltr.storage.database import Database, fetch_one
from foltr.storage.erasure_records import Gathered, HeldReset
from foltr.storage.erasure_tables import erasures, unlearning_jobs, unlearning_resets
from foltr.storage.events import store_events
from foltr.storage.federations import fenced_transaction
from foltr.storage.models import is_taken_back
from foltr.storage.records import NewEvent, ResetAllowed
from foltr.storage.tables import clients, rounds, updates

_RESET = [unlearning_resets.c[field.name] for field in fields(HeldReset)]


async def gathered(db: Database, name: str) -> Gathered:
    """Count those who wait for an unlearning job, and find since when, and when the last one's model was swapped in."""
    waiting = select(func.count(), func.min(erasures.c.requested_at)).where(
        erasures.c.federation == name, erasures.c.state == ErasureState.WAITING
    )
    swapped = select(func.max(unlearning_jobs.c.closed_at)).where(
        unlearning_jobs.c.federation == name, unlearning_jobs.c.state == JobState.DONE
    )
    async with db.reading() as connection:
        n_waiting, oldest_at = (await connection.execute(waiting)).one()
        return Gathered(n_waiting, oldest_at, await connection.scalar(swapped))


async def note_overdue(db: Database, name: str, epoch: int, requested_before: datetime, at: datetime) -> int:
    """Note, once for each, the erasures that were asked for so long ago and are not done; how many there are new."""
    late = (
        (erasures.c.federation == name)
        & (erasures.c.state != ErasureState.DONE)
        & (erasures.c.requested_at < requested_before)
        & erasures.c.overdue_at.is_(None)
    )
    async with db.reading() as connection:
        if not await connection.scalar(select(exists().where(late))):
            return 0
    async with fenced_transaction(db, name, epoch) as connection:
        noted = await connection.execute(update(erasures).where(late).values(overdue_at=at))
        if noted.rowcount:
            detail = (
                f"{noted.rowcount} erasures that were asked for before {requested_before:%Y-%m-%d %H:%M} are not done"
            )
            await store_events(connection, name, [NewEvent(at, "erasure_overdue", detail)])
        return noted.rowcount


async def hold_reset(db: Database, name: str, epoch: int, job: int, at: datetime) -> HeldReset | None:
    """Have a job wait for the operator's order, as it would put the first model in service, and note what that costs.

    None if it costs nothing: no update of a client that stays is in a completed round. Done again, it returns what
    is there.
    """
    async with fenced_transaction(db, name, epoch) as connection:
        known = await _find_reset(connection, name, job)
        if known is not None:
            return known
        lost = (
            select(
                func.min(updates.c.round),
                func.max(updates.c.round),
                func.count(),
                func.count(updates.c.client.distinct()),
            )
            .join_from(
                updates, rounds, (updates.c.federation == rounds.c.federation) & (updates.c.round == rounds.c.number)
            )
            .join(clients, clients.c.id == updates.c.client)
            .where(updates.c.federation == name, rounds.c.state == RoundState.COMPLETED, is_left())
            .where(~is_taken_back(name, rounds.c.model_version))
        )
        first, last, n_updates, n_clients = (await connection.execute(lost)).one()
        if not n_updates:
            return None
        held = HeldReset(job, at, first, last, n_updates, n_clients)
        await connection.execute(insert(unlearning_resets).values(asdict(held) | {"federation": name}))
        await store_events(connection, name, [NewEvent(at, "unlearning_held", held.cost)])
        return held


async def find_reset(db: Database, name: str, job: int) -> HeldReset | None:
    """Find what is known of a job that waits, or waited, for the operator's order; None if it never did."""
    async with db.reading() as connection:
        return await _find_reset(connection, name, job)


async def waiting_reset(db: Database, name: str) -> HeldReset | None:
    """Find the job that waits for the operator's order now."""
    return await db.fetch_one(HeldReset, select(*_RESET).where(*_waits(name)))


async def drop_reset(connection: AsyncConnection, name: str) -> None:
    """Have no job wait for the operator's order any more, within a transaction that takes models back.

    The model that is restored is free of all who wait, or nothing would be restored: no job has to go back to the
    first one. What a later job costs is found out when it is about to begin.
    """
    await connection.execute(delete(unlearning_resets).where(*_waits(name)))


async def allow_reset(connection: AsyncConnection, name: str, allowed: ResetAllowed) -> None:
    """Store within a transaction that the operator has ordered a reset."""
    await connection.execute(
        update(unlearning_resets)
        .where(unlearning_resets.c.federation == name, unlearning_resets.c.job == allowed.job)
        .values(ordered_at=allowed.at)
    )


def _waits(name: str) -> tuple[ColumnElement[bool], ...]:
    """SQL that finds the job that waits for the operator's order now."""
    begun = exists().where(unlearning_jobs.c.federation == name, unlearning_jobs.c.number >= unlearning_resets.c.job)
    return unlearning_resets.c.federation == name, unlearning_resets.c.ordered_at.is_(None), ~begun


async def _find_reset(connection: AsyncConnection, name: str, job: int) -> HeldReset | None:
    known = select(*_RESET).where(unlearning_resets.c.federation == name, unlearning_resets.c.job == job)
    return await fetch_one(connection, HeldReset, known)
