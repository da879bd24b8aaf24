"""Transactions of SQLite are made one after the other in a thread of their own, each from its beginning to its end."""

import asyncio
import threading

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError
from support.waiting import PATIENCE_S

from foltr.storage.database import Database
from foltr.storage.sqlite_thread import SqliteThread
from foltr.storage.urls import read_url


@pytest.fixture
async def db(tmp_path):
    async with await Database.connect(f"sqlite:///{tmp_path / 'a.sqlite'}") as database:
        async with database.transaction() as connection:
            await connection.execute(text("CREATE TABLE numbers (number INTEGER NOT NULL)"))
        yield database


async def store(db: Database, *numbers: int, fails: bool = False) -> str:
    async with db.transaction() as connection:
        for number in numbers:
            await connection.execute(text("INSERT INTO numbers VALUES (:number)"), {"number": number})
        if fails:
            raise ValueError("not this one")
    return threading.current_thread().name


async def stored(db: Database) -> list[int]:
    async with db.reading() as connection:
        return list(await connection.scalars(text("SELECT number FROM numbers ORDER BY rowid")))


async def test_a_transaction_that_raises_keeps_nothing_and_says_why(db):
    """As without the thread; it goes on, one whole transaction after the other in the order they were asked for.

    The event loop has its own connections to the same file.
    """
    with pytest.raises(ValueError, match="not this one"):
        await db.run(store, 1, fails=True)
    await asyncio.gather(*(db.run(store, i, i) for i in range(20)))
    assert (await db.run(store, 20)).startswith("foltr-sqlite")
    assert await store(db, 21) == "MainThread"
    expected = [*(i for i in range(20) for _ in range(2)), 20, 21]
    assert await db.run(stored) == await stored(db) == expected


async def test_whoever_is_cancelled_hears_no_answer_and_what_has_begun_is_done(db):
    """A commit may be on the disk by then; whoever asks for the same again finds it done."""

    async def slowly(db: Database) -> None:
        began.set()
        let_go.wait(PATIENCE_S)
        await store(db, 1)

    began, let_go = threading.Event(), threading.Event()
    asked = asyncio.create_task(db.run(slowly))
    await asyncio.to_thread(began.wait, PATIENCE_S)
    asked.cancel()
    let_go.set()
    with pytest.raises(asyncio.CancelledError):
        await asked
    await db.run(store, 2)
    assert await stored(db) == [1, 2]


async def test_closing_waits_for_what_was_asked_for_and_ends_the_thread(db):
    """A database that is opened again has another thread."""

    async def store_there(db: Database) -> threading.Thread:
        await store(db, 1)
        return threading.current_thread()

    asked = asyncio.create_task(db.run(store_there))
    await asyncio.sleep(0)
    await db.close()
    thread = await asked
    assert (thread.name.startswith("foltr-sqlite"), thread.is_alive()) == (True, False)
    await db.run(store, 2)
    assert await stored(db) == [1, 2]


async def test_an_answer_that_comes_after_its_event_loop_has_ended_is_nobodys(tmp_path):
    """A test, or a command, may end before its last transaction."""
    thread = SqliteThread(read_url(f"sqlite:///{tmp_path / 'a.sqlite'}"))
    began, go_on = threading.Event(), threading.Event()

    async def wait() -> None:
        began.set()
        go_on.wait()

    async def again() -> str:
        return "again"

    async def ask() -> None:
        asyncio.ensure_future(thread.run(wait))  # noqa: RUF006 (it is cancelled with its loop)
        await asyncio.to_thread(began.wait)

    await asyncio.to_thread(asyncio.run, ask())
    go_on.set()
    assert await thread.run(again) == "again"
    await thread.close()


async def test_what_the_driver_refuses_tells_no_values(db):
    """Neither in the thread nor in the event loop: they may be somebody's."""
    async with db.transaction() as connection:
        await connection.execute(text("CREATE UNIQUE INDEX one ON numbers (number)"))
    await db.run(store, 4711)
    for ask in (db.run(store, 4711), store(db, 4711)):
        with pytest.raises(IntegrityError) as caught:
            await ask
        assert "4711" not in str(caught.value.orig)


async def test_who_is_cancelled_while_it_closes_leaves_no_connection(tmp_path):
    """Those of the event loop are closed as well, although the thread was waited for first."""

    async def wait(_: Database) -> None:
        began.set()
        let_go.wait(PATIENCE_S)

    began, let_go = threading.Event(), threading.Event()
    db = await Database.connect(f"sqlite:///{tmp_path / 'a.sqlite'}")
    async with db.reading():
        pass
    assert db.engine.pool.checkedin() == 1
    waiting = asyncio.create_task(db.run(wait))
    await asyncio.to_thread(began.wait, PATIENCE_S)
    closing = asyncio.create_task(db.close())
    await asyncio.sleep(0.05)
    closing.cancel()
    let_go.set()
    await asyncio.gather(closing, waiting, return_exceptions=True)
    assert db.engine.pool.checkedin() == 0
