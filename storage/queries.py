"""History for people: what the command line and the HTTP API show. Read-only."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Select, case, func, insert, select, text

from foltr.core.aggregation.fates import Fate
from foltr.core.protocol.events import EventKind
from foltr.core.protocol.states import Membership
from foltr.storage.aggregation_tables import round_aggregations, update_fates
from foltr.storage.body_tables import update_bodies
from foltr.storage.clients import key_of, select_clients, select_listed, select_named
from foltr.storage.database import Database, fetch_all
from foltr.storage.history_records import ClientHistoryRow, ProposalRow, RoundAggregationRow, RoundHistoryRow
from foltr.storage.keys import KeyStore
from foltr.storage.records import (
    ClientRow,
    EventRow,
)
from foltr.storage.tables import (
    clients,
    events,
    federations,
    rounds,
    updates,
)
from foltr.storage.views import client_history, round_history

# An operator decides on proposals by one of these.
_DECISIONS = (EventKind.CLIENT_QUARANTINED, EventKind.QUARANTINE_LIFTED, EventKind.PROPOSAL_DISMISSED)
_NEWEST_EVENTS = 1000


async def list_rounds(db: Database, name: str, limit: int = 100, *, before: int | None = None) -> list[RoundHistoryRow]:
    """List the newest rounds, or the newest below the number ``before``, newest last."""
    found = select(round_history).where(round_history.c.federation == name)
    if before is not None:
        found = found.where(round_history.c.round < before)
    newest_first = found.order_by(round_history.c.round.desc()).limit(limit)
    return (await db.fetch_all(RoundHistoryRow, newest_first))[::-1]


async def get_round(db: Database, name: str, number: int) -> RoundHistoryRow | None:
    """Find one round, or None."""
    return await db.fetch_one(
        RoundHistoryRow,
        select(round_history).where(round_history.c.federation == name, round_history.c.round == number),
    )


async def get_aggregation(db: Database, name: str, number: int) -> RoundAggregationRow | None:
    """Find how a rule aggregated one round; None if it was open, abandoned or the plain mean."""
    return await db.fetch_one(
        RoundAggregationRow,
        select(round_aggregations).where(round_aggregations.c.federation == name, round_aggregations.c.round == number),
    )


async def count_fates(db: Database, name: str, client_id: str) -> dict[str, int]:
    """Count the rounds in which a client's update was kept, clipped and dropped by a rule."""
    async with db.reading() as connection:
        answer = await connection.execute(
            select(update_fates.c.fate, func.count())
            .where(update_fates.c.client == key_of(name, client_id))
            .group_by(update_fates.c.fate)
        )
        counted = {fate: int(count) for fate, count in answer}
        return {fate: counted.get(fate, 0) for fate in Fate}


async def list_quarantined(db: Database, name: str) -> list[ClientRow]:
    """List the clients in quarantine, by identity."""
    return await db.fetch_all(
        ClientRow, select_clients(name).where(clients.c.quarantined_at.is_not(None)).order_by(clients.c.client_id)
    )


async def list_revoked(db: Database, name: str) -> list[str]:
    """List the names of clients whose enrolment was revoked."""
    async with db.reading() as connection:
        revoked = select(clients.c.client_id).where(clients.c.federation == name, clients.c.revoked_at.is_not(None))
        return list(await connection.scalars(revoked))


async def list_proposals(db: Database, name: str) -> list[ProposalRow]:
    """List the clients proposed for quarantine since the operator last decided on them, by identity."""

    # One client at a time, and by the key of its kinds of events, to skip refusals, of which there may be many. With
    # the plain number SQLite would use the key of all its events.
    number = events.c.id + 0

    def newest(*kinds: str) -> Any:
        of_client = events.c.federation == name, events.c.client == clients.c.id
        return select(func.max(number)).where(*of_client, events.c.kind.in_(kinds)).correlate(clients).scalar_subquery()

    proposed = (
        select(
            clients.c.client_id,
            clients.c.id.label("client"),
            func.coalesce(newest(*_DECISIONS), 0).label("decided"),
            newest(EventKind.QUARANTINE_PROPOSED).label("id"),
        )
        .where(clients.c.federation == name)
        .cte()
        .prefix_with("MATERIALIZED")
    )
    earlier = events.alias()
    n = (
        select(func.sum(earlier.c.n))
        .where(earlier.c.federation == name, earlier.c.client == proposed.c.client)
        .where(earlier.c.kind == EventKind.QUARANTINE_PROPOSED, earlier.c.id + 0 > proposed.c.decided)
        .correlate(proposed)
        .scalar_subquery()
    )
    return await db.fetch_all(
        ProposalRow,
        select(proposed.c.client_id, n.label("n"), events.c.at, events.c.round, events.c.detail)
        .join_from(proposed, events, events.c.id == proposed.c.id)
        .where(proposed.c.id > proposed.c.decided)
        .order_by(proposed.c.client_id),
    )


async def started_at(db: Database, name: str) -> datetime | None:
    """Find when a federator last claimed the federation; None if none ever did."""
    # Such an event names no client: with that condition the index of refusals leads to the few there are.
    started = events.c.federation == name, events.c.client.is_(None), events.c.kind == EventKind.FEDERATOR_STARTED
    async with db.reading() as connection:
        at: datetime | None = await connection.scalar(select(func.max(events.c.at)).where(*started))
        return at


async def list_clients(db: Database, name: str, limit: int = 1000, *, after: str = "") -> list[ClientRow]:
    """List the clients that ever joined, or those that follow the name ``after``, by identity."""
    found = select_listed(name).where(clients.c.client_id > after)
    return await db.fetch_all(ClientRow, found.order_by(clients.c.client_id).limit(limit))


async def get_client(db: Database, name: str, client_id: str) -> ClientRow | None:
    """Find one client; None if it never joined."""
    return await db.fetch_one(ClientRow, select_listed(name).where(clients.c.client_id == client_id))


async def list_contributions(
    db: Database,
    name: str,
    *,
    round_number: int | None = None,
    client_id: str | None = None,
    before: int | None = None,
    limit: int | None = None,
) -> list[ClientHistoryRow]:
    """List clients' contributions to rounds, by round and client; with ``limit``, the newest so many.

    If the database has keys, an encrypted update whose data key is gone is shown as unreadable.

    Args:
        before: only rounds below this number.
    """
    statement = _matching(
        select(client_history).where(client_history.c.federation == name),
        {client_history.c.round: round_number, client_history.c.client_id: client_id},
    )
    # For one client: as an expression, or SQLite would read all rounds in order, to avoid sorting a few.
    number = client_history.c.round if client_id is None else client_history.c.round + 0
    if before is not None:
        statement = statement.where(number < before)
    newest_first = statement.order_by(number.desc(), client_history.c.client_id.desc())
    async with db.reading() as connection:
        rows = await fetch_all(connection, ClientHistoryRow, newest_first.limit(limit))
        return [_readable(db.keys, row) for row in reversed(rows)]


async def list_events(
    db: Database,
    name: str,
    *,
    kind: str | None = None,
    client_id: str | None = None,
    round_number: int | None = None,
    limit: int = 100,
) -> list[EventRow]:
    """List the newest events that match every filter given, newest last."""
    client = None if client_id is None else key_of(name, client_id)
    statement = _matching(
        select_named(events).where(events.c.federation == name),
        {events.c.kind: kind, events.c.client: client, events.c.round: round_number},
    )
    async with db.reading() as connection:
        newest_first = statement.order_by(events.c.id.desc()).limit(limit)
        return (await fetch_all(connection, EventRow, newest_first))[::-1]


async def count_rejections(db: Database, name: str, round_number: int | None = None) -> dict[str, int]:
    """Count the updates that were refused for each reason code, in all rounds or in one."""
    statement = _matching(
        select(events.c.code, func.sum(events.c.n)).where(
            events.c.federation == name, events.c.kind == "update_rejected"
        ),
        {events.c.round: round_number},
    )
    async with db.reading() as connection:
        answer = await connection.execute(statement.group_by(events.c.code).order_by(events.c.code))
        return {code or "unknown": int(count) for code, count in answer}


async def count_bodies(db: Database, name: str) -> tuple[int, int]:
    """Count the stored updates, and those that still have a body."""
    async with db.reading() as connection:
        n_updates, n_bodies = [
            await connection.scalar(select(func.count()).select_from(table).where(table.c.federation == name)) or 0
            for table in (updates, update_bodies)
        ]
        return n_updates, n_bodies


async def online_members(db: Database, name: str) -> list[str]:
    """List the members last reported as connected and not in quarantine, by identity."""
    async with db.reading() as connection:
        answer = await connection.execute(
            select(clients.c.client_id)
            .where(
                clients.c.federation == name,
                clients.c.membership == Membership.JOINED,
                clients.c.online.is_(True),
                clients.c.quarantined_at.is_(None),
            )
            .order_by(clients.c.client_id)
        )
        return [client_id for (client_id,) in answer]


async def last_activity(db: Database, name: str, now: datetime) -> tuple[datetime | None, datetime | None]:
    """Find when the federator last stored anything of this federation (a sign of life), and its newest time.

    A federator whose clock was ahead leaves rows with times in the future: such a time is no sign of life, and only the
    newest of all. Only the newest events in the database are read: if other federations wrote all of these, events do
    not count.

    Args:
        now: later times are in the future.

    Returns:
        The newest time up to ``now``, and the newest of all; None without any.
    """
    newest_rounds = (
        select(rounds.c.opened_at, rounds.c.closed_at)
        .where(rounds.c.federation == name)
        .order_by(rounds.c.number.desc())
        .limit(2)
        .subquery()
    )
    # By its key, because no index by time exists; and of all federations, or SQLite would sort all events of this one.
    newest_events = (
        select(events.c.federation, events.c.at).order_by(events.c.id.desc()).limit(_NEWEST_EVENTS).subquery()
    )

    def newest(moment: Any) -> Select[Any]:
        return select(func.max(case((moment <= now, moment))), func.max(moment))

    moments = (
        newest(newest_rounds.c.opened_at),
        newest(newest_rounds.c.closed_at),
        newest(clients.c.last_seen_at).where(clients.c.federation == name),
        newest(newest_events.c.at).where(newest_events.c.federation == name),
        newest(updates.c.received_at).where(
            updates.c.federation == name,
            updates.c.round == select(func.max(rounds.c.number)).where(rounds.c.federation == name).scalar_subquery(),
        ),
    )
    async with db.reading() as connection:
        found = [(await connection.execute(statement)).one() for statement in moments]
    past, all_times = zip(*found, strict=True)
    return max(filter(None, past), default=None), max(filter(None, all_times), default=None)


async def erased_updates(db: Database, name: str, first: int, last: int) -> dict[int, int]:
    """Count the updates erased with their clients after a round closed, by round; only rounds that lost any."""
    of_round = (updates.c.federation == rounds.c.federation) & (updates.c.round == rounds.c.number)
    erased = rounds.c.n_updates - select(func.count()).select_from(updates).where(of_round).scalar_subquery()
    async with db.reading() as connection:
        answer = await connection.execute(
            select(rounds.c.number, erased).where(
                rounds.c.federation == name, rounds.c.number.between(first, last), erased > 0
            )
        )
        return {number: int(n_erased) for number, n_erased in answer}


def _readable(keys: KeyStore | None, row: ClientHistoryRow) -> ClientHistoryRow:
    if keys is None or row.body != "sealed" or keys.find(row.federation, row.client_id) is not None:
        return row
    return replace(row, body="unreadable")


def _matching(statement: Select[Any], filters: dict[Any, object]) -> Select[Any]:
    """Add a condition to the statement for each column with a value to match."""
    for column, value in filters.items():
        if value is not None:
            statement = statement.where(column == value)
    return statement


# --- the database itself, for `foltr doctor` --------------------------------------------------------------------


async def try_to_write(db: Database) -> None:
    """Write a row and roll it back; raises the same errors as a federator's write."""
    # A name that no federation can have, so that no process can be waiting for it.
    row = {"name": "?doctor", "writer_epoch": 0, "ranker": "none", "n_features": 1, "created_at": datetime.now(UTC)}
    try:
        async with db.transaction() as connection:
            await connection.execute(insert(federations), row)
            raise _RollbackOnlyError
    except _RollbackOnlyError:
        pass


async def database_size(db: Database) -> int:
    """Measure its bytes; without SQLite's write-ahead log."""
    statement = {
        "sqlite": "SELECT page_count * page_size FROM pragma_page_count(), pragma_page_size()",
        "postgresql": "SELECT pg_database_size(current_database())",
    }[db.dialect]
    async with db.reading() as connection:
        return int((await connection.execute(text(statement))).scalar_one())


async def journal_mode(db: Database) -> str:
    """Find SQLite's journal mode, e.g. ``wal``."""
    async with db.reading() as connection:
        return str((await connection.execute(text("PRAGMA journal_mode"))).scalar_one())


async def server_version(db: Database) -> str:
    """Find PostgreSQL's version, e.g. ``16.4``."""
    async with db.reading() as connection:
        return str((await connection.execute(text("SHOW server_version"))).scalar_one())


class _RollbackOnlyError(Exception):
    """Raised to roll a transaction back."""
