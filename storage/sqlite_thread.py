"""A thread with one connection to SQLite, which makes transactions one after another.

A driver for an event loop hands each statement to a thread, and wakes the loop each time; a transaction of eight
statements takes three times as long that way. So a frequent transaction runs in this thread as a whole
(`foltr.storage.database.Database.run`). Its function is the same as in the event loop; the database answers it at once.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

from sqlalchemy import URL, Connection, Dialect, Executable
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from foltr.storage.engines import create_sqlite_engine

T = TypeVar("T")


class SqliteThread:
    """The thread; it and its connection start with the first transaction."""

    def __init__(self, url: URL) -> None:
        self._executor = ThreadPoolExecutor(1, "foltr-sqlite")
        self._engine = create_sqlite_engine(url)
        self._open: _ThreadConnection | None = None

    async def run(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return the result of a coroutine that is made and awaited in the thread.

        If the caller is cancelled, a coroutine that has begun still runs to its end.
        """
        return await asyncio.get_running_loop().run_in_executor(self._executor, _run_to_its_end, make)

    @asynccontextmanager
    async def begin(
        self, *, writes: bool, unavailable: Callable[[Exception], Exception]
    ) -> AsyncIterator[AsyncConnection]:
        """Begin a transaction, in the thread: committed when the block ends, rolled back when it raises.

        Args:
            unavailable: makes the error to raise if the transaction cannot begin.
        """
        try:
            connection = self._open = self._open or _ThreadConnection(self._engine.connect())
            connection.begin(writes=writes)
        except Exception as error:
            raise unavailable(error) from error
        try:
            yield cast("AsyncConnection", connection)
            connection.commit()
        except BaseException:
            connection.roll_back()
            raise

    async def close(self) -> None:
        """Finish all requested transactions, close the connection and end the thread."""
        self._executor.submit(self._disconnect)
        await asyncio.to_thread(self._executor.shutdown)

    def _disconnect(self) -> None:
        if self._open is not None:
            self._open.close()
        self._engine.dispose()


def _run_to_its_end(make: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine that awaits only `_ThreadConnection`, which never waits.

    Running an event loop for each transaction takes as long as a short transaction.
    """
    coroutine = make()
    try:
        coroutine.send(None)
    except StopIteration as end:
        return cast("T", end.value)
    coroutine.close()
    raise RuntimeError(f"{coroutine} waits for something else than its database")


class _ThreadConnection:
    """The methods of an `AsyncConnection` that transactions use; none of them waits.

    Begin, commit and prepared statements go directly to the driver: SQLAlchemy takes several times as long.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._driver = cast("sqlite3.Connection", connection.connection.dbapi_connection)

    @property
    def dialect(self) -> Dialect:
        return self._connection.dialect

    async def execute(self, statement: Executable, parameters: Any = None) -> Any:
        return self._connection.execute(statement, parameters)

    async def scalar(self, statement: Executable, parameters: Any = None) -> Any:
        return self._connection.scalar(statement, parameters)

    async def scalars(self, statement: Executable, parameters: Any = None) -> Any:
        return self._connection.scalars(statement, parameters)

    async def exec_driver_sql(self, statement: str, values: Any) -> sqlite3.Cursor:
        execute = self._driver.executemany if isinstance(values, list) else self._driver.execute
        return self._ask(statement, execute, statement, values)

    def begin(self, *, writes: bool) -> None:
        begin = "BEGIN IMMEDIATE" if writes else "BEGIN"
        self._ask(begin, self._driver.execute, begin)

    def commit(self) -> None:
        self._connection.commit()  # SQLAlchemy's transaction, in case it began one
        self._ask("COMMIT", self._driver.commit)

    def roll_back(self) -> None:
        try:
            self._connection.rollback()
        finally:
            self._driver.rollback()

    def close(self) -> None:
        self._connection.close()

    def _ask(self, statement: str, ask: Callable[..., T], *arguments: Any) -> T:
        """Call the driver; raise its errors as SQLAlchemy does, without the values."""
        try:
            return ask(*arguments)
        except sqlite3.Error as error:
            raise DBAPIError.instance(
                statement, None, error, sqlite3.Error, hide_parameters=True, dialect=self.dialect
            ) from error
