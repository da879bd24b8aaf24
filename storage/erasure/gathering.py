"""What an unlearning job waits for before it begins: more requests, time since the last swap, an operator's order."""

from dataclasses import asdict, fields
from datetime import datetime

from sqlalchemy import ColumnElement, delete, exists, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from foltr.core.erasure.states import ErasureState
from foltr.core.protocol.states import JobState, RoundState
from foltr.storage.clients import is_not_forgotten
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
    """Count the erasures that wait for a job, and find since when, and when the last job's swap was."""
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
    """Note, once each, the unfinished erasures requested before that moment; return how many are new."""
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
    """Hold a job that would put the first model in service until the operator orders it, and note its cost.

    None if it costs nothing: no completed round has an update of a remaining client. It may be repeated.
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
            .where(updates.c.federation == name, rounds.c.state == RoundState.COMPLETED, is_not_forgotten())
            .where(~is_taken_back(name, rounds.c.model_version))
        )
        first, last, n_updates, n_clients = (await connection.execute(lost)).one()
        if not n_updates:
            return None
        held = HeldReset(job, at, first, last, n_updates, n_clients)
        await connection.execute(insert(unlearning_resets).values(asdict(held) | {"federation": name}))
        await store_events(connection, name, [NewEvent(at, "unlearning_approval_required", held.cost)])
        return held


async def find_reset(db: Database, name: str, job: int) -> HeldReset | None:
    """Find a job's wait for the operator's order, ended or not; None if it never waited."""
    async with db.reading() as connection:
        return await _find_reset(connection, name, job)


async def waiting_reset(db: Database, name: str) -> HeldReset | None:
    """Find the job that now waits for the operator's order."""
    return await db.fetch_one(HeldReset, select(*_RESET).where(*_waits(name)))


async def drop_reset(connection: AsyncConnection, name: str) -> None:
    """End every wait for the operator's order, within a transaction that takes models back.

    The restored model contains no waiting client, or it would not be restored, so no job must go back to the first
    model. The cost of a later job is found when it is about to begin.
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
    """SQL that finds the job that now waits for the operator's order."""
    begun = exists().where(unlearning_jobs.c.federation == name, unlearning_jobs.c.number >= unlearning_resets.c.job)
    return unlearning_resets.c.federation == name, unlearning_resets.c.ordered_at.is_(None), ~begun


async def _find_reset(connection: AsyncConnection, name: str, job: int) -> HeldReset | None:
    known = select(*_RESET).where(unlearning_resets.c.federation == name, unlearning_resets.c.job == job)
    return await fetch_one(connection, HeldReset, known)
