"""A migrated database with one federation in it, on SQLite and then on PostgreSQL."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import select

from storage.database import Database
from storage.federations import claim_federation, create_federation
from storage.intake import commit_batch
from storage.migrate import upgrade
from storage.records import Batch, MembershipChange, NewUpdate, RoundOpening
from storage.rounds import open_round
from storage.tables import metadata

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
N_FEATURES = 3


def at(seconds: float) -> datetime:
    """A moment so many seconds into the test's story."""
    return NOW + timedelta(seconds=seconds)


@dataclass
class Stored:
    """The federation under test and the builders of what goes into it."""

    db: Database
    epoch: int
    name: str = "web"
    weights: bytes = bytes(4 * N_FEATURES)

    @staticmethod
    def opening(number: int, base_version: int = 0) -> RoundOpening:
        return RoundOpening(number, base_version, 1, 10, 0.0, 60.0, at(0), at(60))

    @staticmethod
    def update(client_id: str, update_id: str = "u1", round_number: int = 1, **other: Any) -> NewUpdate:
        fields = {"base_version": 0, "n_interactions": 5, "encoding": "dense_f32", "body": b"\1\2\3\4"}
        return NewUpdate(
            round=round_number, client_id=client_id, update_id=update_id, received_at=at(1), **(fields | other)
        )

    async def join(self, *client_ids: str) -> None:
        changes = [MembershipChange(client_id, "joined", at(0)) for client_id in client_ids]
        await self.commit(Batch(membership=changes))

    async def open(self, number: int, base_version: int = 0) -> None:
        await open_round(self.db, self.name, self.epoch, self.opening(number, base_version))

    async def commit(self, batch: Batch) -> None:
        await commit_batch(self.db, self.name, self.epoch, batch)

    async def dump(self) -> dict[str, list[tuple[Any, ...]]]:
        """Every row of every table."""
        async with self.db.reading() as connection:
            return {
                table.name: [tuple(row) for row in await connection.execute(select(table).order_by(*table.primary_key))]
                for table in metadata.sorted_tables
            }


@pytest.fixture
async def migrated(database_url: str) -> AsyncIterator[Database]:
    """A database at the newest revision, empty."""
    async with await Database.connect(database_url) as db:
        await upgrade(db)
        yield db


@pytest.fixture
async def stored(migrated: Database) -> Stored:
    """A database with the federation `web`, claimed, and its model 0."""
    await create_federation(migrated, "web", N_FEATURES, "linear", bytes(4 * N_FEATURES), at(0))
    return Stored(migrated, await claim_federation(migrated, "web"))
