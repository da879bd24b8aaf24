"""A federation that somebody leads."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest
from support.databases import open_migrated
from support.waiting import PATIENCE_S

from foltr.storage.database import Database
from foltr.storage.leases import take_lease
from foltr.storage.tables import federations


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No lease is over, and nobody goes without one or without the name of who leads, because the machine was slow."""
    monkeypatch.setattr("foltr.storage.leases.LEASE_S", PATIENCE_S)
    monkeypatch.setattr("foltr.storage.leases._LONGEST_WAIT_S", PATIENCE_S)
    monkeypatch.setattr("foltr.federator.leading.keeper._EXPLAINED_WITHIN_S", PATIENCE_S)


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
