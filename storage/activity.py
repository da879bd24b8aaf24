"""The present state of a federation for the people who run it. No query gets slower as history grows.

Rounds, updates and events are never deleted, so each query reads only a fixed number of the newest, by their keys;
other queries are bounded by the number of clients, erasures or jobs.
"""

from collections import Counter
from collections.abc import Collection
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, Subquery, and_, case, exists, func, literal, select

from foltr.core.erasure.states import UNTIL_ERASED, ErasureState
from foltr.core.protocol.events import EventKind
from foltr.core.protocol.orders import ForgetClient, ForgetTombstone
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.states import OPEN_JOB, Membership
from foltr.storage.activity_records import (
    ErasureCounts,
    JobProgress,
    LatelyHappened,
    MemberCounts,
    NewestModel,
    RecentRefusals,
    RecentRound,
    RefusedSender,
    RevokedClient,
)
from foltr.storage.database import Database
from foltr.storage.erasure_tables import erasures, unlearning_jobs
from foltr.storage.model_tables import models
from foltr.storage.order_tables import orders
from foltr.storage.tables import clients, events, rounds

_FORGETTING = (ForgetClient.kind_name, ForgetTombstone.kind_name)
REFUSALS = (EventKind.UPDATE_REJECTED, EventKind.MESSAGE_REFUSED, EventKind.INTAKE_FULL)
"""The events of refused messages; receiving a stored update again is none, though it has such an event."""


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
    newest = _newest_events(most)
    reason = func.coalesce(newest.c.code, newest.c.kind)
    counted = (
        select(reason, func.sum(newest.c.n))
        .where(newest.c.federation == name, newest.c.at >= since, newest.c.kind.in_(REFUSALS))
        .where(reason != ReceiptCode.DUPLICATE)
        .group_by(reason)
        .order_by(reason)
    )
    reach = select(func.count(), func.min(newest.c.at))
    async with db.reading() as connection:
        n_read, oldest = (await connection.execute(reach)).one()
        by_reason = {str(code): int(n) for code, n in await connection.execute(counted)}
    return RecentRefusals(max(since, oldest) if n_read == most else since, by_reason)


async def refused_senders(db: Database, name: str, since: datetime, most: int) -> list[RefusedSender]:
    """Count the refusals of each named sender since a moment, the most first, among the newest ``most`` events."""
    by_sender = await refusals_by_sender(db, name, since, most)
    totals = Counter({client_id: sum(reasons.values()) for client_id, reasons in by_sender.items()})
    return [RefusedSender(client_id, n, next(iter(by_sender[client_id]))) for client_id, n in totals.most_common()]


async def refusals_by_sender(db: Database, name: str, since: datetime, most: int) -> dict[str, dict[str, int]]:
    """Count the refusals of each named sender since a moment by reason code, among the newest ``most`` events.

    The reason that a sender was refused for most often comes first.
    """
    newest = _newest_events(most)
    n = func.sum(newest.c.n)
    counted = (
        select(clients.c.client_id, newest.c.code, n.label("n"))
        .join(clients, clients.c.id == newest.c.client)
        .where(newest.c.federation == name, newest.c.at >= since, newest.c.kind.in_(REFUSALS))
        .where(newest.c.code != ReceiptCode.DUPLICATE)
        .group_by(clients.c.client_id, newest.c.code)
        .order_by(n.desc(), clients.c.client_id)
    )
    found: dict[str, dict[str, int]] = {}
    async with db.reading() as connection:
        for row in await connection.execute(counted):
            found.setdefault(row.client_id, {})[str(row.code)] = int(row.n)
    return found


async def happened_lately(
    db: Database, name: str, kinds: Collection[EventKind], since: datetime, most: int
) -> dict[EventKind, LatelyHappened]:
    """Count the events of these kinds since a moment, among the newest ``most`` events; find the newest of each."""
    newest = _newest_events(most)
    rows = (
        select(newest.c.kind, newest.c.at, newest.c.detail)
        .where(newest.c.federation == name, newest.c.at >= since, newest.c.kind.in_(kinds))
        .order_by(newest.c.id)
    )
    found: dict[EventKind, LatelyHappened] = {}
    async with db.reading() as connection:
        for row in await connection.execute(rows):
            kind = EventKind(row.kind)
            n = found[kind].n if kind in found else 0
            found[kind] = LatelyHappened(n + 1, row.at, row.detail)
    return found


async def unanswered_log_difference(db: Database, name: str) -> LatelyHappened | None:
    """Find the newest report that the audit log lacks published entries; None once the operator has ordered an erasure.

    The order answers it even if nobody of this name is left to forget.
    """
    newest = await db.fetch_one(LatelyHappened, _reported(name, EventKind.AUDIT_LOG_DIFFERS))
    if newest is None:
        return None
    answers = orders.c.federation == name, orders.c.kind.in_(_FORGETTING), orders.c.at >= newest.at
    async with db.reading() as connection:
        is_answered = await connection.scalar(select(exists().where(*answers)))
    return None if is_answered else newest


async def older_database(db: Database, name: str) -> LatelyHappened | None:
    """Find the report of the latest round that was announced and is not in the database; None once rounds passed it.

    It says how far rounds are now, not when it was reported.
    """
    newest_round = select(func.max(rounds.c.number)).where(rounds.c.federation == name)
    reported = select(events.c.round, events.c.at).where(*_of_kind(name, EventKind.DATABASE_OLDER))
    # As expressions, as in `_reported`.
    latest = reported.order_by((events.c.round + 0).desc(), events.c.id + 0).limit(1)
    async with db.reading() as connection:
        newest = await connection.scalar(newest_round) or 0
        row = (await connection.execute(latest)).one_or_none()
    if row is None or row.round < newest:
        return None
    detail = f"round {row.round} was announced, and the newest round of the database is {newest}"
    return LatelyHappened(1, row.at, detail)


async def revoked_since(db: Database, name: str, since: datetime, limit: int) -> list[RevokedClient]:
    """List the clients revoked since a moment, the newest first."""
    newest_first = (
        select(clients.c.client_id, clients.c.revoked_at)
        .where(clients.c.federation == name, clients.c.revoked_at >= since, clients.c.joined_at.is_not(None))
        .order_by(clients.c.revoked_at.desc())
        .limit(limit)
    )
    return await db.fetch_all(RevokedClient, newest_first)


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


def _reported(name: str, kind: EventKind) -> Select[tuple[int, datetime, str]]:
    """The newest event of a kind that names no client, however old (`foltr.storage.queries.started_at`)."""
    found = select(literal(1).label("n"), events.c.at, events.c.detail).where(*_of_kind(name, kind))
    # As an expression: otherwise all events may be read by their key, in search of the few of the kind.
    return found.order_by((events.c.id + 0).desc()).limit(1)


def _of_kind(name: str, kind: EventKind) -> tuple[ColumnElement[bool], ...]:
    return events.c.federation == name, events.c.client.is_(None), events.c.kind == kind


def _newest_events(most: int) -> Subquery:
    """The newest events by the key of all federations' events: few rows, even if another federation wrote most."""
    return select(events).order_by(events.c.id.desc()).limit(most).subquery()
