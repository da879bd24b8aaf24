"""Tickets are signed by their devices, and read by the federator and the helpers alike."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from foltr.core.errors import MessageError
from foltr.core.protocol.codec import Envelope, encode, open_envelope
from foltr.core.protocol.policies import cohort_of
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.signed_policies import SignedPolicy
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.tickets import MAX_TICKET_BYTES, Ticket, UnsealedTicket
from foltr.core.protocol.topics import Topics


def issue_ticket(key: SigningKey, ticket: Ticket) -> bytes:
    """Sign a ticket with the device's key for the ticket's own topic."""
    return encode(ticket, Topics(ticket.federation).ticket(ticket.client_id), ticket.participation, key)


@dataclass(frozen=True)
class ClaimedTicket:
    """A ticket whose sender is only claimed: check it with that client's key."""

    ticket: Ticket
    envelope: Envelope

    def is_signed_by(self, public_key: bytes) -> bool:
        topic = Topics(self.ticket.federation).ticket(self.ticket.client_id)
        return self.envelope.is_signed_by(public_key, topic)


def open_ticket(signed: bytes) -> ClaimedTicket:
    """Open a ticket whose client is not known yet; MessageError if it cannot be read."""
    envelope = open_envelope(signed, MAX_TICKET_BYTES)
    return ClaimedTicket(envelope.read(Ticket), envelope)


def read_ticket(signed: bytes, public_key: bytes, federation: str, client_id: str) -> Ticket:
    """Read a ticket of a client whose key is known.

    Raises:
        MessageError: ``client_mismatch`` or ``bad_signature``: it is not this client's; ``malformed``: it cannot be
            read.
    """
    claimed = open_ticket(signed)
    if (claimed.ticket.federation, claimed.ticket.client_id) != (federation, client_id):
        raise MessageError(ReceiptCode.CLIENT_MISMATCH, "the ticket is another client's")
    if not claimed.is_signed_by(public_key):
        raise MessageError(ReceiptCode.BAD_SIGNATURE, "the ticket is not signed by its client")
    return claimed.ticket


def resign_ticket(key: SigningKey, signed: bytes) -> bytes:
    """Return the same ticket, signed with today's key; MessageError if it cannot be read."""
    return issue_ticket(key, open_envelope(signed, MAX_TICKET_BYTES).read(Ticket))


def ticket_mismatch(ticket: Ticket, policy: SignedPolicy, round_number: int) -> str | None:
    """Describe what in a ticket does not fit this round, its client's cohort, or this policy; None if all fits."""
    client_id, rules = ticket.client_id, policy.policy
    if ticket.policy_hash != policy.hash:
        return "it is under another policy"
    if ticket.round != round_number:
        return f"it is of round {ticket.round}, not {round_number}"
    cohort = cohort_of(policy.hash, rules.cohorts, round_number, client_id)
    if ticket.cohort != cohort:
        return f"it is of cohort {ticket.cohort}; its client is in {cohort}"
    if len(ticket.seals) != len(rules.helpers):
        return f"it has {len(ticket.seals)} seals for {len(rules.helpers)} helpers"
    if ticket.participation > rules.max_participations:
        return f"it is participation {ticket.participation} of {rules.max_participations}"
    return None


def ticket_name(ticket: UnsealedTicket) -> bytes:
    """Return the 32 bytes that its seals are bound to, and from which verifiers draw the checks of its norm proof.

    SHA-256 over its fields. The signature is not included, because a device with a renewed key signs the same ticket
    again; nor are the seals, which are bound to this name. So no other ticket, with any signature and seals, makes a
    helper apply another challenge to the same seed: two challenges to one proof would reveal more of the vector than
    one.
    """
    names = [name.encode() for name in (ticket.federation, ticket.client_id)]
    numbers = (ticket.round, ticket.cohort, ticket.participation)
    parts = [
        b"foltr ticket\n",
        ticket.policy_hash,
        *(bytes([len(name)]) + name for name in names),
        *(number.to_bytes(8, "little") for number in numbers),
        bytes.fromhex(ticket.update_id),
        ticket.digest,
    ]
    return hashlib.sha256(b"".join(parts)).digest()


def ticket_hash(signed: bytes) -> bytes:
    """Return 32 bytes that identify a ticket: its SHA-256."""
    return hashlib.sha256(signed).digest()


def set_digest(hashes: Iterable[bytes]) -> bytes:
    """Return 32 bytes that identify a set of tickets in their order: SHA-256 over the hash of each."""
    return hashlib.sha256(b"".join(hashes)).digest()
