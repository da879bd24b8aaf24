"""A device's store remembers what the device has heard, by key: models, keys, policies, and what was newest.

Beside it: what the device drew for itself when the store was made, and its newest session.
"""

import struct

from foltr.core.erasure.states import ForgetState
from foltr.core.failpoints import Failpoint, failpoint
from foltr.core.learning.comparison import Comparison
from foltr.edge_client.store import anchor_rows
from foltr.edge_client.store.anchor_rows import AnchorKey
from foltr.edge_client.store.store_file import StoreFile, alone, put_meta


class HeardStore(StoreFile):
    """The part of a `DeviceStore` that has one value for each key."""

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
        self._put_meta(session=session.to_bytes(8, "big"))

    # --- the wish to be forgotten -----------------------------------------------------------------------------

    def forget_state(self) -> ForgetState | None:
        """Return the stored state of the user's wish to be forgotten; None if nobody asked on this device."""
        kept = self._meta("forget_state")
        return None if kept is None else ForgetState(kept.decode())

    def put_forget_state(self, state: ForgetState | None) -> None:
        """Keep how far the wish is; None: it was refused, and the device goes on. It outlives the erasure of the rest.

        The wish is stored before it is sent, so that the next start sends it again after any crash.
        """
        with self.transaction() as cursor:
            put_meta(cursor, forget_state=None if state is None else state.value.encode())
            failpoint(Failpoint.IN_WISH_TRANSACTION)
        failpoint(Failpoint.WISH_STORED)

    # --- what the federator said last -------------------------------------------------------------------------

    def newest_believed(self, topic: str, signer: bytes) -> int:
        """Return the highest sequence number of a key's that was believed on a topic; 0 before the first."""
        noted_signer, sequence = self._unsaved.get(topic, (b"", 0))
        if noted_signer == signer:
            return sequence
        rows = self.rows("SELECT sequence FROM believed WHERE topic = ? AND signer = ?", (topic, signer))
        return int(rows[0][0]) if rows else 0

    @alone
    def note_believed(self, topic: str, signer: bytes, sequence: int) -> None:
        """Remember what was believed: nothing older of this key's is, whoever repeats it, also after a restart.

        What an older key said is remembered no more: nothing that it signs is believed, and it may have been stolen.
        It is stored with the next change, so with whatever follows from what was believed, or when the file is closed.
        If the device dies before, it is as if it had not been heard.
        """
        self._unsaved[topic] = (signer, sequence)

    def federator_key(self) -> bytes | None:
        """Return the operator's newest statement of the federator's key; None before the first."""
        return self._meta("federator_key")

    def put_federator_key(self, statement: bytes) -> None:
        """Keep the operator's newest statement of the federator's key."""
        self._put_meta(federator_key=statement)

    def succession(self) -> bytes | None:
        """Return how the operator's enrolment key followed from that of the credentials; None where it is that."""
        return self._meta("succession")

    def put_succession(self, succession: bytes) -> None:
        """Keep the newest succession of the operator's enrolment key."""
        self._put_meta(succession=succession)

    def authorities(self) -> bytes | None:
        """Return what is kept of the operator's newest list of authorities (`foltr.broker.believed`); None before
        it."""
        return self._meta("authorities")

    def put_authorities(self, kept: bytes) -> None:
        """Keep the operator's newest list of authorities."""
        self._put_meta(authorities=kept)

    # --- how often to come by -----------------------------------------------------------------------------------

    def put_pace(self, period_s: float | None, next_at: float | None) -> None:
        """Keep how often the device comes by, and when it does next, in seconds since the epoch; None: it stays."""
        self._put_meta(pace=None if period_s is None or next_at is None else struct.pack("<dd", period_s, next_at))

    def pace(self) -> tuple[float, float] | None:
        """Return what `put_pace` has kept; None where the device stays connected, as far as it knows."""
        kept = self._meta("pace")
        if kept is None:
            return None
        period_s, next_at = struct.unpack("<dd", kept)
        return period_s, next_at

    # --- the newest model -----------------------------------------------------------------------------------

    def put_model(self, announcement: bytes) -> None:
        """Keep the newest model's announcement, so that a device can rank before it is connected."""
        with self.transaction() as cursor:
            put_meta(cursor, model=announcement)
            failpoint(Failpoint.IN_MODEL_TRANSACTION)
        failpoint(Failpoint.MODEL_STORED)

    def put_withdrawal(self, below: int, *, removes_model: bool) -> None:
        """Keep the version below which no model is to be used, and neither the model nor an anchor that is below it."""
        with self.transaction() as cursor:
            put_meta(cursor, withdrawn_below=below.to_bytes(8, "big"))
            if removes_model:
                put_meta(cursor, model=None)
            anchor_rows.delete_anchor(cursor, below)

    def withdrawn_below(self) -> int:
        """Return the version below which no model is to be used; 0 before the federation has withdrawn any."""
        return int.from_bytes(self._meta("withdrawn_below") or b"", "big")

    def model(self) -> bytes | None:
        return self._meta("model")

    # --- the anchor -------------------------------------------------------------------------------------------

    def put_anchor(self, key: AnchorKey, announcement: bytes) -> None:
        """Keep the anchor's announcement; what was known of the newest model against another anchor goes."""
        with self.transaction() as cursor:
            anchor_rows.write_anchor(cursor, key, announcement)

    def drop_anchor(self) -> None:
        """Keep no anchor, and nothing of what was compared with it."""
        with self.transaction() as cursor:
            anchor_rows.delete_anchor(cursor)

    @alone
    def anchor(self) -> bytes | None:
        """Return the announcement of the anchor as it came; None without one."""
        return anchor_rows.read_anchor(self._db)

    @alone
    def comparison(self, key: AnchorKey) -> Comparison:
        """Return what was stored with the newest list of the newest model against this anchor."""
        return anchor_rows.read_comparison(self._db, key)

    # --- the log of erasures --------------------------------------------------------------------------------

    def put_audit_head(self, head: bytes, contradicted: bytes | None) -> None:
        """Keep the newest message about the log of erasures; with the one that it contradicts, also as evidence."""
        evidence = {} if contradicted is None else {"audit_head_before": contradicted, "audit_head_after": head}
        self._put_meta(audit_head=head, **evidence)

    def audit_heads(self) -> list[bytes]:
        """Return the newest message about the log of erasures, then the last two that contradict each other, if any."""
        kept = (self._meta(key) for key in ("audit_head", "audit_head_before", "audit_head_after"))
        return [head for head in kept if head is not None]

    # --- the operator's policy ------------------------------------------------------------------------------

    def policy(self) -> bytes | None:
        """Return the newest policy that the device has heard of, as it is signed; None before the first."""
        return self._meta("policy")

    def put_policy_fork(self, known: bytes, heard: bytes) -> None:
        """Keep two policies of which neither follows from the other, as evidence."""
        self._put_meta(policy_fork_known=known, policy_fork_heard=heard)

    def policy_fork(self) -> tuple[bytes, bytes] | None:
        """Return what `put_policy_fork` stored last; None if the device has heard of no fork."""
        known, heard = self._meta("policy_fork_known"), self._meta("policy_fork_heard")
        return None if known is None or heard is None else (known, heard)
