"""History, for people: what the command line and the HTTP API show. Reading only."""

from typing import Any

from sqlalchemy import Select, func, select

from storage.database import Database
from storage.records import ClientHistoryRow, ClientRow, EventRow, RoundHistoryRow
from storage.tables import client_history, clients, events, round_history


async def list_rounds(db: Database, name: str, limit: int = 100) -> list[RoundHistoryRow]:
    """The newest rounds, newest last."""
    async with db.reading() as connection:
        found = await connection.execute(
            select(round_history)
            .where(round_history.c.federation == name)
            .order_by(round_history.c.round.desc())
            .limit(limit)
        )
        return [RoundHistoryRow(*row) for row in reversed(found.all())]


async def get_round(db: Database, name: str, number: int) -> RoundHistoryRow | None:
    """One round, or None."""
    async with db.reading() as connection:
        found = await connection.execute(
            select(round_history).where(round_history.c.federation == name, round_history.c.round == number)
        )
        row = found.one_or_none()
        return None if row is None else RoundHistoryRow(*row)


async def list_clients(db: Database, name: str, limit: int = 1000) -> list[ClientRow]:
    """The clients that ever joined, by identity."""
    async with db.reading() as connection:
        found = await connection.execute(
            select(clients).where(clients.c.federation == name).order_by(clients.c.client_id).limit(limit)
        )
        return [ClientRow(*row) for row in found]


async def get_client(db: Database, name: str, client_id: str) -> ClientRow | None:
    """One client, or None if it never joined."""
    async with db.reading() as connection:
        found = await connection.execute(
            select(clients).where(clients.c.federation == name, clients.c.client_id == client_id)
        )
        row = found.one_or_none()
        return None if row is None else ClientRow(*row)


async def list_contributions(
    db: Database,
    name: str,
    *,
    round_number: int | None = None,
    client_id: str | None = None,
    limit: int | None = None,
) -> list[ClientHistoryRow]:
    """What clients contributed to rounds, by round and client; with ``limit``, the newest so many."""
    statement = _matching(
        select(client_history).where(client_history.c.federation == name),
        {client_history.c.round: round_number, client_history.c.client_id: client_id},
    )
    newest_first = statement.order_by(client_history.c.round.desc(), client_history.c.client_id.desc())
    async with db.reading() as connection:
        found = await connection.execute(newest_first.limit(limit))
        return [ClientHistoryRow(*row) for row in reversed(found.all())]


async def list_events(
    db: Database,
    name: str,
    *,
    kind: str | None = None,
    client_id: str | None = None,
    round_number: int | None = None,
    limit: int = 100,
) -> list[EventRow]:
    """The newest events that match every filter given, newest last."""
    statement = _matching(
        select(events).where(events.c.federation == name),
        {events.c.kind: kind, events.c.client_id: client_id, events.c.round: round_number},
    )
    async with db.reading() as connection:
        found = await connection.execute(statement.order_by(events.c.id.desc()).limit(limit))
        return [EventRow(*row) for row in reversed(found.all())]


async def count_rejections(db: Database, name: str) -> dict[str, int]:
    """How many updates were refused for each reason code."""
    async with db.reading() as connection:
        found = await connection.execute(
            select(events.c.code, func.count())
            .where(events.c.federation == name, events.c.kind == "update_rejected")
            .group_by(events.c.code)
            .order_by(events.c.code)
        )
        return {code or "unknown": count for code, count in found}


def _matching(statement: Select[Any], filters: dict[Any, object]) -> Select[Any]:
    """The statement with a condition for each column that has a value to match."""
    for column, value in filters.items():
        if value is not None:
            statement = statement.where(column == value)
    return statement
