"""A device's store is a file: its tables, its owner, its transactions, and how all of it is forgotten.

What is deleted is overwritten in the file (SQLite's ``secure_delete``). What a flash memory or a backup has copied
meanwhile, no program can reach.
"""

import contextlib
import fcntl
import hashlib
import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from edge_client.store import ledger
from foltr.errors import DataError, SettingsError

# The store's whole schema. Another one is another version, and a store of another version is not read.
SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;
-- Nearly every transaction writes a row of it.
CREATE TABLE believed (
    topic TEXT PRIMARY KEY,
    sequence INTEGER NOT NULL CHECK (sequence >= 0)  -- the highest that was believed there: nothing older is
) STRICT, WITHOUT ROWID;
CREATE TABLE interactions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used again: what counts, and what was learned, are told by it
    serp_id TEXT NOT NULL UNIQUE,
    n_documents INTEGER NOT NULL CHECK (n_documents > 0),
    features BLOB NOT NULL,   -- little-endian float32, (n_documents, features), row by row
    ranking BLOB NOT NULL,    -- little-endian int64: the shown documents, best first
    clicks BLOB NOT NULL,     -- one byte a shown document: 1 clicked, 0 not
    variant INTEGER NOT NULL, -- which of a method's rankers showed the list
    base_version INTEGER,     -- and of which global model; NULL before the first
    scores BLOB               -- little-endian float32, (n_documents,), it was drawn by; NULL where by something else
) STRICT;
CREATE TABLE bounds (
    only_one INTEGER PRIMARY KEY CHECK (only_one = 1),
    mark INTEGER CHECK (mark >= 0),             -- interactions up to it count; NULL until the federation has told it
    floor INTEGER NOT NULL CHECK (floor >= 0)   -- interactions up to it are spent, whether they count or not
) STRICT;
CREATE TABLE pending_update (
    only_one INTEGER PRIMARY KEY CHECK (only_one = 1),
    update_id TEXT NOT NULL,
    round INTEGER NOT NULL,
    after INTEGER NOT NULL,    -- it covers the interactions above this one
    through INTEGER NOT NULL,  -- up to this one
    payload BLOB NOT NULL,
    local_state BLOB,          -- of the method, with what the update holds learned; never sent
    CHECK (0 <= after AND after < through)
) STRICT;
CREATE TABLE counted_updates (
    through INTEGER PRIMARY KEY,
    after INTEGER NOT NULL CHECK (0 <= after AND after < through),
    local_state BLOB
) STRICT;
-- Of the guard (`edge_client.guard.held_back`): features are little-endian float32, (n_shown, features); pairs
-- little-endian int64, (2, pairs), positions of what was preferred and of what not; weights little-endian float64.
CREATE TABLE held_back (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    serp_id TEXT NOT NULL UNIQUE,
    n_shown INTEGER NOT NULL CHECK (n_shown > 0),
    features BLOB NOT NULL,
    pairs BLOB NOT NULL,
    weights BLOB NOT NULL
) STRICT;
CREATE TABLE refused_models (
    version INTEGER PRIMARY KEY,
    kept_version INTEGER NOT NULL,  -- of the model used in its place
    n_lists INTEGER NOT NULL,       -- it was judged by
    agreement_kept REAL NOT NULL,
    agreement_new REAL NOT NULL,
    loss REAL NOT NULL,
    standard_error REAL NOT NULL
) STRICT;
"""
_SALT_BYTES = 16


class StoreFile:
    """An SQLite file of one client, or ``":memory:"``; one process at a time.

    Attributes:
        forgotten: the client was forgotten: nothing is in the file but a mark that says so.
    """

    def __init__(self, path: str | Path, *, client_id: str, federation: str) -> None:
        self._path = str(path)
        self._owner = f"{federation}/{client_id}"
        # By topic, what was believed there and is not stored yet (`HeardStore.note_believed`).
        self._noted: dict[str, int] = {}
        try:
            self._lock = take_lock(self._path)
            _create_private(self._path)
            self._db = sqlite3.connect(path, isolation_level=None, timeout=1.0)
            try:
                self._prepare()
                self.forgotten = self._meta("forgotten") is not None
                if self.forgotten:
                    self.overwrite()  # perhaps it was interrupted
            except BaseException:
                self.close()  # or its lock would outlive the refusal
                raise
        except sqlite3.Error as error:
            raise DataError(
                f"device store {path}: {error}. Name a writable file with store= or --store; "
                "a store belongs to one running client"
            ) from error

    def close(self) -> None:
        if self._noted:
            with contextlib.suppress(DataError), self.transaction():
                pass  # a transaction by itself stores what was noted
        self._db.close()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # --- rows ----------------------------------------------------------------------------------------------

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query without parameters."""
        return self._db.execute(query).fetchall()

    def _meta(self, key: str) -> bytes | None:
        row = self._db.execute("SELECT value FROM meta WHERE key = ?", (key,)).fetchone()
        return None if row is None else bytes(row[0])

    def _prepare(self) -> None:
        # Two processes on one store would each train on the same clicks. The lock ends with the process.
        self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA secure_delete = ON")
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, SCHEMA_VERSION):
            raise SettingsError(
                f"store: {self._path} is of version {version}, and this software reads version {SCHEMA_VERSION} only. "
                "Use the software that wrote it, or name another file"
            )
        with self.transaction() as cursor:
            if version == 0:
                self._create(cursor)
            self._check_owner()
            if not self._meta("forgotten"):
                seed = secrets.randbits(63).to_bytes(8, "big")
                cursor.execute("INSERT OR IGNORE INTO meta (key, value) VALUES ('device_seed', ?)", (seed,))

    def _create(self, cursor: sqlite3.Cursor) -> None:
        if cursor.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() is not None:
            raise SettingsError(f"store: {self._path} is a database of something else; name another file")
        for statement in (_SCHEMA + ledger.SCHEMA).split(";\n"):
            cursor.execute(statement)
        cursor.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        cursor.execute("INSERT INTO meta (key, value) VALUES ('owner', ?)", (self._owner.encode(),))
        cursor.execute("INSERT INTO bounds (only_one, mark, floor) VALUES (1, NULL, 0)")

    def _check_owner(self) -> None:
        mark = self._meta("forgotten")
        if mark is not None:
            if mark != self._mark(mark[:_SALT_BYTES]):
                raise SettingsError(
                    f"store: {self._path} belongs to another client, which was forgotten, not to {self._owner}; "
                    "one store per client"
                )
            return
        stored = (self._meta("owner") or b"").decode()
        if stored != self._owner:
            raise SettingsError(f"store: {self._path} belongs to {stored}, not to {self._owner}; one store per client")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Cursor]:
        """Begin and commit a transaction, or nothing happened and DataError says why (say, a full disk)."""
        try:
            with closing(self._db.cursor()) as cursor:
                cursor.execute("BEGIN IMMEDIATE")
                try:
                    self._store_noted(cursor)
                    yield cursor
                    cursor.execute("COMMIT")
                    self._noted.clear()
                finally:
                    # After some errors SQLite has rolled back by itself.
                    if self._db.in_transaction:
                        cursor.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise DataError(
                f"device store {self._path}: {error}. Nothing was changed; free space on its disk, "
                "and see that no other process uses it"
            ) from error

    def _store_noted(self, cursor: sqlite3.Cursor) -> None:
        for noted in self._noted.items():
            cursor.execute(
                "INSERT INTO believed (topic, sequence) VALUES (?, ?) "
                "ON CONFLICT DO UPDATE SET sequence = excluded.sequence",
                noted,
            )

    # --- being forgotten ------------------------------------------------------------------------------------

    def forget(self) -> None:
        """Delete everything for good, and leave a mark: that this file's client was forgotten, not who it was.

        What it has spent stays, in numbers.

        Raises:
            DataError: nothing is deleted yet (``forgotten`` is False), or it is and could not be overwritten
                everywhere, which the next start makes up for.
        """
        salt = secrets.token_bytes(_SALT_BYTES)
        with self.transaction() as cursor:
            # Also SQLite's own count of how many interactions there ever were.
            tables = cursor.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'participations' "
                "AND (name NOT LIKE 'sqlite_%' OR name = 'sqlite_sequence')"
            ).fetchall()
            for (table,) in tables:
                cursor.execute(f"DELETE FROM {table}")  # noqa: S608 (our own tables)
            ledger.keep_totals(cursor)
            cursor.execute("INSERT INTO meta (key, value) VALUES ('forgotten', ?)", (self._mark(salt),))
        self.forgotten = True
        try:
            self.overwrite()
        except sqlite3.Error as error:
            raise DataError(
                f"device store {self._path}: {error}. Its rows are deleted; some of their bytes may be in the file "
                "until it is opened again, or delete the file"
            ) from error

    def overwrite(self) -> None:
        """Leave nothing of what was deleted in the file, not even by older software, nor in the log beside it."""
        self._db.execute("VACUUM")
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def _mark(self, salt: bytes) -> bytes:
        """Return a salted mark: that of a store that is found names nobody unless one guesses whom."""
        return salt + hashlib.sha256(salt + self._owner.encode()).digest()


def take_lock(path: str) -> int | None:
    """Lock the store for this process, in a file beside it that says who has it; it ends with the process.

    Raises:
        DataError: another has it.
    """
    if path == ":memory:" or not Path(path).parent.is_dir():
        return None  # SQLite says what is wrong with the folder
    lock = Path(f"{path}.lock")
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise DataError(f"device store {path}: {lock}: {error.strerror}. Name a writable file with --store") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, f"{os.getpid()}\n".encode())
    except BlockingIOError as error:
        holder = os.read(descriptor, 32).decode(errors="replace").strip()
        os.close(descriptor)
        who = f"the process {holder}" if holder.isdecimal() else "another process"
        raise DataError(
            f"device store {path}: {who} has it open. A store belongs to one running client: end that process, "
            "or name another file with store= or --store"
        ) from error
    except OSError as error:
        os.close(descriptor)
        raise DataError(f"device store {path}: {lock}: {error.strerror}. Free space on its disk") from error
    return descriptor


def _create_private(path: str) -> None:
    """Make the file, if it is to be one, so that only its owner can read the clicks in it; SQLite's others follow."""
    if path != ":memory:":
        with contextlib.suppress(FileExistsError, OSError):  # what is wrong with the path, SQLite will say
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
