"""Statements are compiled once for all engines of a process.

That is a tenth of the processor time of tests that use a database. An engine keeps what it has compiled under its
dialect, and a test has an engine of its own. Here two dialects of one class are the same: all engines of the tests
are made with the same options for the same servers.
"""

from typing import Any

from sqlalchemy.dialects.postgresql.asyncpg import PGDialect_asyncpg
from sqlalchemy.dialects.sqlite.aiosqlite import SQLiteDialect_aiosqlite
from sqlalchemy.engine import Engine
from sqlalchemy.util import LRUCache

_COMPILED: LRUCache[Any, Any] = LRUCache(10_000)
_make = Engine.__init__


def share_compiled_statements() -> None:
    """From now on every engine of this process takes what another has compiled."""
    for dialect in (SQLiteDialect_aiosqlite, PGDialect_asyncpg):
        dialect.__eq__ = lambda self, other: type(self) is type(other)
        dialect.__hash__ = lambda self: hash(type(self))
    Engine.__init__ = _make_sharing


def _make_sharing(self: Engine, *arguments: Any, **options: Any) -> None:
    _make(self, *arguments, **options)
    self._compiled_cache = _COMPILED
