"""A federation that somebody leads."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from support.databases import open_migrated

from foltr.storage.database import Database
from foltr.storage.leases import take_lease
from foltr.storage.tables import federations


@pytest.fixture
def leads() -> str:
    """Who leads it."""
    return "leader"


@pytest.fixture
async def database(migrated_url: str, leads: str) -> AsyncIterator[Database]:
    """A database with the federation, and with the lease of who leads it."""
    row = {"name": "mail", "writer_epoch": 0, "ranker": "none", "n_features": 1, "created_at": datetime.now(UTC)}
    async with await open_migrated(migrated_url) as opened:
        async with opened.transaction() as connection:
            await connection.execute(federations.insert().values(row))
        assert await take_lease(opened, "mail", leads)
        yield opened
