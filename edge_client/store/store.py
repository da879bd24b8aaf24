"""A device remembers across restarts its clicks, its unsent update and the newest model.

One SQLite file, by the standard library alone. Every change is one transaction and, by default, on disk when
the call returns, so that a device that loses power loses nothing it was told is recorded.

Interactions are numbered, and no number is used twice. What one is follows from numbers alone:

* up to the *mark* they count, as the federation says with every answer; the newest of them are kept, to be learned
  again if they count no more, or if another client is to be unlearned;
* up to the *floor* they are spent: they were sent with noise of the device's own, and are never learned again;
* those that the pending update covers wait for its receipt;
* all others wait to be learned.

So a click is in no two updates that count, as far as the device can tell; that it never is, the federator's database
sees to. What a method keeps on the device alone goes with the mark, back too.
"""

import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from edge_client.store.bounds import Bounds, PendingUpdate, Settlement
from edge_client.store.store_file import StoreFile
from foltr.errors import DataError
from foltr.failpoints import Failpoint, failpoint
from foltr.learning.interaction import Interaction

__all__ = ["DeviceStore", "Interaction"]

KEPT_INTERACTIONS = 500
# The mark goes back by one update, or as far as a database that was restored.
_REMEMBERED_UPDATES = 4


class DeviceStore(StoreFile):
    """The device's own database; one process at a time.

    Args:
        path: a file, created if missing, or ``":memory:"`` for a device that need not survive a restart.
        max_interactions: when this many wait, the oldest not yet in an update makes room for a new one.
        max_kept: of the interactions that count, how many are kept; the oldest go.

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
        # As in the file: nobody else writes there, and each transaction that changes them sets them once it is done.
        self._bounds = self._read_bounds()
        if len(self.kept_ids()) > max_kept:  # fewer than before are to be kept
            try:
                with self.transaction() as cursor:
                    self._trim_kept(cursor, self.mark())
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
            failpoint(Failpoint.IN_INTERACTION_TRANSACTION)
        failpoint(Failpoint.INTERACTION_STORED)
        return Interaction(row_id, features, ranking, clicks, variant, base_version, scores)

    def waiting_ids(self, limit: int) -> list[int]:
        """Return the ids of the oldest interactions that wait to be learned."""
        rows = self._db.execute(
            "SELECT id FROM interactions WHERE id > ? ORDER BY id LIMIT ?", (self._bounds.learned, limit)
        )
        return [row[0] for row in rows]

    def waiting_interactions(self, limit: int, above: int = 0) -> list[Interaction]:
        """Return the oldest interactions that wait to be learned, of those with an id above ``above``."""
        rows = self._db.execute(
            "SELECT id, n_documents, features, ranking, clicks, scores, variant, base_version FROM interactions "
            "WHERE id > ? ORDER BY id LIMIT ?",
            (max(above, self._bounds.learned), limit),
        )
        return [_interaction(*row) for row in rows]

    def discard_interactions(self, ids: Sequence[int]) -> None:
        """Delete interactions that can never be used, e.g. with other features than the ranker's."""
        with self.transaction() as cursor:
            cursor.executemany("DELETE FROM interactions WHERE id = ?", [(i,) for i in ids])

    def n_waiting(self) -> int:
        """Count the interactions that wait to be learned."""
        return self._n_above(self._bounds.learned)

    # --- what counts ----------------------------------------------------------------------------------------

    def mark(self) -> int | None:
        """Return the last interaction that counts; 0 before the first, None before the federation has told it."""
        return self._bounds.mark

    def settle(self, mark: int, answered: str | None = None) -> Settlement:
        """Take the mark of an answer: what is up to it counts, and what is above it is to be learned.

        The pending update goes if it counts. What it covers waits again if it does not, and has its answer.

        Args:
            answered: the update_id that the answer settles for good, if it does that.
        """
        bounds = self._bounds
        before, pending = bounds.mark, bounds.pending
        counted = pending is not None and mark >= pending.through
        given_up = not counted and pending is not None and pending.update_id == answered
        lost = before is not None and mark < before and mark < self._newest_began(before)
        settlement = Settlement(before, mark, counted, given_up, lost)
        if not settlement.changed:
            return settlement
        with self.transaction() as cursor:
            self._number_above(cursor, mark, is_new=before is None)
            if pending is not None and counted:
                self._remember_counted(cursor, pending)
            if counted or given_up:
                cursor.execute("DELETE FROM pending_update")
            cursor.execute("UPDATE bounds SET mark = ?", (mark,))
            if bounds.floor:
                cursor.execute(
                    "DELETE FROM interactions WHERE id <= ? "
                    "AND NOT EXISTS (SELECT 1 FROM pending_update WHERE after < interactions.id)",
                    (bounds.floor,),
                )
            self._trim_kept(cursor, mark)
            failpoint(Failpoint.IN_SETTLEMENT_TRANSACTION)
        self._bounds = replace(bounds, mark=mark, pending=None if counted or given_up else pending)
        failpoint(Failpoint.SETTLEMENT_STORED)
        return settlement

    def _number_above(self, cursor: sqlite3.Cursor, mark: int, *, is_new: bool) -> None:
        """See that the next interaction is numbered above the mark.

        A store that has not known a mark is a new one; what it has recorded counted nowhere, and is numbered anew. One
        that is behind the mark is older than what was sent from it.
        """
        highest = cursor.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'interactions'")
        newest = highest.fetchone()[0]
        if is_new and mark:
            # In two steps: no number may be there twice in between.
            cursor.execute("UPDATE interactions SET id = -id")
            cursor.execute("UPDATE interactions SET id = ? - id", (mark,))
        following = newest + mark if is_new else max(newest, mark)
        if following != newest:
            cursor.execute("DELETE FROM sqlite_sequence WHERE name = 'interactions'")
            cursor.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('interactions', ?)", (following,))

    def _newest_began(self, mark: int) -> int:
        """Return the mark before the newest update that counts: no federation that lost nothing has a lower one."""
        row = self._db.execute(
            "SELECT after FROM counted_updates WHERE through <= ? ORDER BY through DESC LIMIT 1", (mark,)
        ).fetchone()
        return 0 if row is None else int(row[0])

    @staticmethod
    def _remember_counted(cursor: sqlite3.Cursor, update: PendingUpdate) -> None:
        # What counted above where it begins was taken back before.
        cursor.execute(
            "DELETE FROM counted_updates WHERE through NOT IN "
            "(SELECT through FROM counted_updates WHERE through <= ? ORDER BY through DESC LIMIT ?)",
            (update.after, _REMEMBERED_UPDATES - 1),
        )
        cursor.execute(
            "INSERT INTO counted_updates (through, after, local_state) VALUES (?, ?, ?)",
            (update.through, update.after, update.local_state),
        )

    # --- the unsent update ----------------------------------------------------------------------------------

    def put_update(self, update: PendingUpdate, interaction_ids: Sequence[int], *, spent: bool = False) -> None:
        """Make ``update`` the pending one, made of these interactions; its local state is kept with it.

        Args:
            spent: they are never learned again, whatever becomes of the update.

        Raises:
            DataError: they are not those that wait up to ``through``, or the mark is not ``after``; nothing is changed.
        """
        bounds = self._bounds
        with self.transaction() as cursor:
            waiting = cursor.execute(
                "SELECT id FROM interactions WHERE id > ? AND id <= ? ORDER BY id",
                (bounds.learned, update.through),
            ).fetchall()
            if [row[0] for row in waiting] != list(interaction_ids) or bounds.mark != update.after:
                raise DataError(
                    f"update {update.update_id}: its {len(interaction_ids)} interactions are not the {len(waiting)} "
                    f"that wait up to {update.through}, or {update.after} is not what counts"
                )
            cursor.execute(
                "INSERT INTO pending_update (only_one, update_id, round, after, through, payload, local_state) "
                "VALUES (1, ?, ?, ?, ?, ?, ?)",
                (update.update_id, update.round, update.after, update.through, update.payload, update.local_state),
            )
            if spent:
                cursor.execute("UPDATE bounds SET floor = ?", (update.through,))
            failpoint(Failpoint.IN_UPDATE_TRANSACTION)
        self._bounds = replace(bounds, pending=update, floor=update.through if spent else bounds.floor)
        failpoint(Failpoint.UPDATE_STORED)

    def pending_update(self) -> PendingUpdate | None:
        return self._bounds.pending

    def replace_payload(self, update_id: str, payload: bytes) -> None:
        """Keep an update in other bytes, e.g. signed with another key."""
        with self.transaction() as cursor:
            cursor.execute("UPDATE pending_update SET payload = ? WHERE update_id = ?", (payload, update_id))
        self._bounds = self._read_bounds()

    def local_state(self) -> bytes | None:
        """Return the state that the newest update left: the pending one, or else the newest that counts."""
        mark, pending = self._bounds.mark, self._bounds.pending
        if pending is not None and pending.local_state is not None:
            return pending.local_state
        row = self._db.execute(
            "SELECT local_state FROM counted_updates WHERE through <= ? AND local_state IS NOT NULL "
            "ORDER BY through DESC LIMIT 1",
            (mark or 0,),
        ).fetchone()
        return None if row is None else bytes(row[0])

    # --- what is kept of what counts ----------------------------------------------------------------------------

    def kept_ids(self) -> list[int]:
        """Return the ids of the interactions that count and are kept, the oldest first."""
        rows = self._db.execute("SELECT id FROM interactions WHERE id <= ? ORDER BY id", (self.mark() or 0,))
        return [row[0] for row in rows]

    def kept_interaction(self, kept_id: int) -> Interaction:
        """Return an interaction that `kept_ids` names."""
        row = self._db.execute(
            "SELECT id, n_documents, features, ranking, clicks, scores FROM interactions WHERE id = ?", (kept_id,)
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

    # --- what the federator said last -------------------------------------------------------------------------

    def newest_believed(self, topic: str) -> int:
        """Return the highest sequence number that was believed on a topic; 0 before the first."""
        return int.from_bytes(self._meta(f"believed {topic}") or b"", "big")

    def note_believed(self, topic: str, sequence: int) -> None:
        """Remember what was believed: nothing older is, whoever repeats it, also after a restart.

        It is stored with the next change, so with whatever follows from what was believed. If the device dies before
        there is one, it is as if it had not been heard.
        """
        self._note(f"believed {topic}", sequence.to_bytes(8, "big"))

    def federator_key(self) -> bytes | None:
        """Return the operator's newest statement of the federator's key; None before the first."""
        return self._meta("federator_key")

    def put_federator_key(self, statement: bytes) -> None:
        """Keep the operator's newest statement of the federator's key."""
        with self.transaction() as cursor:
            cursor.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('federator_key', ?)", (statement,))

    # --- the newest model -----------------------------------------------------------------------------------

    def put_model(self, announcement: bytes) -> None:
        """Keep the newest model's announcement, so that a device can rank before it is connected."""
        with self.transaction() as cursor:
            cursor.execute("INSERT OR REPLACE INTO meta (key, value) VALUES ('model', ?)", (announcement,))
            failpoint(Failpoint.IN_MODEL_TRANSACTION)
        failpoint(Failpoint.MODEL_STORED)

    def remove_model(self) -> None:
        """Keep no model: the one there was is withdrawn."""
        with self.transaction() as cursor:
            cursor.execute("DELETE FROM meta WHERE key = 'model'")

    def model(self) -> bytes | None:
        return self._meta("model")

    def forget(self) -> None:
        try:
            super().forget()
        finally:
            self._bounds = self._read_bounds()

    # --- helpers -------------------------------------------------------------------------------------------

    def _read_bounds(self) -> Bounds:
        # A store whose client was forgotten has none.
        mark, floor = self._db.execute("SELECT mark, floor FROM bounds").fetchone() or (None, 0)
        pending = self._db.execute(
            "SELECT update_id, round, after, through, payload, local_state FROM pending_update"
        ).fetchone()
        return Bounds(mark, floor, None if pending is None else PendingUpdate(*pending))

    def _n_above(self, number: int) -> int:
        return int(self._db.execute("SELECT count(*) FROM interactions WHERE id > ?", (number,)).fetchone()[0])

    def _trim_kept(self, cursor: sqlite3.Cursor, mark: int | None) -> None:
        cursor.execute(
            "DELETE FROM interactions WHERE id IN "
            "(SELECT id FROM interactions WHERE id <= ? ORDER BY id DESC LIMIT -1 OFFSET ?)",
            (mark or 0, self._max_kept),
        )

    def _make_room(self, cursor: sqlite3.Cursor) -> None:
        n_too_many = self._n_above(self.mark() or 0) - self._max_interactions
        if n_too_many > 0:
            cursor.execute(
                "DELETE FROM interactions WHERE id IN (SELECT id FROM interactions WHERE id > ? ORDER BY id LIMIT ?)",
                (self._bounds.learned, n_too_many),
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
