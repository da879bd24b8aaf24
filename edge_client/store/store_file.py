"""A device's store is a file: its owner, its transactions, and how all of it is forgotten.

One process opens it: a lock keeps others out, and a forked process has no part in it.

Deleted data is overwritten in the file (SQLite's ``secure_delete``), but not in backups or old blocks of flash memory.
"""

import contextlib
import ctypes
import hashlib
import os
import secrets
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import quote

from foltr.core.errors import DataError, SettingsError, UsageError
from foltr.core.failpoints import Failpoint, failpoint
from foltr.core.file_locks import create_private, lock_store
from foltr.edge_client.store import ledger
from foltr.edge_client.store.schema import RECENT_LISTS, SCHEMA, SCHEMA_VERSION, UPGRADES

P = ParamSpec("P")
R = TypeVar("R")
StoreT = TypeVar("StoreT", bound="StoreFile")

_SALT_BYTES = 16
_ALONE = "A store belongs to one running client: end that process, or name another file (store)"


class MetaKey(StrEnum):
    """Keys of stored values; messages are stored as they came, with their signatures."""

    DEVICE_SEED = "device_seed"
    SESSION = "session"
    FORGET_STATE = "forget_state"
    PACE = "pace"
    MODEL = "model"
    WITHDRAWN_BELOW = "withdrawn_below"
    LOCAL_STATE = "local_state"
    SETTLED_ROUND = "settled_round"
    FEDERATOR_KEY = "federator_key"
    """The operator's newest statement of the federator's key."""
    SUCCESSION = "succession"
    """The chain from the enrolment key in the credentials to the operator's present one."""
    AUTHORITIES = "authorities"
    """The operator's newest list of authorities (`foltr.broker.trusted_cas`)."""
    POLICY = "policy"
    POLICY_FORK_KNOWN = "policy_fork_known"
    """Two policies of which neither follows from the other are evidence."""
    POLICY_FORK_HEARD = "policy_fork_heard"
    AUDIT_HEAD = "audit_head"
    """The newest message about the log of erasures."""
    AUDIT_HEAD_BEFORE = "audit_head_before"
    """The last two heads that contradict each other are evidence."""
    AUDIT_HEAD_AFTER = "audit_head_after"


def synchronized(method: Callable[Concatenate[StoreT, P], R]) -> Callable[Concatenate[StoreT, P], R]:
    """Decorate a method so that one thread at a time runs it on an open store: it may read, then write."""

    @wraps(method)
    def by_itself(store: StoreT, /, *args: P.args, **kwargs: P.kwargs) -> R:
        with store.lock:
            store.check_open()
            return method(store, *args, **kwargs)

    return by_itself


class StoreFile:
    """An SQLite file of one client, or ``":memory:"``; for one process at a time, and all of its threads.

    Args:
        owner: federation and client; None opens any client's file, or one without an owner (`take_over`).

    Attributes:
        forgotten: the client was forgotten: the file holds only a mark that says so.
        owner: federation and client; None if it has no owner yet, or the client was forgotten and not named.
        lock: held by the thread that uses the file.
    """

    def __init__(self, path: str | Path, owner: tuple[str, str] | None) -> None:
        if not isinstance(path, str | os.PathLike):
            raise SettingsError(f"store: expected the path of a file, got {type(path).__name__}")
        self._path = str(path)
        self.owner = owner
        # By topic, trusted numbers that are not stored yet (`KnowledgeStore.note_believed`).
        self._unsaved: dict[str, tuple[bytes, int]] = {}
        self.lock = threading.RLock()
        self._gone = ""
        try:
            # At the latest when the store is garbage collected.
            self._release_lock = weakref.finalize(self, _release, take_lock(self._path))
            if self._path != ":memory:":
                create_private(Path(self._path))
            # A forked process has a copy of SQLite's note that the parent's connection locks the file, and SQLite would
            # never open it there. It need not lock: `take_lock` does.
            is_noted = Path(self._path).absolute() in _of_parents
            uri = f"file:{quote(self._path)}?vfs=unix-none"
            self._db = sqlite3.connect(
                uri if is_noted else path, isolation_level=None, timeout=1.0, check_same_thread=False, uri=is_noted
            )
            _open_files.add(self)
            try:
                self._prepare(owner)
                if self.forgotten:
                    self.overwrite()  # it may have been interrupted
            except BaseException:
                self.close()  # otherwise its lock would outlive the refusal
                raise
        except sqlite3.Error as error:
            self._release_lock()
            raise DataError(
                f"device store {path}: {error}. Name a writable file (store); a store belongs to one running client"
            ) from error

    def close(self) -> None:
        """Store what is noted and close the file; it cannot be used afterwards."""
        with self.lock:
            if self._gone:
                return
            if self._unsaved:
                with contextlib.suppress(DataError), self.transaction():
                    pass  # an empty transaction stores what was noted
            self._gone = "it is closed"
            self._db.close()
            self._release_lock()

    def check_open(self) -> None:
        """Raise UsageError if the file is closed, or was opened by a process that this one was forked from."""
        if self._gone:
            raise UsageError(f"device store {self._path}: {self._gone}")

    def abandon(self) -> None:
        """Let go of the file: this process was forked from the one that opened it, which goes on."""
        self.lock = threading.RLock()  # a thread that does not exist here may have held it
        _of_parents.add(Path(self._path).absolute())
        self._gone = "the parent of this process opened it. Construct the ranker or client after the fork"
        # Never closed here: closing, even at the end of the process, would write SQLite's log into the file and delete
        # it while the other process writes there. What it stored since would be lost at its next crash.
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._db))
        self._release_lock()  # this process's descriptor of the shared lock; the other process keeps its own

    # --- rows ----------------------------------------------------------------------------------------------

    @synchronized
    def rows(self, query: str, parameters: tuple[int | str | bytes, ...] = ()) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        return self._db.execute(query, parameters).fetchall()

    def meta(self, key: MetaKey) -> bytes | None:
        """Return the value of a key; None without one."""
        rows = self.rows("SELECT value FROM meta WHERE key = ?", (key,))
        return bytes(rows[0][0]) if rows else None

    def set_meta(self, values: Mapping[MetaKey, bytes | None]) -> None:
        """Store values by their keys, in one transaction; None deletes a value."""
        with self.transaction() as cursor:
            put_meta(cursor, values)

    def _prepare(self, owner: tuple[str, str] | None) -> None:
        # Two processes on one store would each train on the same clicks. The lock ends with the process.
        self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        self._db.execute("PRAGMA secure_delete = ON")
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, *UPGRADES, SCHEMA_VERSION):
            raise SettingsError(
                f"store: {self._path} is of version {version}, and this software reads version {SCHEMA_VERSION}. "
                "Use the software that wrote it, or name another file"
            )
        with self.transaction() as cursor:
            if version == 0:
                self._create(cursor)
            for statement in UPGRADES.get(version, ()):
                cursor.execute(statement)
            if version != SCHEMA_VERSION:
                cursor.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
            cursor.execute(RECENT_LISTS)
            self.forgotten = self.rows("SELECT state FROM owner") == [("forgotten",)]
            self._set_owner(cursor, owner)

    def _create(self, cursor: sqlite3.Cursor) -> None:
        if cursor.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone() is not None:
            raise SettingsError(f"store: {self._path} is not a database of foltr; name another file")
        for statement in SCHEMA.split(";\n"):
            cursor.execute(statement)
        self._begin(cursor)

    @staticmethod
    def _begin(cursor: sqlite3.Cursor) -> None:
        seed = secrets.randbits(63).to_bytes(8, "big")
        cursor.execute("INSERT INTO owner (only_one, state) VALUES (1, 'nobody')")
        cursor.execute("INSERT INTO bounds (only_one, watermark, floor) VALUES (1, NULL, 0)")
        put_meta(cursor, {MetaKey.DEVICE_SEED: seed})

    # --- whose it is ----------------------------------------------------------------------------------------

    def take_over(self, owner: tuple[str, str]) -> None:
        """Make this client the owner of a store without one; does nothing if it is the owner already.

        Raises:
            SettingsError: it is another client's, or a forgotten client's.
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
    def transaction(self, *, is_synced: bool = True) -> Iterator[sqlite3.Cursor]:
        """Run a transaction. On failure it changes nothing and raises DataError with the cause (e.g. a full disk).

        Args:
            is_synced: False does not wait for the disk: it outlives this process, perhaps not a power failure.
        """
        with self.lock:
            self.check_open()
            cursor = self._db.cursor()
            try:
                cursor.execute(f"PRAGMA synchronous = {'FULL' if is_synced else 'NORMAL'}")
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

    @synchronized
    def forget(self) -> None:
        """Delete everything for good, and leave a mark: that this file's client was forgotten, not who it was.

        The totals of what it has spent stay, and the progress of the wish. A store without an owner begins as a new
        one.

        Raises:
            DataError: nothing is deleted yet (``forgotten`` is False), or the deleted data could not be overwritten
                everywhere, which the next start does.
        """
        salt = secrets.token_bytes(_SALT_BYTES)
        if self.forgotten:
            self.overwrite()
            return
        with self.transaction() as cursor:
            # Also SQLite's count of how many interactions there ever were.
            tables = cursor.execute(
                "SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'participations' "
                "AND (name NOT LIKE 'sqlite_%' OR name = 'sqlite_sequence')"
            ).fetchall()
            for (table,) in tables:
                # The progress of the wish stays, one word: until a receipt arrives the wish is sent at every start.
                kept = " WHERE key <> 'forget_state'" if table == "meta" else ""
                cursor.execute(f"DELETE FROM {table}{kept}")  # noqa: S608 (our own tables)
            ledger.keep_totals(cursor)
            if self.owner is None:
                self._begin(cursor)
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
                f"device store {self._path}: {error}. Its rows are deleted; some of their bytes may stay in the "
                "file until it is opened again, or delete the file"
            ) from error

    def overwrite(self) -> None:
        """Erase deleted data, also of older software, from the file and from the log beside it."""
        self._db.execute("VACUUM")
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


_open_files: weakref.WeakSet[StoreFile] = weakref.WeakSet()
_of_parents: set[Path] = set()
"""Files that the processes had open which this one was forked from."""


def take_lock(path: str) -> int | None:
    """Lock the store for this process, as `foltr.core.file_locks.lock_store` does; None if it is not a file.

    Raises:
        DataError: another process has it.
    """
    if path == ":memory:" or not Path(path).parent.is_dir():
        return None  # SQLite reports what is wrong with the folder
    return lock_store(Path(path), "device store", _ALONE)


def _abandon_all() -> None:
    for file in list(_open_files):
        file.abandon()
    _open_files.clear()


os.register_at_fork(after_in_child=_abandon_all)


def put_meta(cursor: sqlite3.Cursor, values: Mapping[MetaKey, bytes | None]) -> None:
    """Store values by their keys; None deletes a value."""
    for key, value in values.items():
        if value is None:
            cursor.execute("DELETE FROM meta WHERE key = ?", (key,))
        else:
            cursor.execute("INSERT OR REPLACE INTO meta (key, value) VALUES (?, ?)", (key, value))


def _mark(salt: bytes, owner: tuple[str, str]) -> bytes:
    """Return a salted mark: the finder of a store can only test guesses of the name."""
    return salt + hashlib.sha256(salt + "/".join(owner).encode()).digest()


def _release(lock: int | None) -> None:
    if lock is not None:
        os.close(lock)
