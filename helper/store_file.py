"""A helper's store is an SQLite file: its tables, its owner, its lock and its transactions.

A commit is on disk when it returns. Deleted data, such as a sealing key, is overwritten in the file (SQLite's
``secure_delete``). No program can reach copies in flash memory or in a backup; a store restored from a copy is detected
by what the helper has signed since (`foltr.helper.opening`).
"""

import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from foltr.core.errors import DataError, SettingsError
from foltr.core.file_locks import create_private, lock_store

# The store's whole schema. Change it together with the version: other versions are not read.
_SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;
CREATE TABLE policies (
    hash BLOB PRIMARY KEY,
    version INTEGER NOT NULL UNIQUE,
    signed BLOB NOT NULL
) STRICT;
CREATE TABLE sealing_keys (
    id INTEGER PRIMARY KEY AUTOINCREMENT,  -- those of a lower one are older
    public BLOB NOT NULL UNIQUE,
    private BLOB NOT NULL
) STRICT;
-- Of one round and policy at a time, as long as no sum of their cohort is opened.
CREATE TABLE checked_tickets (
    round INTEGER NOT NULL,
    cohort INTEGER NOT NULL,
    position INTEGER NOT NULL,
    policy_hash BLOB NOT NULL,
    client BLOB NOT NULL,
    participation INTEGER NOT NULL CHECK (participation > 0),
    hash BLOB NOT NULL,  -- of the ticket as it was signed
    seal BLOB NOT NULL,  -- the seed of the mask, sealed to this helper
    info BLOB NOT NULL,  -- what the seal is for
    epoch INTEGER NOT NULL,  -- of the policy, to whose key it is sealed
    PRIMARY KEY (round, cohort, position),
    UNIQUE (round, cohort, client)
) STRICT;
-- Of the newest round that has one; of the rounds before it nothing is answered any more.
CREATE TABLE committed_sets (
    round INTEGER NOT NULL,
    cohort INTEGER NOT NULL,
    policy_hash BLOB NOT NULL,
    digest BLOB NOT NULL,  -- of the set
    sum BLOB,              -- little-endian words of 64 bits; NULL until it is opened
    PRIMARY KEY (round, cohort)
) STRICT;
-- A client is an HMAC of its name under a key in this file.
CREATE TABLE clients (
    client BLOB PRIMARY KEY,
    participation INTEGER NOT NULL CHECK (participation > 0)  -- so many it has spent
) STRICT, WITHOUT ROWID;
"""
_WAIT_S = 5.0
_ALONE = "Only one process may answer for a helper: end the other one first"
_NAME_KEY_BYTES = 32


class StoreFile:
    """An SQLite file of one helper.

    Args:
        path: created if missing.
        owner: the helper's federation and name; another owner's file is refused.
        exclusive: refuse a file that another process holds exclusively: one process answers for a helper. Without it
            the file opens beside such a process.
    """

    def __init__(self, path: Path, owner: str, *, exclusive: bool) -> None:
        self._path = path
        self._owner = owner
        self._lock = lock_store(path, "helper store", _ALONE) if exclusive else None
        try:
            self._db = self._connect()
        except BaseException:
            self._release()  # or the lock would outlive the refusal
            raise
        self.name_key = self.meta("name_key") or b""

    def close(self) -> None:
        self._db.close()
        self._release()

    # --- rows ----------------------------------------------------------------------------------------------

    def rows(self, query: str, values: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        try:
            return self._db.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    def meta(self, key: str) -> bytes | None:
        found = self.rows("SELECT value FROM meta WHERE key = ?", (key,))
        return found[0][0] if found else None

    def set_meta(self, key: str, value: bytes) -> None:
        with self.transaction() as cursor:
            cursor.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, value))

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Cursor]:
        """Run a transaction. On failure it changes nothing and raises DataError with the cause (e.g. a full disk)."""
        try:
            with closing(self._db.cursor()) as cursor:
                cursor.execute("BEGIN IMMEDIATE")
                try:
                    yield cursor
                    cursor.execute("COMMIT")
                finally:
                    # After some errors SQLite has rolled back by itself.
                    if self._db.in_transaction:
                        cursor.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise self._unusable(error) from error

    def overwrite(self) -> None:
        """Erase deleted rows from the log beside the file; if another process reads it now, the next start does so."""
        self.rows("PRAGMA wal_checkpoint(TRUNCATE)")

    # --- opening -------------------------------------------------------------------------------------------

    def _connect(self) -> sqlite3.Connection:
        try:
            create_private(self._path)
            # One thread at a time, but not always the same.
            db = sqlite3.connect(self._path, isolation_level=None, timeout=_WAIT_S, check_same_thread=False)
        except sqlite3.Error as error:
            raise self._unusable(error) from error
        try:
            self._db = db
            for pragma in ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON"):
                self.rows(f"PRAGMA {pragma}")
            self._prepare()
            self.overwrite()
        except BaseException:
            db.close()
            raise
        return db

    def _prepare(self) -> None:
        with self.transaction() as cursor:
            version = cursor.execute("PRAGMA user_version").fetchone()[0]
            if version not in (0, _SCHEMA_VERSION):
                raise SettingsError(
                    f"store: {self._path} is of version {version}, and this software reads version {_SCHEMA_VERSION} "
                    "only. Use the software that wrote it"
                )
            if version == 0:
                self._create(cursor)
        owner = (self.meta("owner") or b"").decode()
        if owner != self._owner:
            raise SettingsError(f"store: {self._path} belongs to {owner}, not to {self._owner}; one store per helper")

    def _create(self, cursor: sqlite3.Cursor) -> None:
        if cursor.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() is not None:
            raise SettingsError(f"store: {self._path} is not a database of foltr; name another file")
        for statement in _SCHEMA.split(";\n"):
            cursor.execute(statement)
        cursor.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
        values = [("owner", self._owner.encode()), ("name_key", secrets.token_bytes(_NAME_KEY_BYTES))]
        cursor.executemany("INSERT INTO meta (key, value) VALUES (?, ?)", values)

    def _release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _unusable(self, error: sqlite3.Error) -> DataError:
        return DataError(
            f"helper store {self._path}: {error}. Nothing was changed; check that the file is writable and its "
            "disk has room"
        )
