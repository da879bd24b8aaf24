"""A database with as long a history as one likes: rows made by SQL, as both databases understand it."""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from sqlalchemy import text
from support.databases import open_migrated
from support.history_database import OPENED, made_history

from foltr.storage.database import Database

N_CLIENTS = 20
_NUMBERS = "WITH RECURSIVE s(i) AS (SELECT {first} UNION ALL SELECT i + 1 FROM s WHERE i < {last})"
_ROUNDS = """INSERT INTO rounds (federation, number, state, base_version, min_clients, max_clients, min_time_s,
    max_time_s, opened_at, closes_at, closed_at, reason, n_updates, n_interactions)
    {numbers} SELECT 'mail', i, 'abandoned', 1, 2, 10, 0, 60, '{at}', '{at}', '{at}', 'too_few_clients', {clients}, 9
    FROM s"""
_CLIENTS = """INSERT INTO clients (federation, client_id, membership, online, joined_at, last_seen_at)
    {numbers} SELECT 'mail', 'device-' || i, 'joined', true, '{at}', '{at}' FROM s"""
_UPDATES = """INSERT INTO updates (federation, round, client, update_id, base_version, n_interactions, encoding,
    n_bytes, received_at)
    {numbers} SELECT 'mail', i, c.id, 'u' || i, 1, 5, 'dense_f32', 4, '{at}'
    FROM s, clients c WHERE c.client_id LIKE 'device-%'"""
_EVENTS = """INSERT INTO events (federation, at, kind, code, client, round, detail)
    {numbers} SELECT 'mail', '{at}', 'update_rejected', 'late', c.id, i, 'came late'
    FROM s, clients c WHERE c.client_id LIKE 'device-%'"""


async def long_history(db_url: str, n_rounds: int) -> Database:
    """Open the database of `history_database`, with so many more rounds, each with 20 updates and as many refusals."""
    await made_history(db_url, "mail")
    db = await open_migrated(db_url)
    at = f"{OPENED + timedelta(seconds=70):%Y-%m-%d %H:%M:%S.000000}" + ("" if db.dialect == "sqlite" else "+00")
    rounds = _NUMBERS.format(first=3, last=n_rounds + 2)
    clients = _NUMBERS.format(first=1, last=N_CLIENTS)
    async with db.transaction() as connection:
        for statement, numbers in ((_CLIENTS, clients), (_ROUNDS, rounds), (_UPDATES, rounds), (_EVENTS, rounds)):
            await connection.execute(text(statement.format(numbers=numbers, at=at, clients=N_CLIENTS)))
        closed = "state = 'abandoned', reason = 'no_updates', closed_at = opened_at, n_updates = 0, n_interactions = 0"
        await connection.execute(text(f"UPDATE rounds SET {closed} WHERE number = 2"))  # noqa: S608 (our own words)
    return db


async def steps_of(db: Database, question: Callable[[Database], Awaitable[Any]], every: int = 100) -> tuple[Any, int]:
    """What a question is answered, and how many times so many instructions of SQLite's machine it takes."""
    n_steps = 0

    def count() -> int:
        nonlocal n_steps
        n_steps += 1
        return 0

    async with db.reading() as connection:  # the pool gives the same connection again
        driver = (await connection.get_raw_connection()).driver_connection
        await driver.set_progress_handler(count, every)
    answer = await question(db)
    await driver.set_progress_handler(None, 0)
    return answer, n_steps
