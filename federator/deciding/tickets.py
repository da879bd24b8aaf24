"""Checks the ticket of a masked update on arrival: what every helper would refuse is refused at once."""

import hashlib

from foltr.core.errors import MessageError
from foltr.core.protocol.policies import Policy
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.signed_tickets import read_ticket, ticket_mismatch
from foltr.core.protocol.tickets import Ticket
from foltr.federator.reading import ReceivedUpdate
from foltr.federator.secure_terms import SecureTerms


def check_ticket(reading: ReceivedUpdate, terms: SecureTerms, public_key: bytes, federation: str) -> None:
    """Check that a ticket belongs to its client, this round, cohort, policy, update and vector.

    Args:
        public_key: the client's.

    Raises:
        MessageError: ``bad_signature``, ``client_mismatch``, ``malformed`` or ``misplaced``; ``wrong_shape``: its norm
            proof or votes are missing, not asked for, or of another length.
    """
    if reading.ticket is None:
        raise MessageError(ReceiptCode.WRONG_SHAPE, "a round with a secure sum takes masked updates")
    ticket = read_ticket(reading.ticket, public_key, federation, reading.header.client_id)
    wrong = ticket_mismatch(ticket, terms.policy, reading.header.round) or _differs(ticket, reading)
    if wrong is not None:
        raise MessageError(ReceiptCode.MISPLACED, f"the ticket: {wrong}")
    _check_length(reading.body, terms.policy.policy)


def _check_length(body: bytes, policy: Policy) -> None:
    shape = policy.message_shape
    n_proof = 0 if shape is None else shape.n_proof
    n_words = len(body) // 8
    if n_words != policy.n_summed + n_proof:
        raise MessageError(
            ReceiptCode.WRONG_SHAPE,
            f"{n_words} numbers; the round's policy asks for {policy.n_summed} to sum and {n_proof} that prove them",
        )


def _differs(ticket: Ticket, reading: ReceivedUpdate) -> str | None:
    if reading.n_interactions != 1:
        return f"a masked update counts 1, not {reading.n_interactions}"
    if ticket.update_id != reading.header.update_id:
        return "it is of another update"
    # A lower number comes from a device whose store was lost.
    if ticket.participation > reading.header.through:
        return f"it is participation {ticket.participation}, and the update goes through {reading.header.through} only"
    if ticket.digest != hashlib.sha256(reading.body).digest():
        return "it is of another vector, or of another proof"
    return None
