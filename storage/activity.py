"""The present state of a federation for the people who run it. No query gets slower as history grows.

Rounds, updates and events are never deleted, so each query reads only a fixed number of the newest, by their keys;
other queries are bounded by the number of clients, erasures or jobs.
"""

from datetime import datetime
from typing import Any

from sqlalchemy import and_, case, func, select

from foltr.core.erasure.states import UNTIL_ERASED, ErasureState
from foltr.core.protocol.events import EventKind
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.states import OPEN_JOB, Membership
from foltr.storage.activity_records import (
    ErasureCounts,
    JobProgress,
    MemberCounts,
    NewestModel,
    RecentRefusals,
    RecentRound,
)
from foltr.storage.database import Database
from foltr.storage.erasure_tables import erasures, unlearning_jobs
from foltr.storage.model_tables import models
from foltr.storage.tables import clients, events, rounds

_REFUSALS = (EventKind.UPDATE_REJECTED, EventKind.MESSAGE_REFUSED, EventKind.INTAKE_FULL)


async def recent_rounds(db: Database, name: str, limit: int) -> list[RecentRound]:
    """List the newest rounds, the newest first."""
    newest_first = (
        select(
            rounds.c.number,
            rounds.c.state,
            rounds.c.reason,
            rounds.c.opened_at,
            rounds.c.closed_at,
            rounds.c.n_updates,
            rounds.c.policy_hash,
        )
        .where(rounds.c.federation == name)
        .order_by(rounds.c.number.desc())
        .limit(limit)
    )
    return await db.fetch_all(RecentRound, newest_first)


async def count_members(db: Database, name: str) -> MemberCounts:
    """Count the clients by status."""
    joined = clients.c.membership == Membership.JOINED
    revoked = clients.c.revoked_at.is_not(None)
    quarantined = clients.c.quarantined_at.is_not(None)
    counted = {
        "n_members": joined,
        "n_online": and_(joined, clients.c.online.is_(True)),
        "n_quarantined": and_(joined, quarantined),
        "n_left": and_(clients.c.membership == Membership.LEFT, ~revoked),
        "n_revoked": and_(clients.c.joined_at.is_not(None), revoked),
    }
    statement = select(*(func.count(case((which, 1))).label(field) for field, which in counted.items()))
    async with db.reading() as connection:
        row = (await connection.execute(statement.where(clients.c.federation == name))).mappings().one()
        return MemberCounts(**{field: int(row[field]) for field in counted})


async def recent_refusals(db: Database, name: str, since: datetime, most: int) -> RecentRefusals:
    """Count the refusals since a moment by reason code, among the newest ``most`` events of the database.

    Receiving a stored update again is not a refusal. An event without a code counts under its kind.
    """
    # By the key of all federations' events, to read few rows even if another federation wrote most of them.
    newest = (
        select(events.c.federation, events.c.at, events.c.kind, events.c.code, events.c.n)
        .order_by(events.c.id.desc())
        .limit(most)
        .subquery()
    )
    reason = func.coalesce(newest.c.code, newest.c.kind)
    counted = (
        select(reason, func.sum(newest.c.n))
        .where(newest.c.federation == name, newest.c.at >= since, newest.c.kind.in_(_REFUSALS))
        .where(reason != ReceiptCode.DUPLICATE)
        .group_by(reason)
        .order_by(reason)
    )
    reach = select(func.count(), func.min(newest.c.at))
    async with db.reading() as connection:
        n_read, oldest = (await connection.execute(reach)).one()
        by_reason = {str(code): int(n) for code, n in await connection.execute(counted)}
    return RecentRefusals(max(since, oldest) if n_read == most else since, by_reason)


async def newest_model(db: Database, name: str) -> NewestModel | None:
    """Find the newest model, without its weights; None if the federation does not exist."""
    columns = (getattr(models.c, field) for field in NewestModel.__slots__)
    newest_first = select(*columns).where(models.c.federation == name).order_by(models.c.version.desc()).limit(1)
    return await db.fetch_one(NewestModel, newest_first)


async def newest_job(db: Database, name: str) -> JobProgress | None:
    """Find the open unlearning job, else the newest one, without its model; None if there never was one."""
    columns: Any = [getattr(unlearning_jobs.c, field) for field in JobProgress.__slots__]
    is_open = unlearning_jobs.c.state.in_(OPEN_JOB)
    statement = (
        select(*columns)
        .where(unlearning_jobs.c.federation == name)
        .order_by(case((is_open, 0), else_=1), unlearning_jobs.c.number.desc())
        .limit(1)
    )
    return await db.fetch_one(JobProgress, statement)


async def count_erasures(db: Database, name: str) -> ErasureCounts:
    """Count the erasures by progress."""
    by_state = select(erasures.c.state, func.count()).where(erasures.c.federation == name).group_by(erasures.c.state)
    unfinished = (
        select(func.count(erasures.c.overdue_at), func.min(erasures.c.requested_at))
        .where(erasures.c.federation == name)
        .where(erasures.c.state.in_([state for state in ErasureState if state is not ErasureState.DONE]))
    )
    async with db.reading() as connection:
        counts = {state: int(n) for state, n in await connection.execute(by_state)}
        n_overdue, oldest_at = (await connection.execute(unfinished)).one()
    return ErasureCounts(
        n_erasing=sum(counts.get(state, 0) for state in UNTIL_ERASED),
        n_waiting=counts.get(ErasureState.WAITING, 0),
        n_unlearning=counts.get(ErasureState.UNLEARNING, 0),
        n_done=counts.get(ErasureState.DONE, 0),
        n_overdue=int(n_overdue),
        oldest_at=oldest_at,
    )
