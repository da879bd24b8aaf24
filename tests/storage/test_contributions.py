"""What a client contributed is found by its own rows: however long history is, others' are not looked through."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import text
from support.long_histories import N_CLIENTS, long_history

from foltr.storage.database import Database
from foltr.storage.queries import list_contributions

RARE = "device-1"
QUESTIONS: dict[str, Callable[[Database], Awaitable[list[Any]]]] = {
    "all": lambda db: list_contributions(db, "mail", client_id=RARE),
    "page": lambda db: list_contributions(db, "mail", client_id=RARE, limit=100),
    "next page": lambda db: list_contributions(db, "mail", client_id=RARE, before=10**6, limit=100),
}


async def rare_contributor(url: str, n_rounds: int) -> Database:
    """A history in which one client has an update in the first three rounds only."""
    db = await long_history(url, n_rounds)
    rare = "SELECT id FROM clients WHERE client_id = :rare"
    async with db.transaction() as connection:
        await connection.execute(text(f"DELETE FROM updates WHERE round > 5 AND client = ({rare})"), {"rare": RARE})  # noqa: S608
    return db


async def steps(db: Database, question: Callable[[Database], Awaitable[list[Any]]]) -> int:
    """Instructions of SQLite's machine that a question takes, in hundreds."""
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return 0

    async with db.reading() as connection:  # the pool gives the same connection again
        driver = (await connection.get_raw_connection()).driver_connection
        await driver.set_progress_handler(count, 100)
    assert [row.round for row in await question(db)] in ([3, 4, 5], [5, 4, 3])
    return counted


@pytest.mark.parametrize("question", QUESTIONS.values(), ids=QUESTIONS.keys())
async def test_a_long_history_costs_no_more(tmp_path, question) -> None:
    """Ten times as many rounds of others change nothing for who was there three times."""
    async with await rare_contributor(f"sqlite:///{tmp_path / 'short'}", 30) as short:
        few = await steps(short, question)
    async with await rare_contributor(f"sqlite:///{tmp_path / 'long'}", 300) as long:
        assert N_CLIENTS * 300 > 1000
        assert await steps(long, question) <= 1.5 * few + 10
