"""A migrated database with one federation in it, on SQLite and then on PostgreSQL."""

import hashlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Executable, Select, Table, event, select
from support.databases import open_migrated
from support.rounds_of_sums import POLICY, opening

from foltr.core.errors import ProtocolViolationError
from foltr.federator.store import FederationStore
from foltr.storage.body_tables import update_bodies
from foltr.storage.clients import select_named
from foltr.storage.database import Database
from foltr.storage.erasure_records import ErasureRequest, ErasureRow
from foltr.storage.keys import KeyStore
from foltr.storage.records import Batch, MembershipChange, NewAggregation, NewFate, NewModel, NewUpdate, RoundOpening
from foltr.storage.rounds import stream_updates
from foltr.storage.sum_records import PolicyRecord
from foltr.storage.tables import metadata

# Where SQL or locks differ, both databases are tried with every change; elsewhere PostgreSQL is tried at night.
ON_BOTH = {
    *("test_anchors", "test_arrivals", "test_body_parts", "test_database", "test_database_vacuum", "test_erasures"),
    *("test_findings", "test_ingest", "test_leases", "test_migrate", "test_pages", "test_queries", "test_rounds"),
    *("test_store_contract", "test_sums", "test_tables", "test_unlearning_jobs"),
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        is_here = item.path.is_relative_to(Path(__file__).parent) and item.path.stem not in ON_BOTH
        if is_here and "postgresql" in getattr(getattr(item, "callspec", None), "params", {}).values():
            item.add_marker(pytest.mark.nightly)


NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
N_FEATURES = 3


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def with_names(table: Table) -> Select[Any]:
    """Select the rows of a table with names in the place of keys, where it has such a column."""
    return select_named(table) if "client" in table.columns else select(table)


class Stored(FederationStore):
    """The store of the federation under test, and the builders of what goes into it."""

    weights = bytes(4 * N_FEATURES)
    at = staticmethod(at)

    def __init__(self, db: Database, name: str = "web") -> None:
        super().__init__(db, name, patience_s=0.0)
        self.name = name
        self.covered: dict[str, dict[str, tuple[int, int]]] = {}

    @staticmethod
    def opening(number: int, base_version: int = 0, **other: Any) -> RoundOpening:
        return replace(RoundOpening(number, base_version, 1, 10, 0.0, 60.0, at(0), at(60)), **other)

    def update(self, client_id: str, update_id: str = "u1", round_number: int = 1, **other: Any) -> NewUpdate:
        """An update that begins where the client's update made before it ends."""
        known = self.covered.setdefault(client_id, {})
        after = max((through for _, through in known.values()), default=0)
        covers_after, covers_through = known.setdefault(update_id, (after, after + 100))
        fields = {"base_version": 0, "n_interactions": 5, "encoding": "dense_f32", "body": b"\1\2\3\4"}
        fields |= {"covers_after": covers_after, "covers_through": covers_through, "received_at": at(1)}
        return NewUpdate(round=round_number, client_id=client_id, update_id=update_id, **(fields | other))

    def give_back(self, client_id: str, update_id: str) -> None:
        """What a client sends next begins where this update did: it counts no more."""
        del self.covered[client_id][update_id]

    @staticmethod
    def request(client_id: str, **other: Any) -> ErasureRequest:
        """Of the client's device, at second 100, obeyed at second 101; the pseudonym is easily told."""
        fields = {"requested_at": at(100), "requested_by": "device", "erased_at": at(101)}
        return ErasureRequest(client_id, client_id.encode().hex().rjust(32, "0"), **(fields | other))

    async def erase(self, client_id: str, **other: Any) -> ErasureRow:
        return await self.erase_client(self.request(client_id, **other))

    async def erase_with_key(self, client_id: str) -> ErasureRow:
        """Up to where it waits for a job."""
        row = await self.erase(client_id)
        await self.destroy_key(client_id, None)
        return await self.note_key_destroyed(row.pseudonym)

    async def join(self, *client_ids: str) -> None:
        await self.commit(Batch(membership=[MembershipChange(client_id, "joined", at(0)) for client_id in client_ids]))

    async def open(self, number: int, base_version: int = 0, **other: Any) -> None:
        await self.open_round(self.opening(number, base_version, **other))

    async def commit(self, batch: Batch) -> None:
        await self.commit_batch(batch)

    async def send(self, *client_ids: str, number: int = 1, **fields: Any) -> None:
        """Store an update of each, named by its client and round."""
        new = [self.update(name, f"{name}{number}", number, **fields) for name in client_ids]
        await self.commit(Batch(updates=new))

    async def end(self, number: int, version: int = 0, opens: RoundOpening | None = None, **made: Any) -> None:
        """Close the round with a model of its own number, unless another is given; the next round opens on it."""
        version = version or number
        await self.begin_aggregation(number)
        model = NewModel(version, **{"weights": bytes([version]) * 12} | made)
        await self.complete_round(number, model, at(60), opens or self.opening(number + 1, version))

    async def read(self, statement: Executable) -> list[tuple[Any, ...]]:
        async with self.db.reading() as connection:
            return [tuple(row) for row in await connection.execute(statement)]

    async def write(self, statement: Executable, values: Any = None) -> None:
        """A statement as no program of ours makes it, in a transaction of its own."""
        async with self.db.transaction() as connection:
            await connection.execute(statement, values)

    async def dump(self) -> dict[str, list[tuple[Any, ...]]]:
        """Every row of every table, with the name of its client in the place of its key."""
        async with self.db.reading() as connection:
            return {
                table.name: [tuple(row) for row in await connection.execute(rows.order_by(*table.primary_key))]
                for table, rows in ((table, with_names(table)) for table in metadata.sorted_tables)
            }

    async def sent(self, number: int) -> dict[str, bytes]:
        """The bodies of a round's updates as their clients sent them."""
        return {row.client_id: row.body async for row in stream_updates(self.db, self.name, number)}

    async def digest_of(self, client_id: str) -> str:
        """What its erasure will say of a client's stored bodies: a hash over them, the newest first."""
        digest, body = hashlib.sha256().digest(), list(update_bodies.columns).index(update_bodies.c.body)
        for row in reversed((await self.dump())["update_bodies"]):
            if row[2] == client_id:
                digest = hashlib.sha256(digest + hashlib.sha256(row[body]).digest()).digest()
        return digest.hex()

    @asynccontextmanager
    async def unchanged(self) -> AsyncIterator[None]:
        """After what is done within every row is what it was."""
        before = await self.dump()
        yield
        assert await self.dump() == before

    @asynccontextmanager
    async def refuses(
        self, error: type[Exception] = ProtocolViolationError, match: str | None = None
    ) -> AsyncIterator[None]:
        """What is done within raises this, and changes no row."""
        async with self.unchanged():
            with pytest.raises(error, match=match):
                yield


@contextmanager
def statements_of(db: Database) -> Iterator[list[str]]:
    """What the driver is asked within, but in SQLite's thread."""
    asked: list[str] = []

    def note(*of: Any) -> None:
        asked.append(of[2])

    event.listen(db.engine.sync_engine, "before_cursor_execute", note)
    yield asked
    event.remove(db.engine.sync_engine, "before_cursor_execute", note)


@pytest.fixture
async def migrated(migrated_url: str) -> AsyncIterator[Database]:
    async with await open_migrated(migrated_url) as db:
        yield db


@pytest.fixture
async def stored(migrated: Database) -> Stored:
    """A database with the federation `web`, claimed, and its model 0."""
    stored = Stored(migrated)
    await stored.create_federation(N_FEATURES, "linear", stored.weights, at(0))
    await stored.claim_federation(0.0)
    return stored


@pytest.fixture
async def summing(stored: Stored) -> Stored:
    """Clients a to d under a policy, and round 1 that is open on model 0, the anchor."""
    await stored.join(*"abcd")
    await stored.adopt_policy(PolicyRecord(POLICY, 1, b"signed", at(0)))
    await stored.open_round(opening(stored, 1, 0))
    return stored


@pytest.fixture
def keys(tmp_path: Path) -> KeyStore:
    return KeyStore(tmp_path / "keys")


@pytest.fixture
async def sealed(stored: Stored, keys: KeyStore) -> Stored:
    """The same federation in a database that seals what it stores."""
    stored.db.keys = keys
    return stored


ROUNDS = {1: "ab", 2: "abc", 3: "b", 4: "abc"}
"""Who contributed to which round of `learned`; round 3 was abandoned, 5 is open with an update of c."""


@pytest.fixture
async def learned(sealed: Stored) -> Stored:
    """Four rounds of clients a, b and c; models 1, 2 and 3 are of rounds 1, 2 and 4. Round 5 is open."""
    await sealed.join("a", "b", "c")
    await sealed.open(1)
    version = 0
    for number, names in ROUNDS.items():
        new = [sealed.update(name, f"{name}{number}", number, body=f"{name} in {number}".encode()) for name in names]
        await sealed.commit(Batch(updates=new))
        if number == 3:
            await sealed.begin_aggregation(number)
            await sealed.abandon_round(number, "too_few", at(60), sealed.opening(number + 1, version))
            for name in names:
                sealed.give_back(name, f"{name}{number}")
            continue
        version += 1
        fates = [NewFate(name, "kept", 1 / len(names), None, "") for name in names]
        made = {"optimizer_state": b"moments", "aggregation": NewAggregation("median", "{}", None, fates)}
        await sealed.end(number, version, **made)
    await sealed.send("c", number=5, body=b"c in 5")
    return sealed
