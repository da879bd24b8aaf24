"""How to reach SQLite and PostgreSQL: drivers, timeouts, and the start of each connection and transaction.

Every wait is bounded: connecting, waiting for a lock, a statement, a connection of the pool.
"""

import shutil
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from sqlalchemy import URL, Connection, Engine, ExceptionContext, event
from sqlalchemy import create_engine as create_sync_engine
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from foltr.core.errors import UnavailableError
from foltr.core.extras import install_command
from foltr.storage.urls import in_words

CONNECT_TIMEOUT_S: Final = 10
BUSY_TIMEOUT_S: Final = 5
STATEMENT_TIMEOUT_S: Final = 30
# The server gives up first and says why; the client gives up if the server cannot even say that.
ANSWER_TIMEOUT_S: Final = 5
IDLE_TIMEOUT_S: Final = 2 * STATEMENT_TIMEOUT_S

WRITES, REBUILDS = "foltr_writes", "foltr_rebuilds"
"""Options of an engine: its transactions write; they change the schema (see `Database.schema_transaction`)."""
DISK_FULL: Final = "disk full at"
"""With which the text of an error begins that a full disk caused; the folder follows."""
_NO_ROOM_BYTES: Final = 2**20
# No isolation level: the event below begins transactions, and sqlite3 must not.
_SQLITE_OPTIONS: Final = {"isolation_level": None, "timeout": BUSY_TIMEOUT_S}


def application_name(process: str | None) -> str:
    """Return the name of a process's sessions in PostgreSQL, which keeps 63 bytes of it."""
    return "foltr" if process is None else f"foltr {process}"


def create_engine(
    url: URL,
    statement_timeout_s: float | None = None,
    idle_timeout_s: float = IDLE_TIMEOUT_S,
    process: str | None = None,
) -> AsyncEngine:
    """Make the engine of a database; it connects when used.

    Args:
        statement_timeout_s: how long a statement may take in PostgreSQL; None: the default.
        idle_timeout_s: PostgreSQL ends a transaction that is idle for so long.
        process: the name for its sessions.

    Raises:
        UnavailableError: the driver is not installed.
    """
    statement_timeout_s = statement_timeout_s or STATEMENT_TIMEOUT_S
    is_sqlite = url.get_backend_name() == "sqlite"
    options: dict[str, Any]
    if is_sqlite:
        options = _SQLITE_OPTIONS
    else:
        options = {
            "timeout": CONNECT_TIMEOUT_S,
            "command_timeout": statement_timeout_s + ANSWER_TIMEOUT_S,
            "server_settings": {
                "application_name": application_name(process),
                "statement_timeout": f"{statement_timeout_s:g}s",
                "lock_timeout": f"{BUSY_TIMEOUT_S}s",
                "idle_in_transaction_session_timeout": f"{idle_timeout_s * 1000:.0f}ms",
                # Compiling a statement for a table's many parts takes longer than running it: seconds.
                "jit": "off",
            },
        }
    try:
        engine = create_async_engine(url, connect_args=options, pool_timeout=CONNECT_TIMEOUT_S)
    except ModuleNotFoundError as error:
        extra = "federator" if is_sqlite else "postgres"
        raise UnavailableError(f"{in_words(url)} needs the package {error.name}: {install_command(extra)}") from error
    if is_sqlite:
        event.listen(engine.sync_engine, "connect", _prepare_sqlite)
        event.listen(engine.sync_engine, "begin", _begin_sqlite)
        event.listen(engine.sync_engine, "handle_error", _name_full_disk)
    return engine


def create_sqlite_engine(url: URL) -> Engine:
    """Make an engine of SQLite for a thread that may block, and that begins each transaction itself."""
    engine = create_sync_engine(url.set(drivername="sqlite"), connect_args=dict(_SQLITE_OPTIONS))
    event.listen(engine, "connect", _prepare_sqlite)
    return engine


def name_full_disk(error: BaseException, file: str | None) -> None:
    """Make an error of SQLite that a full disk caused say so, and where; SQLite has several texts for it."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if not file or code not in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN):
        return
    folder = Path(file).absolute().parent
    is_full = code == sqlite3.SQLITE_FULL
    with suppress(OSError):
        is_full = is_full or shutil.disk_usage(folder).free < _NO_ROOM_BYTES
    if is_full:
        error.args = (f"{DISK_FULL} {folder}",)


def _name_full_disk(context: ExceptionContext) -> None:
    if context.engine is not None:
        name_full_disk(context.original_exception, context.engine.url.database)


def _prepare_sqlite(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    # WAL lets readers work beside the writer; FULL makes a commit survive a power cut, as receipts promise. Deleted
    # data is overwritten at once, so an erased client leaves little until `Database.purge`.
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON", "secure_delete=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _begin_sqlite(connection: Connection) -> None:
    # IMMEDIATE takes the write lock at once. A deferred transaction that reads and then writes can be refused in the
    # middle, without the busy timeout, because its snapshot is out of date.
    options = connection.get_execution_options()
    if options.get(REBUILDS, False):
        connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get(WRITES, False) else "BEGIN")
