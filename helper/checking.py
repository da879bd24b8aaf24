"""Checks a page of tickets: which a helper refuses, what it keeps of the others, and its share of their proofs. No I/O.

A bad ticket is found here, before a set exists. So it costs only its client the round: the sum of the others can still
be opened.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from foltr.core.errors import MessageError
from foltr.core.protocol.enrolment import read_enrolment
from foltr.core.protocol.helper_messages import CheckRequest, HelperRefusalCode, RefusedTicket, TicketFault
from foltr.core.protocol.membership import Enrolment
from foltr.core.protocol.operator_keys import TrustedOperatorKey
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.signed_tickets import ClaimedTicket, open_ticket, ticket_hash, ticket_mismatch, ticket_name
from foltr.core.secure.field import subtract, write_words
from foltr.core.secure.masks import expand_seed
from foltr.core.secure.message_proof import answer_message
from foltr.core.secure.sealing import seal_info
from foltr.helper.terms import Refusal, Terms, VoidEnrolments


@dataclass(frozen=True)
class KnownClient:
    """A client as the store knows it.

    Attributes:
        spent: how many of its participations are in opened sums, or were charged before one of these.
        elsewhere: the hash of its ticket at a position of this cohort outside the page.
    """

    spent: int = 0
    elsewhere: bytes | None = None


@dataclass(frozen=True)
class GoodTicket:
    """What is kept of a ticket for opening the sum: no name, and nothing but the seal that was for this helper.

    Attributes:
        hash: of the ticket as it was signed; the digest of a set is made of these.
        seal: the sealed seed.
        info: what the seal is for.
        seed: what the seal holds; it is not kept.
        ticket_name: 32 bytes by which its norm proof is checked, if it has one; they are not kept.
    """

    position: int
    client_id: str
    participation: int
    hash: bytes
    seal: bytes
    info: bytes
    seed: bytes
    ticket_name: bytes


@dataclass(frozen=True)
class CheckedPage:
    """A page after the check: each ticket is either good or refused."""

    good: list[GoodTicket]
    refused: list[RefusedTicket]


_STRANGER = KnownClient()
# A client shows the same enrolment every round, and verifying it is a third of a ticket's cost. Takes some 20 MB.
_ENROLMENTS_REMEMBERED = 20_000


def read_page(request: CheckRequest) -> list[ClaimedTicket | None]:
    """Open the tickets of a page; None for each that cannot be read."""
    return [_opened(signed) for signed in request.tickets]


def refuse_page(request: CheckRequest, newest: int | None, is_opened: bool) -> Refusal | None:
    """Return why the page is refused, if it is: an opened sum must not change.

    Args:
        newest: the newest round with a committed set.
        is_opened: whether this round's and cohort's sum was opened.
    """
    if newest is not None and request.round < newest:
        return Refusal(HelperRefusalCode.ROUND_OVER, f"a set of round {newest} was committed to")
    if is_opened:
        return Refusal(HelperRefusalCode.ROUND_OVER, "the sum of this cohort is opened")
    return None


def check_page(
    request: CheckRequest,
    claimed: Sequence[ClaimedTicket | None],
    terms: Terms,
    enrolment_key: TrustedOperatorKey,
    void: VoidEnrolments,
    known: Mapping[str, KnownClient],
) -> CheckedPage:
    """Judge each ticket of a page.

    Args:
        request: with as many enrolments as tickets.
        claimed: its tickets, opened (`read_page`).
        known: by the names that the tickets claim, the clients that the store knows.
    """
    page = CheckedPage([], [])
    names: set[str] = set()
    for i, ticket in enumerate(claimed):
        judged = _judge(request, i, ticket, terms, enrolment_key, void, known, names)
        if isinstance(judged, GoodTicket):
            page.good.append(judged)
            names.add(judged.client_id)
        else:
            page.refused.append(RefusedTicket(position=request.first + i, fault=judged))
    return page


def answer_proofs(good: Iterable[GoodTicket], terms: Terms) -> bytes:
    """Return this helper's share of the verdict on each ticket's proofs, in order, as words of 64 bits.

    Empty if the policy asks for no proofs. The helper's share of a message is the mask from its seed, subtracted. The
    answer is linear in that share, so it reveals nothing alone; the answers of all verifiers add up to the verdict. The
    answer for a ticket never changes: two different challenges to one proof would reveal more of the vector than one.
    """
    shape, verify_key = terms.policy.policy.message_shape, terms.verify_key
    if shape is None or verify_key is None:
        return b""
    nothing = np.zeros(shape.n_values, np.uint64)
    shares = ((ticket, subtract(nothing, expand_seed(ticket.seed, shape.n_values))) for ticket in good)
    return b"".join(
        write_words(answer_message(share, verify_key, ticket.ticket_name, shape)) for ticket, share in shares
    )


def _judge(
    request: CheckRequest,
    i: int,
    claimed: ClaimedTicket | None,
    terms: Terms,
    enrolment_key: TrustedOperatorKey,
    void: VoidEnrolments,
    known: Mapping[str, KnownClient],
    names_before: set[str],
) -> GoodTicket | TicketFault:
    """Judge the ticket at an index of the page; cheap questions about its client come before the seal."""
    if claimed is None or claimed.ticket.federation != request.federation:
        return TicketFault.MALFORMED
    ticket = claimed.ticket
    enrolment = _enrolment(request.enrolments[i], enrolment_key, ticket.federation, ticket.client_id)
    if isinstance(enrolment, TicketFault):
        return enrolment
    if enrolment in void:
        return TicketFault.REVOKED
    if not claimed.is_signed_by(enrolment.public_key):
        return TicketFault.BAD_SIGNATURE
    if ticket.cohort != request.cohort or ticket_mismatch(ticket, terms.policy, request.round):
        return TicketFault.MISPLACED
    client = known.get(ticket.client_id, _STRANGER)
    if client.spent >= terms.policy.policy.max_participations:
        return TicketFault.PARTICIPATIONS_SPENT
    named = ticket_hash(request.tickets[i])
    # One client, one position. A federator restored from a backup may send the same ticket at another one.
    if client.elsewhere not in (None, named) or ticket.client_id in names_before:
        return TicketFault.DUPLICATE_CLIENT
    name = ticket_name(ticket)
    seal, info = ticket.seals[terms.place], seal_info(name, terms.name)
    seed = terms.sealing_key.open(seal, info)
    if seed is None:
        return TicketFault.NOT_OPENED
    about = request.first + i, ticket.client_id, ticket.participation
    return GoodTicket(*about, named, seal, info, seed, name)


def _opened(signed: bytes) -> ClaimedTicket | None:
    try:
        return open_ticket(signed)
    except MessageError:
        return None


@lru_cache(maxsize=_ENROLMENTS_REMEMBERED)
def _enrolment(
    signed: bytes, enrolment_key: TrustedOperatorKey, federation: str, client_id: str
) -> Enrolment | TicketFault:
    try:
        return read_enrolment(signed, enrolment_key, federation, client_id)
    except MessageError as error:
        return TicketFault.NOT_ENROLLED if error.code == ReceiptCode.NOT_ENROLLED else TicketFault.MALFORMED
