"""What federator and helpers say to each other."""

import pytest
from pydantic import ValidationError
from support.secure_cohorts import SecureFederation

from foltr.core.protocol.codec import encode
from foltr.core.protocol.fields import MAX_MESSAGE_BYTES
from foltr.core.protocol.helper_messages import (
    PAGE_TICKETS,
    CheckAnswer,
    CheckRequest,
    OpenRequest,
    RefusedTicket,
    TicketFault,
    position_bits,
    tickets_of_page,
    words_of_answer,
)

ABOUT = {"federation": "mail", "helper": "north", "policy_hash": bytes(32), "round": 4, "cohort": 0}


def test_a_set_is_a_bit_for_each_position():
    """The first position is the highest bit of the first byte; one helper alone could blame whom it likes."""
    assert position_bits([0, 7, 8], 10) == bytes([0b10000001, 0b10000000])
    for positions, n_tickets in (([], 1), ([0], 1), ([3, 8, 11], 12), (list(range(257)), 257)):
        request = OpenRequest(**ABOUT, n_tickets=n_tickets, kept=position_bits(positions, n_tickets), digest=bytes(32))
        assert request.positions == positions
    assert OpenRequest(**ABOUT, n_tickets=4, kept=b"\xff", digest=bytes(32)).positions == [0, 1, 2, 3]
    for kept in (b"\xff", b"\xff" * 3):
        with pytest.raises(ValidationError, match="bytes of bits for 9 tickets"):
            OpenRequest(**ABOUT, n_tickets=9, kept=kept, digest=bytes(32))
    with pytest.raises(ValidationError, match="one helper alone cannot tell"):
        RefusedTicket(position=0, fault=TicketFault.NORM_PROOF_FAILED)
    others = set(TicketFault) - {TicketFault.NORM_PROOF_FAILED}
    assert {RefusedTicket(position=0, fault=fault).fault for fault in others} == others


def test_a_full_page_of_norm_proofs_fits_one_message():
    """However long vectors are; with names of 64 letters a ticket with two seals has 610 bytes, an enrolment 346."""
    for dim, n_words, n_tickets in [(136, 118, 211), (20_000, 256, 97), (1_000_000, 2055, 12)]:
        policy = SecureFederation(2, dim=dim, proofs=True, n_max=100, epsilon=1e6).policy.policy
        assert (words_of_answer(policy), tickets_of_page(policy)) == (n_words, n_tickets), (dim, n_words, n_tickets)
        proofs = bytes(8 * n_words * n_tickets)
        answer = CheckAnswer(**ABOUT, first=0, digest=bytes(32), refused=[], proofs=proofs)
        assert len(encode(answer)) < MAX_MESSAGE_BYTES, (dim, n_words, n_tickets)
    policy = SecureFederation(2).policy.policy
    assert (words_of_answer(policy), tickets_of_page(policy)) == (0, PAGE_TICKETS)
    page = CheckRequest(**ABOUT, first=0, tickets=[bytes(610)] * PAGE_TICKETS, enrolments=[bytes(346)] * PAGE_TICKETS)
    assert len(encode(page)) < MAX_MESSAGE_BYTES
