"""A migrated database for a whole federation, on SQLite and then on PostgreSQL."""

from collections.abc import AsyncIterator

import pytest

from storage.database import Database
from storage.migrate import upgrade


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    async with await Database.connect(database_url) as opened:
        await upgrade(opened)
        yield opened
