"""Tickets are signed by their devices, and read by the federator and the helpers alike."""

import hashlib
from collections.abc import Iterable

from foltr.errors import MessageError
from foltr.protocol.codec import encode, open_envelope
from foltr.protocol.policies import cohort_of
from foltr.protocol.receipts import ReceiptCode
from foltr.protocol.signed_policies import SignedPolicy
from foltr.protocol.signing import SigningKey
from foltr.protocol.tickets import MAX_TICKET_BYTES, Ticket
from foltr.protocol.topics import Topics


def issue_ticket(key: SigningKey, ticket: Ticket) -> bytes:
    """Sign a ticket with the device's key, as of no topic but its own."""
    return encode(ticket, Topics(ticket.federation).ticket(ticket.client_id), ticket.participation, key)


def read_ticket(signed: bytes, public_key: bytes, federation: str, client_id: str) -> Ticket:
    """Read a ticket of a client whose key is known.

    Raises:
        MessageError: ``bad_signature``: it is not this client's; ``malformed``: it cannot be read.
    """
    envelope = open_envelope(signed, MAX_TICKET_BYTES)
    if not envelope.is_signed_by(public_key, Topics(federation).ticket(client_id)):
        raise MessageError(ReceiptCode.BAD_SIGNATURE, "the ticket is not signed by its client")
    ticket = envelope.read(Ticket)
    if (ticket.federation, ticket.client_id) != (federation, client_id):
        raise MessageError(ReceiptCode.CLIENT_MISMATCH, "the ticket is another client's")
    return ticket


def claimed_client(signed: bytes) -> str:
    """Return whose ticket it says to be, unchecked: whose key it is to be checked with."""
    return open_envelope(signed, MAX_TICKET_BYTES).read(Ticket).client_id


def misplaced(ticket: Ticket, policy: SignedPolicy, round_number: int) -> str | None:
    """Say in words what of a ticket is not of this round, its client's cohort, and this policy; None if all is."""
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


def set_digest(tickets: Iterable[bytes]) -> bytes:
    """Return 32 bytes that name a set of tickets in their order: SHA-256 over the SHA-256 of each."""
    digest = hashlib.sha256()
    for signed in tickets:
        digest.update(hashlib.sha256(signed).digest())
    return digest.digest()
