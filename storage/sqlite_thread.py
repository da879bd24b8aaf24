"""A thread with one connection to SQLite, which makes transactions one after the other.

A driver for an event loop visits a thread of its own for each statement, and wakes the loop each time. A transaction of
eight statements takes three times as long that way, so a frequent one is made in this thread as a whole
(`foltr.storage.database.Database.run`). Its function is the same as in the event loop; the database answers it at once.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager
from typing import Any, TypeVar, cast

from sqlalchemy import URL, Connection, Dialect, Executable
from sqlalchemy.ext.asyncio import AsyncConnection

from foltr.storage.engines import WRITES, create_sqlite_engine

T = TypeVar("T")


class SqliteThread:
    """The thread; it and its connection begin with the first transaction."""

    def __init__(self, url: URL) -> None:
        self._executor = ThreadPoolExecutor(1, "foltr-sqlite")
        # A loop of its own, for what a transaction waits for beside its database: a new data key on the disk.
        self._runner = asyncio.Runner()
        self._engine = create_sqlite_engine(url)
        self._writer = self._engine.execution_options(**{WRITES: True})

    async def run(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what a coroutine returns that is made and awaited in the thread.

        A caller that is cancelled hears no answer: what has begun is done to its end.
        """
        return await asyncio.get_running_loop().run_in_executor(self._executor, lambda: self._runner.run(make()))

    @asynccontextmanager
    async def begin(
        self, *, writes: bool, unavailable: Callable[[Exception], Exception]
    ) -> AsyncIterator[AsyncConnection]:
        """Begin a transaction, in the thread: committed when the block ends, rolled back when it raises.

        Args:
            unavailable: makes the error to raise if the transaction cannot begin.
        """
        with ExitStack() as stack:
            try:
                connection = stack.enter_context((self._writer if writes else self._engine).begin())
            except Exception as error:
                raise unavailable(error) from error
            yield cast("AsyncConnection", _ThreadConnection(connection))

    async def close(self) -> None:
        """Finish all transactions that were asked for, close the connection and end the thread."""
        self._executor.submit(self._engine.dispose)
        self._executor.submit(self._runner.close)
        await asyncio.to_thread(self._executor.shutdown)


class _ThreadConnection:
    """The methods of an `AsyncConnection` that transactions use; none of them waits."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    @property
    def dialect(self) -> Dialect:
        return self._connection.dialect

    async def execute(self, statement: Executable, parameters: Any = None) -> Any:
        return self._connection.execute(statement, parameters)

    async def scalar(self, statement: Executable, parameters: Any = None) -> Any:
        return self._connection.scalar(statement, parameters)

    async def scalars(self, statement: Executable, parameters: Any = None) -> Any:
        return self._connection.scalars(statement, parameters)

    async def exec_driver_sql(self, statement: str, rows: Any) -> Any:
        return self._connection.exec_driver_sql(statement, rows)
