"""A device remembers across restarts its clicks, its unsent update and the newest model.

One SQLite file, by the standard library alone. Every change is one transaction and, by default, on disk when
the call returns, so that a device that loses power loses nothing it was told is recorded. What must never
happen is one interaction in two counted updates: an update takes its interactions in the same transaction
that stores it, and they are spent in the same transaction that removes it. A method's local state goes the
same way: it becomes the device's own in the transaction that spends the interactions it was learned from.

Some of what is spent is kept, to learn from it again if another client is to be unlearned; nothing of it is sent.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge_client.store.store_file import StoreFile
from foltr.errors import DataError
from foltr.learning.interaction import Interaction

__all__ = ["DeviceStore", "Interaction", "PendingUpdate"]

KEPT_INTERACTIONS = 500


@dataclass(frozen=True)
class PendingUpdate:
    """An update that has no receipt yet, as the bytes that are sent until it has one.

    Attributes:
        local_state: what the device keeps to itself of what it learned, if its method has such a thing.
    """

    update_id: str
    round: int
    payload: bytes
    local_state: bytes | None = field(default=None, repr=False)


class DeviceStore(StoreFile):
    """The device's own database; one process at a time.

    Args:
        path: a file, created if missing, or ``":memory:"`` for a device that need not survive a restart.
        max_interactions: when this many wait, the oldest not yet in an update makes room for a new one.
        max_kept: of the interactions that are spent, how many are kept; the oldest go.

    Attributes:
        n_dropped: how many interactions made room for newer ones.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        client_id: str,
        federation: str,
        max_interactions: int,
        max_kept: int = KEPT_INTERACTIONS,
    ) -> None:
        super().__init__(path, client_id=client_id, federation=federation)
        self.n_dropped = 0
        self._max_interactions = max_interactions
        self._max_kept = max_kept
        if len(self.kept_ids()) > max_kept:  # fewer than before are to be kept
            try:
                with self.transaction() as cursor:
                    self._trim_kept(cursor)
            except DataError:
                self.close()
                raise

    # --- interactions ---------------------------------------------------------------------------------------

    def add_interaction(
        self,
        serp_id: str,
        features: npt.NDArray[np.float32],
        ranking: npt.NDArray[np.int64],
        clicks: npt.NDArray[np.bool_],
        variant: int = 0,
        base_version: int | None = None,
        scores: npt.NDArray[np.float32] | None = None,
    ) -> Interaction | None:
        """Store an interaction; None if this result list is stored already. The arguments are `Interaction`'s."""
        values = (
            serp_id,
            len(features),
            features.astype("<f4", copy=False).tobytes(),
            ranking.astype("<i8", copy=False).tobytes(),
            clicks.astype("u1").tobytes(),
            variant,
            base_version,
            None if scores is None else scores.astype("<f4", copy=False).tobytes(),
        )
        with self.transaction() as cursor:
            cursor.execute(
                "INSERT OR IGNORE INTO interactions "
                "(serp_id, n_documents, features, ranking, clicks, variant, base_version, scores) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                values,
            )
            row_id = cursor.lastrowid
            if cursor.rowcount != 1 or row_id is None:
                return None
            self._make_room(cursor)
            return Interaction(row_id, features, ranking, clicks, variant, base_version, scores)

    def waiting_interactions(self, limit: int) -> list[Interaction]:
        """Return the oldest interactions that no update holds."""
        rows = self._db.execute(
            "SELECT id, n_documents, features, ranking, clicks, scores, variant, base_version FROM interactions "
            "WHERE update_id IS NULL ORDER BY id LIMIT ?",
            (limit,),
        )
        return [_interaction(*row) for row in rows]

    def discard_interactions(self, ids: Sequence[int]) -> None:
        """Delete interactions that can never be used, e.g. with other features than the ranker's."""
        with self.transaction() as cursor:
            cursor.executemany("DELETE FROM interactions WHERE id = ?", [(i,) for i in ids])

    def n_waiting(self) -> int:
        """Count the interactions that no update holds."""
        return int(self._db.execute("SELECT count(*) FROM interactions WHERE update_id IS NULL").fetchone()[0])

    # --- the unsent update ----------------------------------------------------------------------------------

    def put_update(self, update: PendingUpdate, interaction_ids: Sequence[int]) -> None:
        """Make ``update`` the pending one, holding these interactions; its local state is kept with it.

        Raises:
            DataError: one of them is not waiting any more; nothing is changed.
        """
        with self.transaction() as cursor:
            cursor.execute(
                "INSERT INTO pending_update (only_one, update_id, round, payload, local_state) VALUES (1, ?, ?, ?, ?)",
                (update.update_id, update.round, update.payload, update.local_state),
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
        row = self._db.execute("SELECT update_id, round, payload, local_state FROM pending_update").fetchone()
        return None if row is None else PendingUpdate(*row)

    def remove_update(self, update_id: str, *, keep_interactions: bool, counted: bool = True) -> None:
        """Remove an update that has its receipt: spend its interactions, or give them back to be trained on again.

        Where they are spent and the update ``counted``, what was learned from them stays: its local state is the
        device's from now on, and the newest of them are kept. What the federation refused for good is forgotten here
        too. What a variant of the ranker earned is spent by being sent: told again with fresh noise, it would say more
        than the noise allows.
        """
        with self.transaction() as cursor:
            if counted and not keep_interactions:
                cursor.execute(
                    "INSERT INTO kept_interactions (id, n_documents, features, ranking, clicks, scores) "
                    "SELECT id, n_documents, features, ranking, clicks, scores FROM interactions "
                    "WHERE update_id = ? AND variant = 0 ORDER BY id DESC LIMIT ?",
                    (update_id, self._max_kept),
                )
                self._trim_kept(cursor)
                cursor.execute(
                    "INSERT OR REPLACE INTO meta (key, value) SELECT 'local_state', local_state FROM pending_update "
                    "WHERE update_id = ? AND local_state IS NOT NULL",
                    (update_id,),
                )
            cursor.execute("DELETE FROM pending_update WHERE update_id = ?", (update_id,))
            if keep_interactions:
                cursor.execute(
                    "UPDATE interactions SET update_id = NULL WHERE update_id = ? AND variant = 0", (update_id,)
                )
            cursor.execute("DELETE FROM interactions WHERE update_id = ?", (update_id,))

    def replace_payload(self, update_id: str, payload: bytes) -> None:
        """Keep an update in other bytes, e.g. signed with another key."""
        with self.transaction() as cursor:
            cursor.execute("UPDATE pending_update SET payload = ? WHERE update_id = ?", (payload, update_id))

    def local_state(self) -> bytes | None:
        """Return the state that the newest update left: the pending one, or else the last that was settled."""
        row = self._db.execute(
            "SELECT coalesce((SELECT local_state FROM pending_update), "
            "(SELECT value FROM meta WHERE key = 'local_state'))"
        ).fetchone()
        return None if row[0] is None else bytes(row[0])

    # --- what is kept of spent interactions ---------------------------------------------------------------------

    def kept_ids(self) -> list[int]:
        """Return the ids of the interactions that are kept, the oldest first."""
        return [row[0] for row in self._db.execute("SELECT id FROM kept_interactions ORDER BY id")]

    def kept_interaction(self, kept_id: int) -> Interaction:
        """Return an interaction that `kept_ids` names."""
        row = self._db.execute(
            "SELECT id, n_documents, features, ranking, clicks, scores FROM kept_interactions WHERE id = ?", (kept_id,)
        ).fetchone()
        return _interaction(*row)

    # --- what is the device's own -------------------------------------------------------------------------------

    def device_seed(self) -> int:
        """Return 63 bits, drawn when the store was made: what a method draws by them is the same after a restart."""
        return int.from_bytes(self._meta("device_seed") or b"", "big")

    # --- sessions -------------------------------------------------------------------------------------------

    def newest_session(self) -> int:
        """Return the highest session that was begun on this device; 0 before the first."""
        return int.from_bytes(self._meta("session") or b"", "big")

    def put_session(self, session: int) -> None:
        """Remember a session before anything is sent in it: later ones must be higher, whatever the clock says."""
        with self.transaction() as cursor:
            cursor.execute(
                "INSERT OR REPLACE INTO meta (key, value) VALUES ('session', ?)", (session.to_bytes(8, "big"),)
            )

    # --- the newest model -----------------------------------------------------------------------------------

    def put_model(self, announcement: bytes) -> None:
        """Keep the newest model's announcement, so that a device can rank before it is connected."""
        with self.transaction() as cursor:
            cursor.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('model', ?)", (announcement,))

    def model(self) -> bytes | None:
        return self._meta("model")

    # --- helpers -------------------------------------------------------------------------------------------

    def _trim_kept(self, cursor: sqlite3.Cursor) -> None:
        cursor.execute(
            "DELETE FROM kept_interactions WHERE id NOT IN (SELECT id FROM kept_interactions ORDER BY id DESC LIMIT ?)",
            (self._max_kept,),
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


def _interaction(
    row_id: int,
    n_documents: int,
    features: bytes,
    ranking: bytes,
    clicks: bytes,
    scores: bytes | None,
    variant: int = 0,
    base_version: int | None = None,
) -> Interaction:
    return Interaction(
        row_id,
        np.frombuffer(features, "<f4").reshape(n_documents, -1),
        np.frombuffer(ranking, "<i8"),
        np.frombuffer(clicks, "u1").astype(np.bool_),
        variant,
        base_version,
        None if scores is None else np.frombuffer(scores, "<f4"),
    )
