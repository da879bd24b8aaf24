"""What of a masked update is refused when it arrives, as no helper would take its ticket."""

import hashlib

import pytest
from secure_cohorts import UPDATE_ID, SecureFederation

from federator.deciding.tickets import check_ticket
from federator.reading import UpdateOffered
from federator.round import Offer
from federator.secure_terms import SecureTerms
from foltr.errors import MessageError
from foltr.protocol.signed_tickets import issue_ticket, open_ticket

FEDERATION = SecureFederation()
CLIENT = FEDERATION.client("device-7")
TERMS = SecureTerms(FEDERATION.policy, 1.0)


def offered(proof: bytes = b"", digested: bytes | None = None) -> UpdateOffered:
    """What arrives with such a proof; its ticket is for the proof that is sent unless it is for another."""
    made = FEDERATION.contribute(CLIENT)
    values = made.masked.astype("<u8").tobytes()
    digest = hashlib.sha256(values + (proof if digested is None else digested)).digest()
    ticket = open_ticket(made.ticket).ticket.model_copy(update={"digest": digest})
    return UpdateOffered(
        Offer("device-7", UPDATE_ID, 4, 3, 0, 1),
        base_hash=bytes(16),
        n_interactions=1,
        encoding="masked_u64",
        body=values + proof,
        signed=None,
        digest=bytes(16),
        ticket=issue_ticket(CLIENT.key, ticket),
    )


def refusal_of(reading: UpdateOffered, terms: SecureTerms = TERMS) -> str | None:
    try:
        check_ticket(reading, terms, CLIENT.key.public, "mail")
    except MessageError as error:
        return str(error.code)
    return None


def test_a_round_that_asks_for_no_proof_takes_none():
    """Else what is stored would be as long as its sender likes."""
    assert refusal_of(offered()) is None
    assert refusal_of(offered(proof=bytes(8))) == "wrong_shape"


@pytest.mark.parametrize(("proof", "digested"), [(bytes(8), b""), (b"", bytes(8)), (bytes(8), b"\x01" + bytes(7))])
def test_a_ticket_is_for_the_vector_and_the_proof(proof, digested):
    """Neither of the two can be another one than was signed."""
    assert refusal_of(offered(proof, digested)) == "misplaced"
