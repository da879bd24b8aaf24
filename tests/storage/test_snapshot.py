"""Several readings from one snapshot: what others commit meanwhile is in none of them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import text

from foltr.storage.database import Database


@pytest.fixture
async def db(database_url: str) -> AsyncIterator[Database]:
    """A database without tables of ours."""
    async with await Database.connect(database_url) as db:
        yield db


async def _set(db: Database, value: int) -> None:
    async with db.transaction() as connection:
        await connection.execute(text("UPDATE shown SET value = :value"), {"value": value})


async def _get(db: Database) -> int:
    async with db.reading() as connection:
        return int((await connection.execute(text("SELECT value FROM shown"))).scalar_one())


async def test_all_readings_within_a_snapshot_see_the_same(db: Database) -> None:
    """And those before, after and of other tasks see what is committed."""
    async with db.transaction() as connection:
        await connection.execute(text("CREATE TABLE shown (value INTEGER)"))
        await connection.execute(text("INSERT INTO shown VALUES (1)"))
    go_on = asyncio.Event()

    async def change() -> int:
        await go_on.wait()
        await _set(db, 2)
        return await _get(db)

    changing = asyncio.create_task(change())
    async with db.snapshot():
        assert await _get(db) == 1
        go_on.set()
        assert await changing == 2
        assert await _get(db) == 1
    assert await _get(db) == 2


async def test_a_snapshot_of_one_database_is_not_anothers(db: Database, tmp_path: Path) -> None:
    """What else is read within the block is read where it is."""
    async with await Database.connect(f"sqlite:///{tmp_path / 'other.sqlite'}") as other:
        async with other.transaction() as connection:
            await connection.execute(text("CREATE TABLE shown (value INTEGER)"))
            await connection.execute(text("INSERT INTO shown VALUES (7)"))
        async with db.snapshot():
            assert await _get(other) == 7
