"""A device's store is a file: its tables, its owner, its transactions, and how all of it is forgotten.

What is deleted is overwritten in the file (SQLite's ``secure_delete``). What a flash memory or a backup has copied
meanwhile, no program can reach.
"""

import contextlib
import hashlib
import os
import secrets
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from foltr.core.errors import DataError, SettingsError, UsageError
from foltr.core.failpoints import Failpoint, failpoint
from foltr.core.file_locks import create_private
from foltr.edge_client.store import anchor_rows, gate_rows, ledger, unlearning_rows
from foltr.edge_client.store.one_process import leave_open, remember_open, take_lock

P = ParamSpec("P")
R = TypeVar("R")
StoreT = TypeVar("StoreT", bound="StoreFile")

# The store's whole schema. Another one is another version.
SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE owner (
    only_one INTEGER PRIMARY KEY CHECK (only_one = 1),
    state TEXT NOT NULL CHECK (state IN ('nobody', 'client', 'forgotten')),
    federation TEXT,  -- whose clicks these are; nobody's yet before they are enrolled
    client_id TEXT,
    mark BLOB,        -- of a client that was forgotten: a salted hash of its name
    CHECK ((state = 'client') = (federation IS NOT NULL) AND (state = 'client') = (client_id IS NOT NULL)),
    CHECK ((state = 'forgotten') = (mark IS NOT NULL))
) STRICT;
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;
-- Nearly every transaction writes a row of it.
CREATE TABLE believed (
    topic TEXT PRIMARY KEY,
    signer BLOB NOT NULL,  -- the federator's public key then
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
    reversals BLOB,           -- little-endian float64, one for each pair shown: foltr.core.learning.display
    log_probability REAL,     -- of the list as it was drawn
    schema_hash BLOB CHECK (length(schema_hash) = 32),  -- of the schema its features are of; NULL without one
    relearned INTEGER NOT NULL DEFAULT 0 CHECK (relearned >= 0),  -- in so many steps of unlearning jobs
    base_reward REAL CHECK (base_reward BETWEEN 0 AND 1)  -- foltr.core.learning.rewards; NULL: nobody is to know
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
"""
_SALT_BYTES = 16


def alone(method: Callable[Concatenate[StoreT, P], R]) -> Callable[Concatenate[StoreT, P], R]:
    """Let one thread at a time do this to an open store: what it reads first is still so when it writes."""

    @wraps(method)
    def by_itself(store: StoreT, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with store.lock:
            store.check_open()
            return method(store, *args, **kwargs)

    return by_itself


class StoreFile:
    """An SQLite file of one client, or ``":memory:"``; of one process at a time, and of all its threads.

    Args:
        owner: federation and client; None opens it for whoever's it is, or will be (`take_over`).

    Attributes:
        forgotten: the client was forgotten: nothing is in the file but a mark that says so.
        owner: federation and client; None where it is nobody's yet, or was not named and the client was forgotten.
        lock: held by the thread that uses the file.
    """

    def __init__(self, path: str | Path, owner: tuple[str, str] | None) -> None:
        self._path = str(path)
        self.owner = owner
        # By topic, what was believed there and is not stored yet (`HeardStore.note_believed`).
        self._unsaved: dict[str, tuple[bytes, int]] = {}
        self.lock = threading.RLock()
        self._gone = ""
        try:
            self._release_lock = _release_at_last(self, take_lock(self._path))
            if self._path != ":memory:":
                create_private(Path(self._path))
            self._db = sqlite3.connect(path, isolation_level=None, timeout=1.0, check_same_thread=False)
            remember_open(self)
            try:
                self._prepare(owner)
                if self.forgotten:
                    self.overwrite()  # perhaps it was interrupted
            except BaseException:
                self.close()  # or its lock would outlive the refusal
                raise
        except sqlite3.Error as error:
            self._release_lock()
            raise DataError(
                f"device store {path}: {error}. Name a writable file with store= or --store; "
                "a store belongs to one running client"
            ) from error

    def close(self) -> None:
        """Store what is noted and close the file; nothing can be done with it afterwards."""
        with self.lock:
            if self._gone:
                return
            if self._unsaved:
                with contextlib.suppress(DataError), self.transaction():
                    pass  # a transaction by itself stores what was noted
            self._gone = "it is closed"
            self._db.close()
            self._release_lock()

    def check_open(self) -> None:
        """Raise UsageError where the file is closed, or was opened by a process that this one was forked from."""
        if self._gone:
            raise UsageError(f"device store {self._path}: {self._gone}")

    def abandon(self) -> None:
        """Have no part in the file: this process was forked from the one that opened it, which goes on."""
        self.lock = threading.RLock()  # another thread, which is not here, may have had it
        self._gone = (
            "the process that this one was forked from opened it. Construct the ranker or client after the fork"
        )
        leave_open(self._db)
        self._release_lock()  # of the two descriptors of one lock; the other process keeps its own

    # --- rows ----------------------------------------------------------------------------------------------

    @alone
    def rows(self, query: str, parameters: tuple[int | str | bytes, ...] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        return self._db.execute(query, parameters).fetchall()

    def _meta(self, key: str) -> bytes | None:
        rows = self.rows("SELECT value FROM meta WHERE key = ?", (key,))
        return bytes(rows[0][0]) if rows else None

    def _put_meta(self, **kept: bytes | None) -> None:
        with self.transaction() as cursor:
            put_meta(cursor, **kept)

    def _prepare(self, owner: tuple[str, str] | None) -> None:
        # Two processes on one store would each train on the same clicks. The lock ends with the process.
        self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA secure_delete = ON")
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, SCHEMA_VERSION):
            raise SettingsError(
                f"store: {self._path} is of version {version}, and this software reads version {SCHEMA_VERSION}. "
                "Use the software that wrote it, or name another file"
            )
        with self.transaction() as cursor:
            if version == 0:
                self._create(cursor)
            self.forgotten = self.rows("SELECT state FROM owner") == [("forgotten",)]
            self._set_owner(cursor, owner)

    def _create(self, cursor: sqlite3.Cursor) -> None:
        if cursor.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() is not None:
            raise SettingsError(f"store: {self._path} is a database of something else; name another file")
        rooms = (_SCHEMA, ledger.SCHEMA, gate_rows.SCHEMA, unlearning_rows.SCHEMA, anchor_rows.SCHEMA)
        for statement in "".join(rooms).split(";\n"):
            cursor.execute(statement)
        cursor.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        self._begin_anew(cursor)

    @staticmethod
    def _begin_anew(cursor: sqlite3.Cursor) -> None:
        seed = secrets.randbits(63).to_bytes(8, "big")
        cursor.execute("INSERT INTO owner (only_one, state) VALUES (1, 'nobody')")
        cursor.execute("INSERT INTO bounds (only_one, mark, floor) VALUES (1, NULL, 0)")
        put_meta(cursor, device_seed=seed)

    # --- whose it is ----------------------------------------------------------------------------------------

    def take_over(self, owner: tuple[str, str]) -> None:
        """Make this client the owner of a store that is nobody's yet; one that is this client's already stays so.

        Raises:
            SettingsError: it is another client's, or of one that was forgotten.
        """
        with self.transaction() as cursor:
            self._set_owner(cursor, owner)

    def _set_owner(self, cursor: sqlite3.Cursor, owner: tuple[str, str] | None) -> None:
        ((state, *named, mark),) = cursor.execute("SELECT state, federation, client_id, mark FROM owner").fetchall()
        if state == "forgotten" and owner is not None and mark != _mark(mark[:_SALT_BYTES], owner):
            raise SettingsError(
                f"store: {self._path} belongs to another client, which was forgotten, not to {'/'.join(owner)}; "
                "one store per client"
            )
        if state == "client" and owner is not None and tuple(named) != owner:
            raise SettingsError(
                f"store: {self._path} belongs to {'/'.join(named)}, not to {'/'.join(owner)}; one store per client"
            )
        if state == "nobody" and owner is not None:
            cursor.execute("UPDATE owner SET state = 'client', federation = ?, client_id = ?", owner)
        self.owner = (named[0], named[1]) if state == "client" and owner is None else owner

    # --- transactions ---------------------------------------------------------------------------------------

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Cursor]:
        """Begin and commit a transaction, or nothing happened and DataError says why (say, a full disk)."""
        with self.lock:
            self.check_open()
            cursor = self._db.cursor()
            try:
                cursor.execute("BEGIN IMMEDIATE")
                try:
                    if self._unsaved:
                        self._store_unsaved(cursor)
                    yield cursor
                    cursor.execute("COMMIT")
                    self._unsaved.clear()
                finally:
                    # After some errors SQLite has rolled back by itself.
                    if self._db.in_transaction:
                        cursor.execute("ROLLBACK")
            except sqlite3.Error as error:
                raise DataError(
                    f"device store {self._path}: {error}. Nothing was changed; free space on its disk, "
                    "and see that no other process uses it"
                ) from error
            finally:
                cursor.close()

    def _store_unsaved(self, cursor: sqlite3.Cursor) -> None:
        cursor.executemany(
            "INSERT INTO believed (topic, signer, sequence) VALUES (?, ?, ?) "
            "ON CONFLICT DO UPDATE SET signer = excluded.signer, sequence = excluded.sequence",
            [(topic, signer, sequence) for topic, (signer, sequence) in self._unsaved.items()],
        )

    # --- being forgotten ------------------------------------------------------------------------------------

    @alone
    def forget(self) -> None:
        """Delete everything for good, and leave a mark: that this file's client was forgotten, not who it was.

        What it has spent stays, in numbers, and how far the wish is. A store that is nobody's yet begins anew: there is
        nobody to be marked.

        Raises:
            DataError: nothing is deleted yet (``forgotten`` is False), or it is and could not be overwritten
                everywhere, which the next start makes up for.
        """
        salt = secrets.token_bytes(_SALT_BYTES)
        if self.forgotten:
            self.overwrite()
            return
        with self.transaction() as cursor:
            # Also SQLite's own count of how many interactions there ever were.
            tables = cursor.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'participations' "
                "AND (name NOT LIKE 'sqlite_%' OR name = 'sqlite_sequence')"
            ).fetchall()
            for (table,) in tables:
                # How far the wish is, in a word, stays: until there is a receipt it is sent at every start.
                kept = " WHERE key <> 'forget_state'" if table == "meta" else ""
                cursor.execute(f"DELETE FROM {table}{kept}")  # noqa: S608 (our own tables)
            ledger.keep_totals(cursor)
            if self.owner is None:
                self._begin_anew(cursor)
            else:
                mark = _mark(salt, self.owner)
                cursor.execute("INSERT INTO owner (only_one, state, mark) VALUES (1, 'forgotten', ?)", (mark,))
            failpoint(Failpoint.IN_FORGETTING_TRANSACTION)
        failpoint(Failpoint.STORE_FORGOTTEN)
        self.forgotten = self.owner is not None
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


def put_meta(cursor: sqlite3.Cursor, **kept: bytes | None) -> None:
    """Keep values by their keys; None deletes what was kept."""
    for key, value in kept.items():
        if value is None:
            cursor.execute("DELETE FROM meta WHERE key = ?", (key,))
        else:
            cursor.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, value))


def _mark(salt: bytes, owner: tuple[str, str]) -> bytes:
    """Return a salted mark: that of a store that is found names nobody unless one guesses whom."""
    return salt + hashlib.sha256(salt + "/".join(owner).encode()).digest()


def _release_at_last(store: StoreFile, lock: int | None) -> Callable[[], object]:
    """Return what releases a lock, once, at the latest when nobody has the store any more."""
    return weakref.finalize(store, _release, lock)


def _release(lock: int | None) -> None:
    if lock is not None:
        os.close(lock)
