"""Reaching a database: the URL, the transactions, what to do when it is not there."""

import asyncio
import gc
import itertools
import sqlite3
import warnings
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from types import SimpleNamespace

import aiosqlite
import pytest
from sqlalchemy import insert, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError, StatementError
from support.databases import migrated_sqlite
from support.postgres_server import PostgresServer
from support.servers import free_port
from support.waiting import PATIENCE_S, until

import foltr.storage.engines
from foltr.core.errors import SettingsError, UnavailableError
from foltr.storage.database import Database, is_transient
from foltr.storage.errors import DatabaseGoneError
from foltr.storage.leases import end_sessions
from foltr.storage.tables import federations

NOW = datetime(2026, 1, 2, tzinfo=UTC)
ROW = {"name": "web", "writer_epoch": 0, "ranker": "linear", "n_features": 3, "created_at": NOW}


def test_a_wrong_url_names_the_setting_and_the_forms_but_no_password() -> None:
    """The message tells what to write instead and can go into a log; so can where a database is, and its engine."""
    for url, says in [
        ("nonsense", "it is not a URL"),
        ("postgresql://me:s3cret@host:port/foltr", "it is not a URL"),
        ("mysql://me:s3cret@host/foltr", "mysql is not a database foltr can use"),
        ("sqlite+pysqlite:///x.sqlite", "sqlite+pysqlite is not a database foltr can use"),
        ("sqlite://", "needs the path of a file"),
        ("sqlite:///:memory:", "needs the path of a file"),
        ("postgresql://me:s3cret@host", "it names no database"),
        ("postgresql://me:s3@cret@host/foltr", "write each @ of the password as %40"),
        ("postgresql://me@host/foltr?password=s3cret", "password after the ? is not one of"),
        ("postgresql://me@host/foltr?jit=off", "jit after the ? is not one of"),
    ]:
        with pytest.raises(SettingsError, match="db_url") as caught:
            Database(url)
        message = str(caught.value)
        assert says in message, url
        assert "sqlite:///folder/file.sqlite" in message, url
        assert "cret" not in message, url
    for scheme in ("postgresql", "postgres"):
        db = Database(f"{scheme}://me:s3cret@db.example:5433/foltr?sslmode=require")
        assert db.location == "The PostgreSQL database 'foltr' at db.example:5433", scheme
        assert "s3cret" not in repr(db.engine), scheme
        assert db.engine.url.query == {"ssl": "require"}, scheme


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without asyncpg the message is the command that installs it."""
    monkeypatch.setitem(__import__("sys").modules, "asyncpg", None)
    with pytest.raises(UnavailableError, match=r"pip install .*\[postgres\]'"):
        Database("postgresql://me@host/foltr")


async def test_an_absent_server_is_named_with_advice_and_may_be_tried_again() -> None:
    """Which database, where, and how to start it."""
    port = free_port()
    with pytest.raises(UnavailableError, match=f"'foltr' at 127.0.0.1:{port}.*Start PostgreSQL") as caught:
        await Database.connect(f"postgresql://me:s3cret@127.0.0.1:{port}/foltr", retry_for_s=0.5)
    assert is_transient(caught.value)
    assert "s3cret" not in str(caught.value)


async def test_an_absent_database_is_not_tried_again(postgres_server: PostgresServer) -> None:
    """Waiting would not create it, so the answer comes at once and says what would."""
    with pytest.raises(UnavailableError, match="createdb no_such_database") as caught:
        await Database.connect(postgres_server.url("no_such_database"), retry_for_s=60)
    assert not is_transient(caught.value)


async def test_an_absent_folder_is_named(tmp_path) -> None:
    """SQLite's own words do not say which file."""
    with pytest.raises(UnavailableError, match=r"no_such_folder/foltr\.sqlite") as caught:
        await Database.connect(f"sqlite:///{tmp_path}/no_such_folder/foltr.sqlite", retry_for_s=60)
    assert not is_transient(caught.value)


@pytest.mark.parametrize("error_code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_SHMSIZE, sqlite3.SQLITE_CANTOPEN])
async def test_a_full_disk_is_named_whatever_sqlite_says(tmp_path, monkeypatch, error_code) -> None:
    """It says so itself only if it can write its log; the folder is named, by each way that an error takes."""
    error = sqlite3.OperationalError("unable to open database file")
    error.sqlite_errorcode = error_code
    async with await Database.connect(migrated_sqlite(tmp_path / "f.sqlite")) as db:
        monkeypatch.setattr(foltr.storage.engines.shutil, "disk_usage", lambda _: SimpleNamespace(free=4096))
        said = str(db.unavailable(error))
        assert f"disk full at {tmp_path}. Free space there" in said
        async with db.engine.connect() as connection:
            await connection.execute(text("PRAGMA max_page_count = 1"))
            with pytest.raises(DBAPIError) as caught:
                await connection.execute(text("CREATE TABLE filler AS SELECT zeroblob(1000000)"))
        assert str(caught.value.orig) == f"disk full at {tmp_path}"


async def test_a_unix_socket_reaches_postgresql(postgres_server: PostgresServer) -> None:
    """The query form of the URL connects without TCP."""
    async with await Database.connect(postgres_server.socket_url("postgres")) as db, db.reading() as connection:
        assert await connection.scalar(text("SELECT inet_server_addr()")) is None


async def test_sqlite_is_durable_and_checks_foreign_keys(tmp_path) -> None:
    """WAL, a synchronous commit, foreign keys and a bounded wait, on every connection."""
    db = await Database.connect(f"sqlite:///{tmp_path}/foltr.sqlite")
    async with db, db.reading() as first, db.reading() as second:
        for connection in (first, second):
            found = [
                await connection.scalar(text(f"PRAGMA {name}"))
                for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
            ]
            assert found == ["wal", 2, 1, 5000]


async def test_who_is_cancelled_while_it_connects_leaves_no_connection_open(tmp_path, monkeypatch) -> None:
    """At whichever of its statements: a pool that nobody has any more is closed."""
    url = migrated_sqlite(tmp_path / "f.sqlite")
    execute = aiosqlite.core.Connection._execute  # noqa: SLF001 (all that a connection waits for goes through it)
    at, counted = 0, itertools.count()

    async def cancelled(connection, *what, **how):
        if next(counted) == at:
            asyncio.current_task().cancel()
        return await execute(connection, *what, **how)

    monkeypatch.setattr(aiosqlite.core.Connection, "_execute", cancelled)
    # What other tests have left is looked through once, and not at each step.
    gc.collect()
    gc.freeze()
    left_open: list[str] = []
    for at in itertools.count():
        counted = itertools.count()
        connecting = asyncio.create_task(Database.connect(url))
        await asyncio.wait([connecting])
        if not connecting.cancelled():
            monkeypatch.undo()
            await connecting.result().close()
            break
        del connecting
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always", ResourceWarning)
            gc.collect()
        left_open += [f"{at}: {each.message}" for each in warned]
    assert at > 5
    assert not left_open


async def test_every_wait_on_postgresql_is_bounded(postgres_server: PostgresServer) -> None:
    """The server itself gives up on a long statement, a long lock and an abandoned transaction."""
    async with await Database.connect(postgres_server.url("postgres")) as db, db.reading() as connection:
        for setting in ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout"):
            assert await connection.scalar(text(f"SELECT current_setting('{setting}')")) not in ("0", None)


async def names(db: Database) -> list[str]:
    async with db.reading() as connection:
        return list(await connection.scalars(select(federations.c.name).order_by(federations.c.name)))


async def test_a_reading_sees_one_snapshot_beside_the_writer(migrated: Database) -> None:
    """A reader neither waits for the writer nor sees the world change between two statements."""
    async with migrated.reading() as reader:
        assert (await reader.execute(select(federations))).all() == []
        await _store_federation(migrated, "web")
        assert (await reader.execute(select(federations))).all() == []
    # What a constraint refuses is refused again, and leaves nothing.
    with pytest.raises(DBAPIError) as caught:
        await _store_federation(migrated, "")
    assert not is_transient(caught.value)
    assert await names(migrated) == ["web"]


async def test_all_readings_within_a_snapshot_see_the_same(migrated: Database, tmp_path) -> None:
    """And those before, after, of other tasks and of other databases see what is committed."""
    go_on = asyncio.Event()

    async def change() -> list[str]:
        await go_on.wait()
        await _store_federation(migrated, "web")
        return await names(migrated)

    changing = asyncio.create_task(change())
    async with await Database.connect(migrated_sqlite(tmp_path / "other.sqlite")) as other:
        await _store_federation(other, "elsewhere")
        async with migrated.snapshot():
            assert await names(migrated) == []
            go_on.set()
            assert await changing == ["web"]
            assert (await names(migrated), await names(other)) == ([], ["elsewhere"])
    assert await names(migrated) == ["web"]


async def test_moments_come_back_aware_and_in_utc(migrated: Database) -> None:
    """Whatever zone goes in, the same instant in UTC comes out; a naive moment is refused."""
    paris_noon = datetime(2026, 7, 1, 12, 0, 0, 5, tzinfo=timezone(timedelta(hours=2)))
    async with migrated.transaction() as connection:
        await connection.execute(insert(federations), ROW | {"created_at": paris_noon})
        found = await connection.scalar(select(federations.c.created_at))
        assert found == paris_noon
        assert found.isoformat() == "2026-07-01T10:00:00.000005+00:00"
        with pytest.raises(StatementError, match="no time zone"):
            await connection.execute(insert(federations), ROW | {"created_at": datetime(2026, 1, 1)})  # noqa: DTZ001


async def test_a_locked_sqlite_file_is_transient(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process that holds the write lock makes us wait, then say so; we may try again."""
    monkeypatch.setitem(foltr.storage.engines._SQLITE_OPTIONS, "timeout", 0.1)  # noqa: SLF001 (seconds show no more)
    path = tmp_path / "foltr.sqlite"
    async with await Database.connect(f"sqlite:///{path}") as db:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(UnavailableError, match="write lock") as caught:
            async with db.transaction():
                pass
        assert is_transient(caught.value)
        other.close()
        async with db.transaction():
            pass


async def test_a_moved_sqlite_file_takes_no_more_writes(tmp_path) -> None:
    """They would be lost. Once the file is back they go on; another one in its place is for a process that begins."""
    path, away = tmp_path / "foltr.sqlite", tmp_path / "away.sqlite"
    async with await Database.connect(migrated_sqlite(path)) as database, database.separate_pool() as other:
        writes = (partial(_store_federation, database), partial(database.run, _store_federation))

        async def refused(what: str) -> None:
            for write in (*writes, partial(_store_federation, other)):
                with pytest.raises(DatabaseGoneError, match=what) as told:
                    await write("mail")
                assert not is_transient(told.value)

        await writes[0]("web")
        path.rename(away)
        await refused("move it back")
        assert path.with_name("foltr.sqlite-wal").stat().st_size > 0
        with pytest.raises(DatabaseGoneError, match="move it back"):
            await Database.connect(f"sqlite:///{path}")
        assert not path.exists()
        for ending in ("-wal", "-shm"):
            path.with_name(path.name + ending).rename(away.with_name(away.name + ending))
        migrated_sqlite(path)
        await refused("another file")
        await database.follow_file()
        await writes[1]("web")
        for ending in ("", "-wal", "-shm"):
            path.with_name(path.name + ending).unlink()
            away.with_name(away.name + ending).rename(path.with_name(path.name + ending))
        with pytest.raises(DatabaseGoneError, match="another file"):
            await writes[1]("news")
        await database.follow_file()
        await writes[1]("news")


async def _store_federation(database: Database, name: str) -> None:
    async with database.transaction() as connection:
        await connection.execute(insert(federations).values(ROW | {"name": name}))


async def test_a_killed_postgresql_is_transient_and_comes_back() -> None:
    """The same Database works again, without being told, once the server is back."""
    server = PostgresServer()
    try:
        server.start()
        async with await Database.connect(server.url("postgres")) as db:

            async def lose_the_server() -> None:
                async with db.transaction() as connection:
                    await asyncio.to_thread(server.kill)
                    await connection.execute(text("SELECT 1"))

            with pytest.raises(DBAPIError) as caught:
                await lose_the_server()
            assert is_transient(caught.value)
            with pytest.raises(UnavailableError) as refused:
                async with db.transaction():
                    pass
            assert is_transient(refused.value)
            await asyncio.to_thread(server.start)
            async with db.transaction() as connection:
                assert await connection.scalar(text("SELECT 1")) == 1
    finally:
        server.remove()


async def is_at(db: Database, statement: str) -> bool:
    """Whether a leader's newest statement is this one."""
    asked = text("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'foltr leader' AND query = :query")
    async with db.reading() as connection:
        return bool(await connection.scalar(asked, {"query": statement}))


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
@pytest.mark.parametrize("statement", ["SELECT 1", f"SELECT pg_sleep({PATIENCE_S})"], ids=["between two", "in one"])
async def test_a_session_that_was_ended_is_no_absent_server(database_url: str, statement: str) -> None:
    """A standby that takes over ends a leader's sessions: its database runs, and nobody has to start it."""
    async with Database(database_url, process="leader") as db, Database(database_url) as other:

        async def lose_the_session() -> None:
            async with db.transaction() as connection:
                working = asyncio.create_task(connection.scalar(text(statement)))
                await until(lambda: is_at(other, statement))
                assert await end_sessions(other, "leader") == 1
                await working
                async with asyncio.timeout(PATIENCE_S):
                    while True:
                        await connection.execute(text("SELECT 1"))

        with pytest.raises(DBAPIError) as caught:
            await lose_the_session()
        assert is_transient(caught.value)
        said = str(db.unavailable(caught.value))
        assert "PostgreSQL ended this session" in said
        assert "Start PostgreSQL" not in said


async def test_a_schema_is_changed_without_foreign_keys_and_they_are_back_after_it(database_url: str) -> None:
    """A table that others refer to is made anew; rows that refer to nothing at the end undo the whole change."""
    async with await Database.connect(database_url) as db:
        async with db.schema_transaction() as connection:
            for statement in ("CREATE TABLE a (x INTEGER PRIMARY KEY)", "CREATE TABLE b (x INTEGER REFERENCES a (x))"):
                await connection.execute(text(statement))
            for statement in ("INSERT INTO a VALUES (1)", "INSERT INTO b VALUES (1)"):
                await connection.execute(text(statement))
        if db.dialect == "sqlite":
            rebuilt = ("CREATE TABLE c (x INTEGER PRIMARY KEY)", "DROP TABLE a", "ALTER TABLE c RENAME TO a")
            with pytest.raises(RuntimeError, match="rows of b refer to missing rows"):
                await _rebuild(db, *rebuilt)
            await _rebuild(db, rebuilt[0], "INSERT INTO c SELECT * FROM a", *rebuilt[1:])
        with pytest.raises(IntegrityError):
            async with db.transaction() as connection:
                await connection.execute(text("DELETE FROM a"))


async def _rebuild(db: Database, *statements: str) -> None:
    async with db.schema_transaction() as connection:
        for statement in statements:
            await connection.execute(text(statement))
