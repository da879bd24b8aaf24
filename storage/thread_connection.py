"""The connection of SQLite's thread for transactions: one that stays open, for one transaction after the other.

It has the methods of an `AsyncConnection` that functions in that thread use. Constant statements, many rows at once,
and where a transaction begins and ends, are sqlite3's own; every other statement goes through SQLAlchemy, on the same
connection and in the same transaction.
"""

import sqlite3
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from sqlalchemy import Dialect, Executable
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from storage.constants import Answer, Compiled, compile_constant, is_constant
from storage.engines import BEGUN

_NOTHING: Mapping[str, Any] = {}


class ThreadConnection:
    """What functions in the thread take for an `AsyncConnection`."""

    def __init__(self, by_sqlalchemy: AsyncConnection, driver: sqlite3.Connection) -> None:
        self._by_sqlalchemy = by_sqlalchemy
        self._driver = driver
        self._compiled: dict[tuple[int, tuple[str, ...]], Compiled] = {}

    @property
    def dialect(self) -> Dialect:
        """SQLite, as SQLAlchemy knows it."""
        return self._by_sqlalchemy.dialect

    async def execute(self, statement: Executable, parameters: Any = None) -> Any:
        """Execute a statement with its parameters by name, or with a list of such."""
        if not is_constant(statement) or isinstance(parameters, list):
            return await self._by_sqlalchemy.execute(statement, parameters)
        given = _NOTHING if parameters is None else parameters
        key = id(statement), tuple(given)
        made = self._compiled.get(key)
        if made is None:
            made = self._compiled[key] = compile_constant(statement, self.dialect, key[1])
        rows, rowcount = self._told(made.text, self._fetch, made.text, made.values_of(given))
        return Answer(made.rows_of(rows), made.columns, rowcount)

    async def scalar(self, statement: Executable, parameters: Any = None) -> Any:
        """Return the first value of the first row; None where there is none."""
        return (await self.execute(statement, parameters)).scalar()

    async def scalars(self, statement: Executable, parameters: Any = None) -> Any:
        """Return the first value of each row."""
        return (await self.execute(statement, parameters)).scalars()

    async def exec_driver_sql(self, statement: str, rows: Sequence[Sequence[Any]]) -> None:
        """Execute a statement for each of many rows."""
        self._told(statement, self._driver.executemany, statement, rows)

    def begin(self, how: str) -> None:
        """Begin a transaction: ``BEGIN`` or ``BEGIN IMMEDIATE``."""
        self._told(how, self._driver.execute, how)

    async def commit(self) -> None:
        """Commit it; what cannot be committed is rolled back."""
        try:
            if self._by_sqlalchemy.in_transaction():
                await self._by_sqlalchemy.commit()
            else:
                self._told("COMMIT", self._driver.commit)
        except BaseException:
            await self.roll_back()
            raise

    async def roll_back(self) -> None:
        """Roll it back, if it is not over."""
        if self._by_sqlalchemy.in_transaction():
            await self._by_sqlalchemy.rollback()
        if self._driver.in_transaction:
            self._told("ROLLBACK", self._driver.rollback)

    async def close(self) -> None:
        """Close it; a transaction that has begun is rolled back."""
        await self._by_sqlalchemy.close()

    def _fetch(self, statement: str, values: Sequence[Any]) -> tuple[list[tuple[Any, ...]], int]:
        cursor = self._driver.execute(statement, values)
        rows = cursor.fetchall() if cursor.description else []
        return rows, cursor.rowcount

    def _told(self, statement: str, do: Callable[..., Any], *arguments: Any) -> Any:
        """Do it; the driver's errors are raised as SQLAlchemy raises them, and tell nobody's values."""
        try:
            return do(*arguments)
        except sqlite3.Error as error:
            told = DBAPIError.instance(
                statement, None, error, sqlite3.Error, hide_parameters=True, dialect=self.dialect
            )
            raise told from error


class ThreadConnections:
    """Gives the connection for one transaction after the other, in the thread that it is used in.

    Args:
        engine: of a driver without threads (`storage.sqlite_driver`).
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine.execution_options(**{BEGUN: True})
        self._open: ThreadConnection | None = None

    @asynccontextmanager
    async def begin(self, how: str, refused: Callable[[Exception], Exception]) -> AsyncIterator[AsyncConnection]:
        """Begin a transaction that is committed when the block ends, and rolled back when it raises.

        Args:
            refused: makes the error that is raised of what keeps it from beginning.
        """
        try:
            connection = self._open = self._open or await self._connect()
            connection.begin(how)
        except Exception as error:
            raise refused(error) from error
        try:
            yield cast("AsyncConnection", connection)
        except BaseException:
            await connection.roll_back()
            raise
        await connection.commit()

    async def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._open = self._open, None
        if connection is not None:
            await connection.close()

    async def _connect(self) -> ThreadConnection:
        by_sqlalchemy = await self._engine.connect()
        here: Any = (await by_sqlalchemy.get_raw_connection()).driver_connection
        return ThreadConnection(by_sqlalchemy, here.driver)
