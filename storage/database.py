"""One database, SQLite or PostgreSQL: how a transaction begins, and what may be retried."""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Self, TypeVar, cast

from sqlalchemy import URL, Executable, Table, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from foltr.core.errors import UnavailableError
from foltr.storage.engines import DISK_FULL, IDLE_TIMEOUT_S, REBUILDS, WRITES, create_engine, name_full_disk
from foltr.storage.keys import KeyStore
from foltr.storage.rewriting import rewrite_postgres, rewrite_sqlite
from foltr.storage.sqlite_file import FileId, identify, require_no_orphan, require_same
from foltr.storage.sqlite_thread import SqliteThread
from foltr.storage.urls import in_words, read_url

Record = TypeVar("Record")
P = ParamSpec("P")
T = TypeVar("T")

# For rewriting a whole database or changing a large table.
VACUUM_TIMEOUT_S: Final = 3600

# Classes of SQLSTATE after which the same transaction may succeed: connection lost, serialization or deadlock, out of
# resources, lock not available, statement cancelled, server shutting down or starting, idle timeout.
_TRANSIENT_SQLSTATES = ("08", "25P03", "40", "53", "55P03", "57")
_TRANSIENT_SQLITE = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL}

# The connection of the current `Database.snapshot`, and its database.
_SNAPSHOT: "ContextVar[tuple[Database | None, AsyncConnection | None]]" = ContextVar("snapshot", default=(None, None))


class Database:
    """A pool of connections to one database. Make it with :meth:`connect`, end it with :meth:`close`.

    Attributes:
        engine: the SQLAlchemy engine.
        dialect: ``sqlite`` or ``postgresql``.
        location: its address for messages, without a password.
        keys: the data keys that encrypt updates; None stores them as sent, and cannot read encrypted ones.
        process: the name of this process, so that another one can end its sessions; None: unnamed.
    """

    def __init__(
        self,
        url: str | URL,
        keys: KeyStore | None = None,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        process: str | None = None,
    ) -> None:
        """Check the URL and load the driver without connecting."""
        self.keys = keys
        self.process = process
        parsed = read_url(url) if isinstance(url, str) else url
        self.dialect = parsed.get_backend_name()
        self.location, self.path = in_words(parsed), parsed.database
        self._idle_timeout_s = idle_timeout_s
        self.engine = create_engine(parsed, idle_timeout_s=idle_timeout_s, process=process)
        self._writer = self.engine.execution_options(**{WRITES: True})
        self._reader = self.engine
        self._file: FileId | None = None  # the one that is open, by device and inode
        self._thread: SqliteThread | None = None
        if self.dialect == "postgresql":
            # One snapshot for all statements of a reading, which SQLite gives anyway.
            self._reader = self.engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)

    @classmethod
    async def connect(
        cls,
        url: str,
        retry_for_s: float = 0,
        keys: KeyStore | None = None,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        process: str | None = None,
    ) -> Self:
        """Open the database, trying again for ``retry_for_s`` seconds while it cannot be reached.

        Args:
            idle_timeout_s: PostgreSQL ends a transaction that is idle for so long, and releases its locks.

        Raises:
            SettingsError: ``url`` is not one of the allowed forms.
            UnavailableError: the database cannot be reached, or its driver is not installed.
        """
        database = cls(url, keys, idle_timeout_s, process)
        try:
            if database.dialect == "sqlite":
                require_no_orphan(database.path, database.location)
                database._require_file()
                database._file = identify(database.path, database.location)
            await database._wait_until_it_answers(retry_for_s)
        except BaseException:
            # Also when cancelled: the pool may have a connection by then, and nobody else has the pool.
            await database.close()
            raise
        return database

    def separate_pool(self) -> "Database":
        """Make another pool, without keys, for another event loop. It connects when used."""
        other = Database(self.engine.url, None, self._idle_timeout_s, self.process)
        other._file = self._file
        return other

    async def _wait_until_it_answers(self, retry_for_s: float) -> None:
        give_up_at = time.monotonic() + retry_for_s
        pause_s = 0.1
        while True:
            try:
                async with self.reading() as connection:
                    await connection.execute(text("SELECT 1"))
            except UnavailableError as error:
                if not is_transient(error) or time.monotonic() + pause_s > give_up_at:
                    raise
            else:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, 2.0)

    def transaction(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """Write in one transaction: committed when the block ends, rolled back when it raises.

        Raises:
            DatabaseGoneError: the SQLite file was moved, deleted or replaced: nobody would find what is written.
            UnavailableError: the database cannot be reached.
        """
        return self._begin(self._writer)

    def reading(self) -> AbstractAsyncContextManager[AsyncConnection]:
        """Read from one snapshot, without waiting for the writer."""
        of, connection = _SNAPSHOT.get()
        if of is self and connection is not None:
            return nullcontext(connection)
        return self._begin(self._reader)

    async def fetch_all(self, record: Callable[..., Record], statement: Executable) -> list[Record]:
        """Read each row of the answer as a record, in a separate transaction; see `fetch_all`."""
        async with self.reading() as connection:
            return await fetch_all(connection, record, statement)

    async def fetch_one(self, record: Callable[..., Record], statement: Executable) -> Record | None:
        """Read the only row of the answer; see `fetch_one`."""
        async with self.reading() as connection:
            return await fetch_one(connection, record, statement)

    async def run(
        self,
        transaction: Callable[Concatenate["Database", P], Coroutine[Any, Any, T]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Call a function with a database on which it makes its transaction; return its result.

        On SQLite transactions run one after another in a dedicated thread (`foltr.storage.sqlite_thread`): use it for
        short, frequent ones. The function begins one transaction at a time.
        """
        if self.dialect != "sqlite":
            return await transaction(self, *args, **kwargs)
        self._thread = self._thread or SqliteThread(self.engine.url)
        return await self._thread.run(partial(transaction, _InThread(self, self._thread), *args, **kwargs))

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[None]:
        """Have every `reading` within the block read from the same snapshot, one after another.

        The block must not start tasks that read: two of them would share a connection.
        """
        async with self._begin(self._reader) as connection:
            before = _SNAPSHOT.set((self, connection))
            try:
                yield
            finally:
                _SNAPSHOT.reset(before)

    @asynccontextmanager
    async def schema_transaction(self) -> AsyncIterator[AsyncConnection]:
        """Like `transaction` but to change the schema: SQLite checks foreign keys only at its end.

        SQLite changes a table's constraints by making the table again, and would refuse to drop the old one that others
        refer to. A transaction cannot defer that check. In PostgreSQL a statement may take as long as a large table
        needs; its lock timeout is as usual, since all later sessions would wait too.
        """
        engine = self.engine
        try:
            if self.dialect == "postgresql":
                engine = create_engine(self.engine.url, statement_timeout_s=VACUUM_TIMEOUT_S)
            options = {WRITES: True, REBUILDS: True}
            async with self._begin(engine.execution_options(**options)) as connection:
                yield connection
                if self.dialect == "sqlite":
                    broken = (await connection.execute(text("PRAGMA foreign_key_check"))).first()
                    if broken is not None:
                        raise RuntimeError(f"{self.location}: rows of {broken[0]} refer to missing rows")
        finally:
            # Connections without foreign keys, or with such long timeouts, must not stay in a pool.
            await engine.dispose()

    async def purge(self, *tables: str) -> bool:
        """Erase every byte of rows deleted from small tables, in the file and in SQLite's log.

        Returns:
            False if others are in the way, such as a reader of an old state; try again later.

        Raises:
            UnavailableError: for example, the disk has no room for a second copy of the tables.
        """
        self.require_same_file()
        try:
            if self.dialect == "sqlite":
                return await asyncio.to_thread(rewrite_sqlite, self.engine.url.database or "", tables)
            async with self.engine.connect() as connection:
                return await rewrite_postgres(connection, tables, VACUUM_TIMEOUT_S)
        except Exception as error:
            raise self.unavailable(error) from error

    async def vacuum(self) -> bool:
        """Rewrite the whole database, which erases every deleted byte and frees space.

        Others wait meanwhile: 15 s a gigabyte for SQLite.

        Returns:
            False if another process holds the database for the whole timeout; try again.

        Raises:
            UnavailableError: for example, the disk has no room for a second copy.
        """
        self.require_same_file()
        async with self.engine.connect() as connection:
            driver: Any = (await connection.get_raw_connection()).driver_connection
            if self.dialect == "postgresql":
                try:
                    await driver.execute("SET statement_timeout = 0")
                    await driver.execute("VACUUM (FULL)", timeout=VACUUM_TIMEOUT_S)
                    await driver.execute("RESET statement_timeout")
                except Exception as error:
                    await connection.invalidate()
                    raise self.unavailable(error) from error
                return True
            try:
                await driver.execute("VACUUM")
                [(busy, _, _)] = await driver.execute_fetchall("PRAGMA wal_checkpoint(TRUNCATE)")
            except asyncio.CancelledError:
                # Otherwise its thread runs to the end, and returning the connection waits for it.
                await driver.interrupt()
                raise
            except sqlite3.OperationalError as error:
                if _sqlite_code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                    return False
                raise self.unavailable(error) from error
            return not busy

    def require_same_file(self) -> None:
        """Check that the open SQLite file is still the one that the URL names. Raises as `require_same`.

        Before each transaction, of readers too: a new connection would make an empty file there, and SQLite would then
        delete the write-ahead log of the file that was moved.
        """
        if self._file is not None:
            require_same(self._file, self.path, self.location)

    async def follow_file(self) -> None:
        """Reopen the SQLite file if a restore has replaced it; the open file would still read as before.

        For processes that keep reading, or that write without remembering. The check must not create a file.

        Raises:
            DatabaseGoneError: the file does not exist.
        """
        if self.dialect == "sqlite":
            before, self._file = self._file, identify(self.path, self.location)
            if before not in (None, self._file):
                await self.close()
                if self.keys is not None:
                    self.keys.clear_cache()

    async def close(self) -> None:
        """Close every connection."""
        try:
            thread, self._thread = self._thread, None
            if thread is not None:
                await thread.close()
        finally:
            await self.engine.dispose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @asynccontextmanager
    async def _begin(self, engine: AsyncEngine) -> AsyncIterator[AsyncConnection]:
        self.require_same_file()
        async with AsyncExitStack() as stack:
            try:
                connection = await stack.enter_async_context(engine.connect())
                await stack.enter_async_context(connection.begin())
            except Exception as error:
                raise self.unavailable(error) from error
            yield connection

    def _require_file(self) -> None:
        # When aiosqlite cannot open the file it abandons its thread, which logs a traceback if the event loop ends
        # first. So a file that cannot be opened must not get that far.
        try:
            sqlite3.connect(self.engine.url.database or "").close()
        except sqlite3.OperationalError as error:
            raise self.unavailable(error) from error

    def unavailable(self, error: Exception) -> UnavailableError:
        """Return a one-line error: which database failed, why, and what to do, without the statement and its values."""
        if isinstance(error, UnavailableError):
            return error
        if self.dialect == "sqlite":
            name_full_disk(error.orig or error if isinstance(error, DBAPIError) else error, self.path)
        return UnavailableError(f"{self.location} cannot be used: {_cause_of(error)}. {self._advice(error)}")

    def _advice(self, error: Exception) -> str:
        if self.dialect == "sqlite":
            if _cause_of(error).startswith(DISK_FULL):
                return "Free space there"
            if is_transient(error):
                return "Another process holds its write lock: stop that process"
            return "Check that the folder in db_url exists, may be written to, and that the file is SQLite's"
        sqlstate = _sqlstate(error)
        if sqlstate.startswith("28"):
            return "Check the user and the password in db_url"
        if sqlstate == "3D000":
            return f"Create the database first: createdb {self.engine.url.database}"
        if sqlstate == "53100":
            return "Free space on the server's disk"
        if sqlstate in ("55P03", "57014"):
            return "Another session holds a lock for too long: find it in pg_stat_activity"
        if sqlstate == "57P01" or (isinstance(error, DBAPIError) and error.connection_invalidated):
            return (
                "PostgreSQL ended this session: it restarts, the network failed, or a federator that took over ended "
                "it. See who leads with `foltr status`"
            )
        return (
            "Start PostgreSQL (for example `docker compose up -d postgres` or `pg_ctl start`) "
            "and check the host and the port in db_url"
        )


class _InThread(Database):
    """A SQLite database for a function that runs in its thread."""

    def __init__(self, database: Database, thread: SqliteThread) -> None:
        self.keys, self.dialect, self.location = database.keys, database.dialect, database.location
        self.path = database.path
        self._of = database
        self._begin_in_thread = partial(thread.begin, unavailable=self.unavailable)

    def transaction(self) -> AbstractAsyncContextManager[AsyncConnection]:
        self._of.require_same_file()
        return self._begin_in_thread(writes=True)

    def reading(self) -> AbstractAsyncContextManager[AsyncConnection]:
        self._of.require_same_file()
        return self._begin_in_thread(writes=False)


def is_transient(error: BaseException) -> bool:
    """Tell whether running the same transaction again may succeed; every function of storage is safe to retry."""
    if isinstance(error, UnavailableError):
        return error.__cause__ is not None and is_transient(error.__cause__)
    if isinstance(error, DBAPIError):
        # By the second asyncpg reports that the server ended the session just before the statement.
        cause = type(getattr(error.orig, "__cause__", None)).__name__
        if error.connection_invalidated or cause == "InternalClientError":
            return True
        if isinstance(error.orig, sqlite3.Error):
            return _sqlite_code(error) in _TRANSIENT_SQLITE
    if sqlstate := _sqlstate(error):
        return sqlstate.startswith(_TRANSIENT_SQLSTATES)
    return isinstance(error, OSError | PoolTimeoutError)


def is_lock_timeout(error: BaseException) -> bool:
    """Tell whether a statement gave up because another session holds a lock that it needs."""
    return _sqlstate(error) == "55P03"


def is_cancelled(error: BaseException) -> bool:
    """Tell whether PostgreSQL ended a statement because of its time limit."""
    return _sqlstate(error) == "57014"


def lacks_right(error: BaseException) -> bool:
    """Tell whether the database's user lacks a right that a statement needs."""
    return _sqlstate(error) == "42501"


def insert_into(connection: AsyncConnection, table: Table) -> sqlite.Insert | postgresql.Insert:
    """Make an INSERT that can carry ON CONFLICT, in the dialect of the connection."""
    return sqlite.insert(table) if connection.dialect.name == "sqlite" else postgresql.insert(table)


async def fetch_all(connection: AsyncConnection, record: Callable[..., Record], statement: Executable) -> list[Record]:
    """Return each row of the answer as a record, its fields by the names of the columns."""
    answer = await connection.execute(statement)
    # SQLAlchemy's mapping looks up each name for each row, which takes as long as reading the row.
    names = tuple(answer.keys())
    values = [dict(zip(names, row, strict=True)) for row in answer]
    return cast("list[Record]", values) if record is dict else [record(**each) for each in values]


async def fetch_one(connection: AsyncConnection, record: Callable[..., Record], statement: Executable) -> Record | None:
    """Return the only row of the answer as a record, or None."""
    answer = await connection.execute(statement)
    names = tuple(answer.keys())
    row = answer.one_or_none()
    return None if row is None else record(**dict(zip(names, row, strict=True)))


def _cause_of(error: BaseException) -> str:
    """Return the driver's error text in one line."""
    cause = getattr(error, "orig", None) or error
    # SQLAlchemy puts a class name before asyncpg's text.
    if getattr(cause, "sqlstate", None) and cause.__cause__ is not None:
        cause = cause.__cause__
    return next(iter(str(cause).splitlines()), "") or type(error).__name__


def _sqlite_code(error: BaseException) -> int:
    """Find the primary code: the low byte. The rest tells, for example, which kind of busy."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    return int(getattr(cause, "sqlite_errorcode", 0)) & 0xFF


def _sqlstate(error: BaseException) -> str:
    cause = error.orig if isinstance(error, DBAPIError) else error
    return getattr(cause, "sqlstate", None) or ""
