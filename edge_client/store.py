"""What a device remembers across restarts: its clicks, its unsent update, the newest model.

One SQLite file, by the standard library alone. Every change is one transaction and, by default, on disk when
the call returns, so that a device that loses power loses nothing it was told is recorded. What must never
happen is one interaction in two counted updates: an update takes its interactions in the same transaction
that stores it, and they are deleted in the same transaction that removes it.
"""

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from foltr.errors import DataError, SettingsError

_SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value BLOB NOT NULL) STRICT;
CREATE TABLE interactions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,  -- never used again: the agent remembers by it what it has learned
    serp_id TEXT NOT NULL UNIQUE,
    n_documents INTEGER NOT NULL CHECK (n_documents > 0),
    features BLOB NOT NULL,   -- little-endian float32, (n_documents, features), row by row
    ranking BLOB NOT NULL,    -- little-endian int64: the shown documents, best first
    clicks BLOB NOT NULL,     -- one byte a shown document: 1 clicked, 0 not
    update_id TEXT            -- the unsent update that holds it, if one does
) STRICT;
CREATE TABLE pending_update (
    only_one INTEGER PRIMARY KEY CHECK (only_one = 1),
    update_id TEXT NOT NULL,
    round INTEGER NOT NULL,
    payload BLOB NOT NULL
) STRICT;
"""


@dataclass(frozen=True)
class Interaction:
    """One shown result list and the clicks on it.

    Attributes:
        features: (documents, features) float32, all candidates, not only the shown ones.
        ranking: (shown,) int64, indices into ``features``, best first.
        clicks: (shown,) bool.
    """

    id: int
    features: npt.NDArray[np.float32]
    ranking: npt.NDArray[np.int64]
    clicks: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class PendingUpdate:
    """An update that has no receipt yet, as the bytes that are sent until it has one."""

    update_id: str
    round: int
    payload: bytes


class DeviceStore:
    """The device's own database; one process at a time.

    Args:
        path: a file, created if missing, or ``":memory:"`` for a device that need not survive a restart.
        max_interactions: when this many wait, the oldest not yet in an update makes room for a new one.
    """

    def __init__(self, path: str | Path, *, client_id: str, federation: str, max_interactions: int) -> None:
        self._path = str(path)
        self.n_dropped = 0  # how many interactions made room for newer ones
        self._max_interactions = max_interactions
        try:
            _create_private(self._path)
            self._db = sqlite3.connect(path, isolation_level=None, timeout=1.0)
            try:
                self._prepare(str(path), client_id, federation)
            except BaseException:
                self._db.close()  # or its lock would outlive the refusal
                raise
        except sqlite3.Error as error:
            raise DataError(
                f"device store {path}: {error}. Name a writable file with store= or --store; "
                "a store belongs to one running client"
            ) from error

    def close(self) -> None:
        self._db.close()

    # --- interactions ---------------------------------------------------------------------------------------

    def add_interaction(
        self,
        serp_id: str,
        features: npt.NDArray[np.float32],
        ranking: npt.NDArray[np.int64],
        clicks: npt.NDArray[np.bool_],
    ) -> Interaction | None:
        """Store an interaction; None if this result list is stored already."""
        values = (
            serp_id,
            len(features),
            features.astype("<f4", copy=False).tobytes(),
            ranking.astype("<i8", copy=False).tobytes(),
            clicks.astype("u1").tobytes(),
        )
        with self._transaction() as cursor:
            cursor.execute(
                "INSERT OR IGNORE INTO interactions (serp_id, n_documents, features, ranking, clicks) "
                "VALUES (?, ?, ?, ?, ?)",
                values,
            )
            row_id = cursor.lastrowid
            if cursor.rowcount != 1 or row_id is None:
                return None
            self._make_room(cursor)
            return Interaction(row_id, features, ranking, clicks)

    def waiting_interactions(self, limit: int) -> list[Interaction]:
        """The oldest interactions that no update holds."""
        rows = self._db.execute(
            "SELECT id, n_documents, features, ranking, clicks FROM interactions "
            "WHERE update_id IS NULL ORDER BY id LIMIT ?",
            (limit,),
        )
        return [_interaction(*row) for row in rows]

    def discard_interactions(self, ids: Sequence[int]) -> None:
        """Delete interactions that can never be used, e.g. with other features than the ranker's."""
        with self._transaction() as cursor:
            cursor.executemany("DELETE FROM interactions WHERE id = ?", [(i,) for i in ids])

    def n_waiting(self) -> int:
        """How many interactions no update holds."""
        return int(self._db.execute("SELECT count(*) FROM interactions WHERE update_id IS NULL").fetchone()[0])

    # --- the unsent update ----------------------------------------------------------------------------------

    def put_update(self, update: PendingUpdate, interaction_ids: Sequence[int]) -> None:
        """Make ``update`` the pending one, holding these interactions.

        Raises:
            DataError: one of them is not waiting any more; nothing is changed.
        """
        with self._transaction() as cursor:
            cursor.execute(
                "INSERT INTO pending_update (only_one, update_id, round, payload) VALUES (1, ?, ?, ?)",
                (update.update_id, update.round, update.payload),
            )
            cursor.executemany(
                "UPDATE interactions SET update_id = ? WHERE id = ? AND update_id IS NULL",
                [(update.update_id, i) for i in interaction_ids],
            )
            if cursor.rowcount != len(interaction_ids):
                raise DataError(
                    f"update {update.update_id}: only {cursor.rowcount} of its {len(interaction_ids)} interactions "
                    "are still waiting"
                )

    def pending_update(self) -> PendingUpdate | None:
        row = self._db.execute("SELECT update_id, round, payload FROM pending_update").fetchone()
        return None if row is None else PendingUpdate(*row)

    def remove_update(self, update_id: str, *, keep_interactions: bool) -> None:
        """The update has its receipt: spend its interactions, or give them back to be trained on again."""
        with self._transaction() as cursor:
            cursor.execute("DELETE FROM pending_update WHERE update_id = ?", (update_id,))
            if keep_interactions:
                cursor.execute("UPDATE interactions SET update_id = NULL WHERE update_id = ?", (update_id,))
            else:
                cursor.execute("DELETE FROM interactions WHERE update_id = ?", (update_id,))

    def reseal_update(self, update_id: str, payload: bytes) -> None:
        """The same update in other bytes, e.g. signed with another key."""
        with self._transaction() as cursor:
            cursor.execute("UPDATE pending_update SET payload = ? WHERE update_id = ?", (payload, update_id))

    # --- sessions -------------------------------------------------------------------------------------------

    def newest_session(self) -> int:
        """The highest session that was begun on this device; 0 before the first."""
        row = self._db.execute("SELECT value FROM meta WHERE key = 'session'").fetchone()
        return 0 if row is None else int.from_bytes(row[0], "big")

    def put_session(self, session: int) -> None:
        """Remember a session before anything is sent in it: later ones must be higher, whatever the clock says."""
        with self._transaction() as cursor:
            cursor.execute(
                "INSERT OR REPLACE INTO meta (key, value) VALUES ('session', ?)", (session.to_bytes(8, "big"),)
            )

    # --- the newest model -----------------------------------------------------------------------------------

    def put_model(self, announcement: bytes) -> None:
        """Keep the newest model's announcement, so that a device can rank before it is connected."""
        with self._transaction() as cursor:
            cursor.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('model', ?)", (announcement,))

    def model(self) -> bytes | None:
        row = self._db.execute("SELECT value FROM meta WHERE key = 'model'").fetchone()
        return None if row is None else bytes(row[0])

    # --- helpers --------------------------------------------------------------------------------------------

    def _prepare(self, path: str, client_id: str, federation: str) -> None:
        # Two processes on one store would each train on the same clicks. The lock ends with the process.
        self._db.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = FULL")
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, _SCHEMA_VERSION):
            raise SettingsError(
                f"store: {path} is of version {version}, this software reads {_SCHEMA_VERSION}; upgrade it"
            )
        owner = f"{federation}/{client_id}".encode()
        with self._transaction() as cursor:
            if version == 0:
                for statement in _SCHEMA.split(";\n"):
                    cursor.execute(statement)
                cursor.execute("INSERT INTO meta (key, value) VALUES ('owner', ?)", (owner,))
                cursor.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
            stored = bytes(cursor.execute("SELECT value FROM meta WHERE key = 'owner'").fetchone()[0])
        if stored != owner:
            raise SettingsError(
                f"store: {path} belongs to {stored.decode()}, not to {owner.decode()}; one store per client"
            )

    def _make_room(self, cursor: sqlite3.Cursor) -> None:
        n_stored = cursor.execute("SELECT count(*) FROM interactions").fetchone()[0]
        if n_stored > self._max_interactions:
            cursor.execute(
                "DELETE FROM interactions WHERE id IN "
                "(SELECT id FROM interactions WHERE update_id IS NULL ORDER BY id LIMIT ?)",
                (n_stored - self._max_interactions,),
            )
            self.n_dropped += cursor.rowcount

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Cursor]:
        """BEGIN IMMEDIATE ... COMMIT, or nothing happened and DataError says why (say, a full disk)."""
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
            raise DataError(
                f"device store {self._path}: {error}. Nothing was changed; free space on its disk, "
                "and see that no other process uses it"
            ) from error


def _create_private(path: str) -> None:
    """Make the file, if it is to be one, so that only its owner can read the clicks in it; SQLite's others follow."""
    if path != ":memory:":
        with contextlib.suppress(FileExistsError, OSError):  # what is wrong with the path, SQLite will say
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


def _interaction(row_id: int, n_documents: int, features: bytes, ranking: bytes, clicks: bytes) -> Interaction:
    return Interaction(
        row_id,
        np.frombuffer(features, "<f4").reshape(n_documents, -1),
        np.frombuffer(ranking, "<i8"),
        np.frombuffer(clicks, "u1").astype(np.bool_),
    )
