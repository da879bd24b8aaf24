"""SQLite in a thread of its own, as aiosqlite has it, with one visit to that thread for each statement.

SQLAlchemy's adapter of aiosqlite makes a cursor, executes, fetches and closes in four visits. Each wakes a thread and
then the event loop, which costs more than a small statement does. Whoever is in such a thread already, with all of a
transaction (`storage.transaction_thread`), visits none.
"""
# ruff: noqa: SLF001 (SQLAlchemy's adapters are made to be derived from, and name all of theirs so)

import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import aiosqlite
from sqlalchemy.dialects.sqlite.aiosqlite import (
    AsyncAdapt_aiosqlite_connection,
    AsyncAdapt_aiosqlite_cursor,
    AsyncAdapt_aiosqlite_dbapi,
)
from sqlalchemy.util import immutabledict


@dataclass(frozen=True, slots=True)
class _Answer:
    """What a statement has come to; it has the attributes of a cursor that SQLAlchemy asks for."""

    description: Any = None
    rowcount: int = -1
    lastrowid: int | None = None
    arraysize: int = 1

    def close(self) -> None:
        """Do nothing: the cursor was closed in its thread."""


class _Cursor(AsyncAdapt_aiosqlite_cursor):
    __slots__ = ()

    _awaitable_cursor_close = False

    def __init__(self, adapt_connection: Any) -> None:
        self._adapt_connection = adapt_connection
        self._connection = adapt_connection._connection
        self._cursor: Any = _Answer()
        self._soft_closed_memoized = immutabledict()
        self._rows = deque()

    async def _execute_async(self, operation: Any, parameters: Any) -> Any:
        async with self._adapt_connection._execute_mutex:
            of = self._connection
            self._cursor, self._rows = await of._execute(_execute, of._conn, operation, parameters or ())
            return self

    async def _executemany_async(self, operation: Any, seq_of_parameters: Any) -> Any:
        async with self._adapt_connection._execute_mutex:
            of = self._connection
            self._cursor = await of._execute(_execute_many, of._conn, operation, seq_of_parameters)
            return self


class _Connection(AsyncAdapt_aiosqlite_connection):
    __slots__ = ()

    _cursor_cls = _Cursor

    def rollback(self) -> None:
        """Roll back, unless nothing has begun: the pool asks for it after each commit, too."""
        if self._connection._connection and self._connection._conn.in_transaction:
            super().rollback()


class _Here:
    """A connection with the methods of aiosqlite's, that does all in the thread it is called in, which waits for it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.driver = self._conn = self._connection = connection

    async def _execute(self, do: Callable[..., Any], *arguments: Any) -> Any:
        return do(*arguments)

    async def create_function(self, *arguments: Any, **options: Any) -> None:
        self._conn.create_function(*arguments, **options)

    async def commit(self) -> None:
        self._conn.commit()

    async def rollback(self) -> None:
        self._conn.rollback()

    async def close(self) -> None:
        self._conn.close()

    def stop(self) -> None:
        self._conn.close()


class SqliteDriver(AsyncAdapt_aiosqlite_dbapi):
    """The driver: ``create_async_engine(url, module=SqliteDriver())``.

    Args:
        threads: each connection has a thread; else statements are executed in the thread that asks for them.
    """

    def __init__(self, *, threads: bool = True) -> None:
        super().__init__(aiosqlite, sqlite3)
        self._threads = threads

    def connect(self, *arg: Any, **kw: Any) -> AsyncAdapt_aiosqlite_connection:
        """Open a connection, and begin its thread if it has one."""
        if self._threads:
            return _Connection(self, super().connect(*arg, **kw)._connection)
        here: Any = _Here(sqlite3.connect(*arg, **kw))
        return _Connection(self, here)


def _execute(connection: sqlite3.Connection, operation: str, parameters: Any) -> tuple[_Answer, deque[Any]]:
    cursor = connection.execute(operation, parameters)
    try:
        rows = deque(cursor.fetchall() if cursor.description else ())
        return _Answer(cursor.description, cursor.rowcount, cursor.lastrowid), rows
    finally:
        cursor.close()


def _execute_many(connection: sqlite3.Connection, operation: str, parameters: Sequence[Any]) -> _Answer:
    cursor = connection.executemany(operation, parameters)
    try:
        return _Answer(cursor.description, cursor.rowcount, cursor.lastrowid)
    finally:
        cursor.close()
