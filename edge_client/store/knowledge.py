"""What a device's store knows of the federation, and what the device has answered.

Also: what the device drew for itself when the store was made, its newest session, and its user's wish.
"""

import sqlite3
import struct
from collections.abc import Sequence

from foltr.core.erasure.states import ForgetState
from foltr.core.failpoints import Failpoint, failpoint
from foltr.core.learning.comparison import Comparison
from foltr.edge_client.store.store_file import MetaKey, StoreFile, put_meta, synchronized

AnchorKey = tuple[int, bytes]
"""An anchor's version, and the hash of its weights: a restored federation reuses versions for other models."""
Erasure = tuple[int, bytes]
"""An entry of the audit log, by its number and its hash."""

_SUMS = "n_lists, weight, difference, square_weight, square_difference, square_difference_square"


class KnowledgeStore(StoreFile):
    """The part of a `DeviceStore` that has nothing to do with interactions."""

    def device_seed(self) -> int:
        """Return 63 bits, drawn when the store was made, so that a method's draws are the same after a restart."""
        return int.from_bytes(self.meta(MetaKey.DEVICE_SEED) or b"", "big")

    def newest_session(self) -> int:
        """Return the highest session begun on this device; 0 before the first."""
        return int.from_bytes(self.meta(MetaKey.SESSION) or b"", "big")

    def put_session(self, session: int) -> None:
        """Store a session before anything is sent in it: later ones must be higher, even if the clock goes back."""
        self.set_meta({MetaKey.SESSION: session.to_bytes(8, "big")})

    def forget_state(self) -> ForgetState | None:
        """Return the stored state of the user's wish to be forgotten; None if nobody asked on this device."""
        kept = self.meta(MetaKey.FORGET_STATE)
        return None if kept is None else ForgetState(kept.decode())

    def put_forget_state(self, state: ForgetState | None) -> None:
        """Store the progress of the wish, which survives the erasure of the rest; None: it was refused.

        The wish is stored before it is sent, so that the next start sends it again after any crash.
        """
        with self.transaction() as cursor:
            put_meta(cursor, {MetaKey.FORGET_STATE: None if state is None else state.encode()})
            failpoint(Failpoint.IN_WISH_TRANSACTION)
        failpoint(Failpoint.WISH_STORED)

    # --- what the federator said last -------------------------------------------------------------------------

    def newest_believed(self, topic: str, signer: bytes) -> int:
        """Return the highest trusted sequence number of a key on a topic; 0 before the first."""
        noted_signer, sequence = self._unsaved.get(topic, (b"", 0))
        if noted_signer == signer:
            return sequence
        rows = self.rows("SELECT sequence FROM believed WHERE topic = ? AND signer = ?", (topic, signer))
        return int(rows[0][0]) if rows else 0

    @synchronized
    def note_believed(self, topic: str, signer: bytes, sequence: int) -> None:
        """Remember a trusted message: older ones of this key are refused, also after a restart.

        Numbers of an older key are dropped: it is no longer trusted, and it may have been stolen. They are stored with
        the next change, so with the consequences of the message, or when the file is closed. If the device dies before,
        it is as if the message had not arrived.
        """
        self._unsaved[topic] = (signer, sequence)

    def put_pace(self, period_s: float | None, next_at: float | None) -> None:
        """Store how often the device connects, and when it does next, in epoch seconds; None: it stays connected."""
        self.set_meta(
            {MetaKey.PACE: None if period_s is None or next_at is None else struct.pack("<dd", period_s, next_at)}
        )

    def pace(self) -> tuple[float, float] | None:
        """Return what `put_pace` stored; None if the device stays connected, as far as it knows."""
        kept = self.meta(MetaKey.PACE)
        if kept is None:
            return None
        period_s, next_at = struct.unpack("<dd", kept)
        return period_s, next_at

    # --- the newest model -----------------------------------------------------------------------------------

    def put_model(self, announcement: bytes) -> None:
        """Store the newest model's announcement, so that a device can rank before it is connected."""
        with self.transaction() as cursor:
            put_meta(cursor, {MetaKey.MODEL: announcement})
            failpoint(Failpoint.IN_MODEL_TRANSACTION)
        failpoint(Failpoint.MODEL_STORED)

    def put_withdrawal(self, below: int, *, removes_model: bool) -> None:
        """Store the version below which no model may be used, and delete the model and the anchor if below it."""
        with self.transaction() as cursor:
            put_meta(cursor, {MetaKey.WITHDRAWN_BELOW: below.to_bytes(8, "big")})
            if removes_model:
                put_meta(cursor, {MetaKey.MODEL: None})
            delete_anchor(cursor, below)

    def withdrawn_below(self) -> int:
        """Return the version below which no model may be used; 0 before the first withdrawal."""
        return int.from_bytes(self.meta(MetaKey.WITHDRAWN_BELOW) or b"", "big")

    def put_anchor(self, key: AnchorKey, announcement: bytes) -> None:
        """Store the anchor's announcement, and delete the newest model's comparison with another anchor."""
        with self.transaction() as cursor:
            cursor.execute(
                "INSERT OR REPLACE INTO anchor (only_one, version, hash, announcement) VALUES (1, ?, ?, ?)",
                (*key, announcement),
            )
            cursor.execute("DELETE FROM comparison WHERE anchor_version <> ? OR anchor_hash <> ?", key)

    def drop_anchor(self) -> None:
        """Delete the anchor and its comparison."""
        with self.transaction() as cursor:
            delete_anchor(cursor)

    def anchor(self) -> bytes | None:
        """Return the announcement of the anchor as it came; None without one."""
        rows = self.rows("SELECT announcement FROM anchor")
        return bytes(rows[0][0]) if rows else None

    def comparison(self, key: AnchorKey) -> Comparison:
        """Return the newest model's stored comparison with this anchor."""
        which = "WHERE anchor_version = ? AND anchor_hash = ?"
        rows = self.rows(f"SELECT {_SUMS} FROM comparison {which}", key)  # noqa: S608 (our own)
        return Comparison(*rows[0]) if rows else Comparison()

    # --- answers to steps of unlearning jobs --------------------------------------------------------------------

    def n_answered(self, day: int) -> int:
        """Count the steps answered on a day, or on the newest one if the clock was set back behind it."""
        rows = self.rows("SELECT steps FROM answered_steps WHERE day >= ?", (day,))
        return int(rows[0][0]) if rows else 0

    def jobs_of(self, erasure: Erasure) -> set[int]:
        """Return the jobs for which an erasure was named."""
        rows = self.rows("SELECT job FROM named_erasures WHERE audit_seq = ? AND audit_hash = ?", erasure)
        return {int(row[0]) for row in rows}

    def count_answer(self, day: int, interaction_ids: Sequence[int], job: int, named: Sequence[Erasure]) -> None:
        """Count an answer before it may be sent: per day, per interaction, and per erasure of the job."""
        with self.transaction() as cursor:
            cursor.execute(
                "INSERT INTO answered_steps (only_one, day, steps) VALUES (1, ?, 1) ON CONFLICT DO UPDATE "
                "SET steps = CASE WHEN excluded.day > day THEN 1 ELSE steps + 1 END, day = max(day, excluded.day)",
                (day,),
            )
            cursor.executemany(
                "UPDATE interactions SET relearned = relearned + 1 WHERE id = ?", [(one,) for one in interaction_ids]
            )
            cursor.executemany(
                "INSERT OR IGNORE INTO named_erasures (audit_seq, audit_hash, job) VALUES (?, ?, ?)",
                [(*one, job) for one in named],
            )


def delete_anchor(cursor: sqlite3.Cursor, below: int | None = None) -> None:
    """Delete the anchor and its comparison; with ``below``, only if its version is below that."""
    cursor.execute("DELETE FROM anchor WHERE ?1 IS NULL OR version < ?1", (below,))
    cursor.execute("DELETE FROM comparison WHERE ?1 IS NULL OR anchor_version < ?1", (below,))


def write_comparison(cursor: sqlite3.Cursor, key: AnchorKey, comparison: Comparison) -> None:
    """Replace the newest model's comparison with this anchor."""
    cursor.execute(
        f"INSERT OR REPLACE INTO comparison (only_one, anchor_version, anchor_hash, {_SUMS}) "  # noqa: S608 (our own)
        "VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*key, *comparison),
    )
