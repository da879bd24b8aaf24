"""No byte of an erased client is left in SQLite's files: not on a free page, not in the write-ahead log."""

import contextlib
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from storage.database import Database
from storage.records import Batch, NewEvent, NewModel
from storage.rounds import begin_aggregation, complete_round

LEAVER = "device-to-forget"
MARK = b"\xf0\x9f\x94\xa5what the leaver sent"


def found_in(database: Database, *sought: bytes) -> list[str]:
    """The database's files that hold any of these bytes."""
    file = Path(database.engine.url.database or "")
    files = [path for path in file.parent.iterdir() if path.is_file() and path.name.startswith(file.name)]
    assert file in files
    return sorted(path.name for path in files if any(part in path.read_bytes() for part in sought))


@pytest.fixture
async def crowded(stored, seed: int):
    """The leaver among 60 others over 12 rounds, in an order that splits pages everywhere, and events about all."""
    if stored.db.dialect != "sqlite":
        pytest.skip("PostgreSQL keeps the bytes of deleted rows until their space is used again")
    rng = np.random.default_rng(seed)
    names = [f"device-{rng.integers(10**9)}" for _ in range(60)] + [LEAVER]
    rng.shuffle(names)
    await stored.join(*names)
    await stored.open(1)
    at = stored.opening(1).closes_at
    for number in range(1, 13):
        rng.shuffle(names)
        for start in range(0, len(names), 7):
            some = names[start : start + 7]
            told = [NewEvent(at, "update_rejected", "was late", "late", name, number) for name in some]
            new = [
                stored.update(
                    name, f"u{number}", number, body=(MARK if name == LEAVER else b"other") * int(rng.integers(1, 400))
                )
                for name in some
            ]
            await stored.commit(Batch(updates=new, events=told))
        await begin_aggregation(stored.db, "web", stored.epoch, number)
        model = NewModel(number, bytes(12))
        await complete_round(
            stored.db, "web", stored.epoch, number, model, at, stored.opening(number + 1, base_version=number)
        )
    return stored


@pytest.mark.parametrize("seed", range(4))
async def test_no_byte_is_left_after_a_vacuum(crowded) -> None:
    """Of its name and of its updates, which are stored plain here; they were there before, and in the log."""
    sought = LEAVER.encode(), MARK
    assert len(found_in(crowded.db, *sought)) == 2
    row = await crowded.erase_with_key(LEAVER)
    async with crowded.db.transaction() as connection:
        # As when its device was told.
        await connection.exec_driver_sql("UPDATE erasures SET client = NULL")
        await connection.exec_driver_sql("DELETE FROM clients WHERE membership = 'forgotten'")
    assert (row.n_updates, row.n_rounds) == (12, 12)
    assert await crowded.db.vacuum()
    assert found_in(crowded.db, *sought) == []
    assert found_in(crowded.db, b"device-", b"other") == ["foltr.sqlite"]


async def test_copies_on_pages_that_were_split_go_too(stored) -> None:
    """Overwriting a row where it was is not enough: with SQLite 3.40 this very sequence leaves its name in an index."""
    if stored.db.dialect != "sqlite":
        pytest.skip("PostgreSQL keeps the bytes of deleted rows until their space is used again")
    rng = np.random.default_rng(27)
    async with stored.db.transaction() as connection:
        await connection.exec_driver_sql(
            "CREATE TABLE t (r INTEGER, who TEXT, id TEXT, body BLOB, PRIMARY KEY (r, who), UNIQUE (who, id))"
        )
    names = [f"device-{n}" for n in rng.integers(10**9, size=400)] + [LEAVER]
    for number in range(24):
        rows = [
            (number, str(who), rng.bytes(16).hex(), bytes(8 * int(rng.integers(200)))) for who in rng.permutation(names)
        ]
        async with stored.db.transaction() as connection:
            await connection.exec_driver_sql("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
            await connection.exec_driver_sql("DELETE FROM t WHERE who = ?", (names[number],))
            await connection.exec_driver_sql("UPDATE t SET body = NULL WHERE r = ?", (number // 2,))
    async with stored.db.transaction() as connection:
        await connection.exec_driver_sql("DELETE FROM t WHERE who = ?", (LEAVER,))
    assert await stored.db.vacuum()
    assert found_in(stored.db, LEAVER.encode()) == []


async def test_a_reader_holds_the_log_up(stored) -> None:
    """Whoever reads an old state still sees it: the vacuum says that it is not done, and the next one is."""
    if stored.db.dialect != "sqlite":
        pytest.skip("PostgreSQL has no such log")
    await stored.join("a")
    with contextlib.closing(sqlite3.connect(stored.db.engine.url.database, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM clients").fetchall()
        async with stored.db.engine.connect() as connection:
            await (await connection.get_raw_connection()).driver_connection.execute("PRAGMA busy_timeout = 10")
        assert await stored.db.vacuum() is False
    assert await stored.db.vacuum() is True


async def test_a_writer_holds_it_up(stored) -> None:
    """As above: the database cannot be written anew while somebody writes."""
    if stored.db.dialect != "sqlite":
        pytest.skip("PostgreSQL has no such lock")
    async with stored.db.engine.connect() as connection:
        await (await connection.get_raw_connection()).driver_connection.execute("PRAGMA busy_timeout = 10")
    async with stored.db.transaction() as connection:
        await connection.exec_driver_sql("UPDATE federations SET roster_version = 0")
        async with stored.db.engine.connect() as other:
            await (await other.get_raw_connection()).driver_connection.execute("PRAGMA busy_timeout = 10")
        assert await stored.db.vacuum() is False
    assert await stored.db.vacuum() is True


async def test_postgresql_is_vacuumed(stored) -> None:
    """The space of deleted rows may be used again from then on."""
    if stored.db.dialect != "postgresql":
        pytest.skip("SQLite overwrites what is deleted")
    await stored.join("a")
    await stored.erase("a")
    assert await stored.db.vacuum() is True
    async with stored.db.reading() as connection:
        dead = await connection.exec_driver_sql("SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'clients'")
        assert dead.scalar_one() == 0
