"""SQLite in a thread of its own, as aiosqlite has it, with one visit to that thread for each statement.

SQLAlchemy's adapter of aiosqlite makes a cursor, executes, fetches and closes in four visits. Each wakes a thread and
then the event loop, which costs more than a small statement does.
"""
# ruff: noqa: SLF001 (SQLAlchemy's adapters are made to be derived from, and name all of theirs so)

import sqlite3
from collections import deque
from collections.abc import Sequence
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


class SqliteDriver(AsyncAdapt_aiosqlite_dbapi):
    """The driver: ``create_async_engine(url, module=SqliteDriver())``."""

    def __init__(self) -> None:
        super().__init__(aiosqlite, sqlite3)

    def connect(self, *arg: Any, **kw: Any) -> AsyncAdapt_aiosqlite_connection:
        """Open a connection, and begin its thread."""
        return _Connection(self, super().connect(*arg, **kw)._connection)


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
