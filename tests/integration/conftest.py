"""A migrated database for a whole federation, on SQLite and then on PostgreSQL."""

from collections.abc import AsyncIterator

import pytest
from databases import open_migrated

from foltr.storage.database import Database


@pytest.fixture
async def database(migrated_url: str) -> AsyncIterator[Database]:
    async with await open_migrated(migrated_url) as opened:
        yield opened
