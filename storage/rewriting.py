"""Rewrites small tables, so that no byte is left of their deleted rows.

A deleted row is overwritten with zeros (``secure_delete``), but pages of the table or its indexes that were split or
joined before may hold copies. Only small tables hold data that must not stay; rewriting the whole database would take
long.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy.ext.asyncio import AsyncConnection

# A session that waits for a lock here blocks all sessions after it.
LOCK_TIMEOUT_S: Final = 0.2
_READERS_ASKED: Final = 20
_READER_PAUSE_S: Final = 0.1


def rewrite_sqlite(path: str, tables: Sequence[str]) -> bool:
    """Rewrite tables, then move SQLite's write-ahead log into the file and empty it.

    Their old pages, and those of their indexes, are overwritten with zeros. Writers wait meanwhile: about half a second
    for 100,000 rows.

    Returns:
        False if others are in the way.
    """
    with contextlib.closing(sqlite3.connect(path, timeout=LOCK_TIMEOUT_S, isolation_level=None)) as connection:
        # The copy is in memory: a temporary file would keep the deleted bytes. Foreign keys are not enforced on a new
        # connection, because rows that others refer to are absent for a moment.
        for pragma in ("secure_delete=ON", "synchronous=FULL", "temp_store=MEMORY", "foreign_keys=OFF"):
            connection.execute(f"PRAGMA {pragma}")
        try:
            # Most of the log, without blocking anybody.
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
            connection.execute("BEGIN IMMEDIATE")
            for table in tables:
                connection.execute(f"CREATE TEMPORARY TABLE kept AS SELECT * FROM {table}")  # noqa: S608 (our own)
                connection.execute(f"DELETE FROM {table}")  # noqa: S608
                connection.execute(f"INSERT INTO {table} SELECT * FROM kept")  # noqa: S608
                connection.execute("DROP TABLE kept")
            connection.execute("COMMIT")
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
            (busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                return False
            raise
        return not busy


async def rewrite_postgres(connection: AsyncConnection, tables: Sequence[str], timeout_s: float) -> bool:
    """Rewrite tables with their indexes; False if others are in the way.

    VACUUM keeps deleted rows for readers that began earlier, so it waits a moment for these.
    """
    driver: Any = (await connection.get_raw_connection()).driver_connection
    newest = await driver.fetchval("SELECT pg_current_xact_id()::xid")
    for _ in range(_READERS_ASKED):
        if not await driver.fetchval(_HAS_OLD_READERS, newest):
            break
        await asyncio.sleep(_READER_PAUSE_S)
    else:
        return False
    await driver.execute(f"SET lock_timeout = '{LOCK_TIMEOUT_S}s'; SET statement_timeout = 0")
    try:
        await driver.execute(f"VACUUM (FULL) {', '.join(tables)}", timeout=timeout_s)
    except Exception as error:
        if getattr(error, "sqlstate", "") == "55P03":  # lock_not_available
            return False
        raise
    finally:
        await driver.execute("RESET lock_timeout; RESET statement_timeout")
    return True


_HAS_OLD_READERS: Final = (
    "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() "
    "AND age(backend_xmin) > age($1::xid))"
)
