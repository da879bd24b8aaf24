"""The clients of a federation: whom to trust, who is a member, who is online. No I/O.

With an enrolment key every claim is checked against the operator's signature. Without one only names count, which is
for one machine, or a network whose every peer is trusted.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from foltr.core.erasure.pseudonyms import pseudonym
from foltr.core.errors import MessageError, SettingsError
from foltr.core.protocol.enrolment import read_enrolment, read_roster
from foltr.core.protocol.fields import possible_names
from foltr.core.protocol.operator_keys import TrustedOperatorKey, trusted_in_storage
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.roster import Roster
from foltr.core.protocol.states import Membership
from foltr.core.protocol.tombstones import tombstone_of
from foltr.federator.reading import ReceivedMembership, Signed
from foltr.storage.records import ClientRow


@dataclass
class Client:
    """A client that ever joined."""

    joined: bool = False
    online: bool = False
    revoked: bool = False
    quarantined: bool = False
    public_key: bytes | None = None
    serial: int | None = None
    membership_sequence: int = 0
    status_sequence: int = 0
    # Its watermark: its interactions up to this one count, or never will.
    counted_through: int = 0
    # Under a pace: when its next visit is overdue, epoch seconds. 0: not seen since the pace began.
    expected_by: float = 0.0
    # Of the enrolment last checked: a device shows the same one at every connection.
    enrolment_digest: bytes = b""


@dataclass(frozen=True)
class MemberChange:
    """The change that a membership message made, for storage; ``news`` if it deserves an event.

    Attributes:
        online: with ``joined``, whether it is connected: a join that is delivered again does not undo a later status.
        status_sequence: with ``joined``, of its newest status.
        enrolment: with ``joined``, the one it showed, once checked.
    """

    kind: Literal["joined", "left", "online", "offline"]
    news: bool
    public_key: bytes | None = None
    serial: int | None = None
    online: bool = True
    status_sequence: int = 0
    enrolment: bytes | None = None


@dataclass(frozen=True)
class MemberCounts:
    """The number of members, and how many are connected, or in quarantine."""

    n_members: int
    n_online: int
    n_quarantined: int


@dataclass(frozen=True)
class RosterChanges:
    """An adopted roster: the members whose enrolment it voids, and those that it lists as forgotten."""

    roster: Roster
    revoked: list[str]
    forgotten: list[str]


class Members:
    """The clients of one federation.

    Args:
        enrolment_key: the operator's public key or keys; None accepts any name.
        comes_by: devices only visit and do not report leaving, so none ever counts as online.
    """

    def __init__(self, federation: str, enrolment_key: TrustedOperatorKey | None, *, comes_by: bool = False) -> None:
        self._comes_by = comes_by
        self._federation = federation
        self._enrolment_key = enrolment_key
        self._clients: dict[str, Client] = {}
        # By client: its enrolments with a lower serial are void.
        self._void_below: dict[str, int] = {}
        self._tombstone_salt = b""
        self._tombstones: set[bytes] = set()
        self._pseudonym_key = b""
        self._forgotten: set[str] = set()
        self.roster_version = self.roster_through = 0

    def restore(self, rows: Iterable[ClientRow], roster: bytes | None) -> None:
        """Load what the database holds.

        Raises:
            SettingsError: the stored roster is another operator's; without it, revocations are unknown.
        """
        self._clients = {
            row.client_id: Client(
                joined=row.membership is Membership.JOINED,
                online=row.online and not self._comes_by,
                revoked=row.revoked_at is not None,
                quarantined=row.quarantined_at is not None,
                public_key=row.public_key,
                serial=row.enrolment_serial,
                membership_sequence=row.membership_sequence,
                status_sequence=row.status_sequence,
                counted_through=row.counted_through,
            )
            for row in rows
        }
        if roster is None or self._enrolment_key is None:
            return
        try:
            self.load_roster(read_roster(roster, trusted_in_storage(self._enrolment_key), self._federation))
        except MessageError as error:
            raise SettingsError(
                f"enrolment_key: the roster stored for federation {self._federation!r} was signed with another key. "
                "Give the federator the credentials of the operator who signed it"
            ) from error

    def restore_forgotten(self, pseudonym_key: bytes, pseudonyms: Iterable[str]) -> None:
        """Load who was forgotten: these names cannot be reused (`foltr.core.erasure.pseudonyms`)."""
        self._pseudonym_key, self._forgotten = pseudonym_key, set(pseudonyms)

    def pseudonym(self, client_id: str) -> str:
        return pseudonym(self._pseudonym_key, client_id)

    def is_forgotten(self, client_id: str) -> bool:
        # No client is also forgotten, and most senders are clients.
        if client_id in self._clients:
            return False
        if self._tombstones and self._has_tombstone(client_id):
            return True
        return bool(self._forgotten) and self.pseudonym(client_id) in self._forgotten

    def find_by_tombstone(self, salt: bytes, tombstone: bytes) -> str | None:
        """Find the client whose name has this tombstone, or None."""
        return next((client_id for client_id in self._clients if tombstone_of(salt, client_id) == tombstone), None)

    def check_serial(self, client_id: str, serial: int) -> None:
        """Check that a client was not enrolled again after ``serial``: an order does not apply to a later enrolment.

        Raises:
            MessageError: ``revoked``.
        """
        client = self._clients.get(client_id)
        if client is not None and client.serial is not None and client.serial > serial:
            raise MessageError(
                ReceiptCode.REVOKED, f"the order is about enrolment {serial}; the client has {client.serial} by now"
            )

    @property
    def newest_serial(self) -> int:
        """The highest serial of an enrolment that was seen or voided."""
        joined = (client.serial for client in self._clients.values() if client.serial is not None)
        return max(max(joined, default=0), max(self._void_below.values(), default=1) - 1)

    def check_forget(self, client_id: str, signed: Signed | None) -> bool:
        """Check a request to be forgotten; return whether the sender is a client, so that refusals may be stored.

        Args:
            signed: the client's own wish; None for the operator's.

        Raises:
            MessageError: ``bad_signature``, or ``unknown_client``: without its key it cannot be verified.
        """
        client = self._clients.get(client_id)
        if client is None:
            if signed is not None and self._enrolment_key is not None:
                raise MessageError(
                    ReceiptCode.UNKNOWN_CLIENT,
                    "no client of this name has ever joined, so its signature cannot be checked; the operator may "
                    "order it",
                )
            return False
        if signed is not None:
            self._check_signature(client, signed)
        return True

    def forget(self, client_id: str) -> None:
        """End its membership; from now on the name is retired."""
        self._clients.pop(client_id, None)
        self._forgotten.add(self.pseudonym(client_id))

    def is_known(self, client_id: str) -> bool:
        return client_id in self._clients

    def is_named_in(self, words: str) -> bool:
        """Tell whether a word is the name of somebody who is, or was, a client."""
        return any(self.is_known(word) or self.is_forgotten(word) for word in possible_names(words))

    def joined(self, client_id: str) -> bool:
        client = self._clients.get(client_id)
        return client is not None and client.joined

    def takes_part(self, client_id: str) -> bool:
        """Whether it is a member whose updates are accepted, connected or not."""
        client = self._clients.get(client_id)
        return client is not None and client.joined and not client.quarantined

    def present(self, now: float) -> Iterator[str]:
        """The members whose updates are accepted and who are present, as far as known.

        That is, they are connected, or if devices visit, their next visit is not overdue.

        Args:
            now: epoch seconds.
        """
        return (
            client_id
            for client_id, client in self._clients.items()
            if client.joined and (client.online or client.expected_by > now) and not client.quarantined
        )

    def count(self) -> MemberCounts:
        """Count the members; connected ones include those in quarantine."""
        members = [client for client in self._clients.values() if client.joined]
        n_online, n_quarantined = sum(one.online for one in members), sum(one.quarantined for one in members)
        return MemberCounts(len(members), n_online, n_quarantined)

    def check_sender(self, client_id: str, signed: Signed) -> None:
        """Check that the sender is a member whose updates are accepted.

        Raises:
            MessageError: ``revoked``, ``forgotten``, ``unknown_client``, ``bad_signature`` or ``quarantined``.
        """
        client = self._clients.get(client_id)
        if client is not None and client.revoked:
            raise MessageError(ReceiptCode.REVOKED, "the client's enrolment was revoked")
        self._check_not_forgotten(client_id)
        if client is None or not client.joined:
            raise MessageError(ReceiptCode.UNKNOWN_CLIENT, "join first, then send it again")
        self._check_signature(client, signed)
        if client.quarantined:
            raise MessageError(ReceiptCode.QUARANTINED, "the operator has quarantined this client")

    def apply(self, claim: ReceivedMembership) -> MemberChange | None:
        """Take a join, a leave or a status; None if it changes nothing, not even when the client was last seen.

        Raises:
            MessageError: it cannot be trusted, or is older than one seen before.
        """
        if claim.kind == "joined":
            self._check_not_forgotten(claim.client_id)
            return self._join(claim)
        client = self._clients.get(claim.client_id)
        if client is None:
            return None  # no row to change, and nothing that a forger could gain
        if client.revoked:
            raise MessageError(ReceiptCode.REVOKED, "the client's enrolment was revoked")
        if self._comes_by and claim.kind != "left":
            return None  # a last will from before the pace began
        self._check_signature(client, claim.signed)
        sequence = claim.signed.sequence
        if claim.kind == "left":
            self._check_sequence(sequence, client.membership_sequence)
            news = client.joined
            client.membership_sequence, client.joined, client.online = sequence, False, False
            return MemberChange("left", news)
        if claim.retained and sequence <= client.status_sequence:
            return None  # the broker repeats retained messages at every connection
        self._check_sequence(sequence, client.status_sequence)
        online = claim.kind == "online" and client.joined
        news = online != client.online
        client.status_sequence, client.online = sequence, online
        return MemberChange("online" if online else "offline", news)

    def quarantine(self, client_id: str, *, lifted: bool = False) -> bool:
        """Stop or resume accepting a client's updates; False if that is so already.

        Raises:
            MessageError: ``unknown_client``, it never joined.
        """
        client = self.check_known(client_id)
        changed = client.quarantined is lifted
        client.quarantined = not lifted
        return changed

    def counted_through(self, client_id: str) -> int | None:
        """Return a client's watermark, which every answer to it carries; None for an unknown name."""
        client = self._clients.get(client_id)
        return None if client is None else client.counted_through

    def public_key(self, client_id: str) -> bytes | None:
        """Return the key of a client; None if identities are not required, or it is not a client."""
        client = self._clients.get(client_id)
        return None if client is None else client.public_key

    def move_watermark(self, client_id: str, counted_through: int) -> None:
        """Move a client's watermark: up with an update that counts, and back with one that no longer does."""
        self._clients[client_id].counted_through = counted_through

    def find(self, client_id: str) -> Client | None:
        """Return a client that ever joined; else None."""
        return self._clients.get(client_id)

    def check_known(self, client_id: str) -> Client:
        """Return a client that ever joined; else MessageError ``unknown_client``."""
        client = self._clients.get(client_id)
        if client is None:
            # Without the name, which may be a forgotten client's and must not be stored again.
            raise MessageError(ReceiptCode.UNKNOWN_CLIENT, "no client of this name has ever joined")
        return client

    def revoke(self, client_id: str, void_below: int) -> bool:
        """Void a client's enrolments below a serial; return whether that ends its membership."""
        self._void_below[client_id] = max(void_below, self._void_below.get(client_id, 0))
        client = self._clients.get(client_id)
        if client is None or client.revoked or (client.serial is not None and client.serial >= void_below):
            return False
        client.joined = client.online = False
        client.revoked = True
        return True

    def newest_sequence(self, client_id: str) -> int | None:
        client = self._clients.get(client_id)
        return None if client is None else client.membership_sequence

    def adopt_roster(self, payload: bytes) -> RosterChanges | None:
        """Take a newer roster; None if it is the present one.

        Raises:
            MessageError: it is not the operator's, or older than the present one (``replayed``).
        """
        if self._enrolment_key is None:
            raise MessageError(ReceiptCode.NOT_ENROLLED, "this federator knows no enrolment key to check a roster with")
        roster = read_roster(payload, self._enrolment_key, self._federation)
        if roster.version == self.roster_version:
            return None
        if roster.version < self.roster_version:
            raise MessageError(
                ReceiptCode.REPLAYED, f"roster {roster.version} is older than the one known, {self.roster_version}"
            )
        return self.load_roster(roster)

    def load_roster(self, roster: Roster) -> RosterChanges:
        """Apply a roster of the operator, whose signature was checked."""
        self.roster_version, self.roster_through = roster.version, roster.through
        self._tombstone_salt = roster.salt
        self._tombstones = set(roster.forgotten)
        revoked = [entry.client_id for entry in roster.revoked if self.revoke(entry.client_id, entry.void_below)]
        forgotten = [] if not self._tombstones else [name for name in self._clients if self._has_tombstone(name)]
        return RosterChanges(roster, revoked, forgotten)

    def _has_tombstone(self, client_id: str) -> bool:
        return tombstone_of(self._tombstone_salt, client_id) in self._tombstones

    def _join(self, claim: ReceivedMembership) -> MemberChange:
        client = self._clients.get(claim.client_id, Client())
        public_key, serial, digest = None, None, b""
        if self._enrolment_key is not None:
            public_key, serial, digest = self._check_enrolment(client, claim)
            if not claim.signed.by(public_key):
                raise MessageError(ReceiptCode.BAD_SIGNATURE, "not signed with the key that was enrolled")
        # A device that was enrolled again may have restarted its sequence.
        anew, sequence = serial != client.serial, claim.signed.sequence
        if anew:
            client.status_sequence = 0
        else:
            self._check_sequence(sequence, client.membership_sequence)
        before = client.joined, client.online
        # A join that is delivered again, perhaps by somebody else, does not undo a later offline status.
        is_online = client.online or sequence >= client.status_sequence
        client.joined, client.online = True, is_online and not self._comes_by
        news = (client.joined, client.online) != before
        client.revoked = False
        client.public_key, client.serial, client.enrolment_digest = public_key, serial, digest
        client.membership_sequence = sequence
        self._clients[claim.client_id] = client
        enrolment = None if public_key is None else claim.enrolment
        return MemberChange("joined", news, public_key, serial, client.online, client.status_sequence, enrolment)

    def _check_enrolment(self, client: Client, claim: ReceivedMembership) -> tuple[bytes, int, bytes]:
        if self._enrolment_key is None or claim.enrolment is None:
            raise MessageError(ReceiptCode.NOT_ENROLLED, "the join shows no enrolment")
        digest = hashlib.sha256(claim.enrolment).digest()
        if digest == client.enrolment_digest and client.public_key is not None and client.serial is not None:
            public_key, serial = client.public_key, client.serial
        else:
            enrolment = read_enrolment(claim.enrolment, self._enrolment_key, self._federation, claim.client_id)
            public_key, serial = enrolment.public_key, enrolment.serial
        if serial < self._void_below.get(claim.client_id, 0):
            raise MessageError(ReceiptCode.REVOKED, f"enrolment {serial} was revoked")
        if client.serial is not None and serial < client.serial:
            raise MessageError(ReceiptCode.REVOKED, f"enrolment {serial} was replaced by {client.serial}")
        return public_key, serial, digest

    def _check_not_forgotten(self, client_id: str) -> None:
        if self.is_forgotten(client_id):
            raise MessageError(ReceiptCode.FORGOTTEN, "a client of this name was forgotten; enrol under another name")

    def _check_signature(self, client: Client, signed: Signed) -> None:
        if self._enrolment_key is None:
            return
        if client.public_key is None:
            # It joined while anyone was accepted.
            raise MessageError(ReceiptCode.UNKNOWN_CLIENT, "join first, with an enrolment")
        if not signed.by(client.public_key):
            raise MessageError(ReceiptCode.BAD_SIGNATURE, "not signed with the key that was enrolled")

    @staticmethod
    def _check_sequence(sequence: int, newest: int) -> None:
        if sequence < newest:
            raise MessageError(
                ReceiptCode.REPLAYED, f"its sequence number {sequence} is below {newest}, which was seen before"
            )
