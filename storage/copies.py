"""Copies a SQLite database while its federator writes, and puts a copy in a database's place.

PostgreSQL's own programs do this for PostgreSQL (`foltr.storage.postgres_programs`).
"""

import contextlib
import os
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from alembic.migration import MigrationContext
from sqlalchemy import ColumnElement, Connection, NullPool, create_engine, func, select

from foltr.core.errors import DataError, UnavailableError
from foltr.core.failpoints import Failpoint, failpoint
from foltr.core.file_locks import create_private
from foltr.storage.engines import BUSY_TIMEOUT_S
from foltr.storage.erasure_tables import erasures
from foltr.storage.tables import federations, rounds

OnBytes = Callable[[int, int], None]
"""Called with how many bytes are copied, and of how many."""
_PAGES_AT_ONCE: Final = 2000
_POLL_S: Final = 0.1


@dataclass(frozen=True)
class FederationState:
    """How far a database is with one federation.

    Attributes:
        epoch: of the last federator that claimed it.
        newest_round: 0 before the first.
        last_order: the newest order that has an outcome.
        n_deletions: transactions that deleted data of forgotten clients.
        erased: the pseudonyms of all forgotten clients, sorted.
    """

    name: str
    epoch: int
    newest_round: int
    roster_version: int
    last_order: int
    n_deletions: int
    erased: tuple[str, ...]


@dataclass(frozen=True)
class Contents:
    """What a database holds: its schema's revision, None without tables, and its federations by name."""

    revision: str | None
    federations: tuple[FederationState, ...] = ()


def read_contents(connection: Connection) -> Contents:
    """Read the contents of a database of this or an earlier revision."""
    revision = MigrationContext.configure(connection).get_current_revision()
    if revision is None:
        return Contents(None)
    of_federation = federations.c.name == rounds.c.federation
    newest = select(func.coalesce(func.max(rounds.c.number), 0)).where(of_federation).scalar_subquery()
    columns: list[ColumnElement[Any]] = [
        federations.c[name] for name in ("name", "roster_version", "last_order", "n_deletions")
    ]
    columns += [federations.c.writer_epoch.label("epoch"), newest.label("newest_round")]
    rows = connection.execute(select(*columns).order_by(federations.c.name)).mappings().all()
    erased: dict[str, list[str]] = {row["name"]: [] for row in rows}
    for name, pseudonym in connection.execute(select(erasures.c.federation, erasures.c.pseudonym)):
        erased[name].append(pseudonym)
    return Contents(revision, tuple(FederationState(**row, erased=tuple(sorted(erased[row["name"]]))) for row in rows))


def copy_sqlite(source: Path, copy: Path, on_bytes: OnBytes, *, is_backup: bool = False) -> None:
    """Copy a SQLite database by its online backup: as it is when this begins, even if others write meanwhile.

    Args:
        is_backup: nobody writes to the source, and neither does this; its folder may be read-only.
    """
    copy.unlink(missing_ok=True)  # of a process that died
    create_private(copy)
    try:
        opened = _open_backup(source) if is_backup else sqlite3.connect(source, timeout=BUSY_TIMEOUT_S)
        with contextlib.closing(opened) as original, contextlib.closing(sqlite3.connect(copy)) as target:
            (page_bytes,) = original.execute("PRAGMA page_size").fetchone()
            # One reading to the end: otherwise each write of a federator would begin the copy again.
            original.execute("BEGIN")
            original.execute("SELECT count(*) FROM sqlite_master").fetchone()
            target.execute("PRAGMA synchronous=OFF")
            original.backup(
                target,
                pages=_PAGES_AT_ONCE,
                progress=lambda _, left, n_pages: on_bytes((n_pages - left) * page_bytes, n_pages * page_bytes),
            )
    except sqlite3.Error as error:
        raise DataError(f"{source} cannot be copied to {copy}: {error}. Look at both disks and files") from error
    flush(copy)


def check_sqlite(copy: Path) -> Contents:
    """Check a copy's integrity without changing it, and return its contents. Raises DataError if it is damaged."""
    try:
        with contextlib.closing(_open_backup(copy)) as connection:
            ((found,),) = connection.execute("PRAGMA integrity_check(1)").fetchall()
    except sqlite3.DatabaseError as error:
        found = str(error)
    if found != "ok":
        raise DataError(f"{copy} is damaged: {found}. Use another backup")
    engine = create_engine("sqlite://", creator=lambda: _open_backup(copy), poolclass=NullPool)
    with engine.connect() as opened:
        return read_contents(opened)


def replace_sqlite(copy: Path, path: Path, on_bytes: OnBytes) -> Path | None:
    """Put a copy in the place of a SQLite database; a process that dies leaves either the one or the other.

    Returns:
        the new name of the former file, which is kept; None if no database was in its place.

    Raises:
        UnavailableError: another process has the database open, or its folder does not take a file.
        DataError: it cannot be copied.
    """
    new = path.with_name(f"{path.name}.restoring")
    with _alone(path):
        try:
            copy_sqlite(copy, new, on_bytes, is_backup=True)
            former = path.stat()
            with contextlib.suppress(PermissionError):  # the service's user owns it, and root restores it
                os.chown(new, former.st_uid, former.st_gid)
            failpoint(Failpoint.RESTORE_COPIED)
            kept = _keep(path) if former.st_size else None
            failpoint(Failpoint.RESTORE_KEPT)
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)  # a full disk has part of it
        flush(path.parent)
        failpoint(Failpoint.RESTORED)
        return kept


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Keep all others out of a database's file, with its write-ahead log moved into it; make it if it is missing."""
    give_up_at = time.monotonic() + BUSY_TIMEOUT_S
    while (connection := _take(path)) is None:
        # A process that ends has it open for a moment.
        if time.monotonic() > give_up_at:
            raise UnavailableError(
                f"{path} is open in another process. Stop the federator, its standbys and workers, and foltr api run; "
                "then run this again"
            )
        time.sleep(_POLL_S)
    with contextlib.closing(connection):
        yield


def _take(path: Path) -> sqlite3.Connection | None:
    with contextlib.ExitStack() as stack:
        try:
            connection = sqlite3.connect(path, timeout=0.0, isolation_level=None)
            stack.callback(connection.close)
            # SQLite refuses to leave its usual mode while any other connection is open, idle ones too.
            connection.execute("PRAGMA journal_mode=DELETE")
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.DatabaseError as error:
            code = error.sqlite_errorcode & 0xFF
            if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                return None
            # A damaged one is why somebody restores.
            if code not in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise UnavailableError(f"{path} cannot be used: {error}. Check that you may write to it") from error
        stack.pop_all()
        return connection


def _keep(path: Path) -> Path:
    """Give a database's file a second name, under which it stays; return that name."""
    for earlier in path.parent.glob(f"{path.name}.before-*"):
        # A process that died here has left it. Two names of a database in use would spoil it.
        if earlier.samefile(path):
            earlier.unlink()
    kept = path.with_name(f"{path.name}.before-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")
    try:
        os.link(path, kept)
    except OSError:
        shutil.copy2(path, kept)  # a file system without links
    for ending in ("-wal", "-shm"):
        # Only of a damaged one: SQLite would read the log into the new file.
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + ending).rename(kept.with_name(kept.name + ending))
    return kept


def _open_backup(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)


def flush(path: Path) -> None:
    """Flush a file's bytes, or a folder's names, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
