"""What goes to one helper about one cohort goes one way, and what does not belong there changes nothing."""

from itertools import product

import pytest

from foltr.core.errors import ProtocolViolationError
from foltr.core.protocol.helper_messages import CheckAnswer, OpenAnswer, OpenRequest, RefusedTicket, TicketFault
from foltr.core.protocol.signed_tickets import set_digest, ticket_hash
from foltr.core.secure.field import MODULUS
from foltr.federator.summing.cohorts import PAGE_BYTES, PageForm, cohorts_of, pages_of
from foltr.federator.summing.helper_session import TRANSITIONS, HelperSession, SessionEvent, Stage
from foltr.storage.sum_records import TicketRow

ABOUT = {"federation": "mail", "helper": "north", "policy_hash": bytes(32), "round": 1, "cohort": 0}
DIGEST = b"d" * 32


def ticket(position: int, cohort: int = 0, n_bytes: int = 10) -> TicketRow:
    return TicketRow(f"client-{position}", cohort, position, bytes([position % 256]) * n_bytes, b"enrolment")


def cohort(*positions: int):
    return cohorts_of([ticket(position) for position in positions])[0]


def page_answer(session: HelperSession, first: int = 0, refused: tuple[int, ...] = (), **changes) -> CheckAnswer:
    entries = [RefusedTicket(position=position, fault=TicketFault.NOT_OPENED) for position in refused]
    fields = {"first": first, "digest": session.waiting[first].digest if first in session.waiting else DIGEST}
    return CheckAnswer(**ABOUT, **fields | {"refused": entries} | changes)


def part(start: int, n_words: int, dim: int = 3, digest: bytes = DIGEST) -> OpenAnswer:
    return OpenAnswer(**ABOUT, digest=digest, dim=dim, start=start, values=bytes(8 * n_words))


def test_pages_hold_as_many_tickets_as_fit_and_no_gap():
    """256 at most, 200,000 bytes at most, and positions that follow one another."""
    many = [ticket(position) for position in range(600)]
    assert [len(page.rows) for page in pages_of(many, PageForm())] == [256, 256, 88]
    long = [ticket(position, n_bytes=2048) for position in range(200)]
    assert all(sum(len(row.ticket) for row in page.rows) <= PAGE_BYTES for page in pages_of(long, PageForm()))
    assert [page.positions for page in cohort(0, 1, 4, 6, 7).pages(PageForm())] == [range(2), range(4, 5), range(6, 8)]
    (page, *_) = pages_of(many, PageForm())
    assert page.digest == set_digest(ticket_hash(row.ticket) for row in many[:256])


def test_a_set_names_those_who_are_left_by_their_positions():
    """Its bits, how many there are, and the digest of their tickets."""
    cohorts = cohorts_of([ticket(3, 1), ticket(0), ticket(9), ticket(1)])
    assert sorted(cohorts) == [0, 1]
    made = cohorts[0].set_of({1}, None)
    assert (made.n_tickets, made.n_clients, made.kept) == (10, 2, b"\x80\x40")
    assert made.digest == set_digest(ticket_hash(ticket(position).ticket) for position in (0, 9))
    asked = OpenRequest(**ABOUT, n_tickets=made.n_tickets, kept=made.kept, digest=made.digest)
    assert asked.positions == [0, 9]
    assert cohorts[0].set_of({0, 1, 9}, None) is None


def test_a_helper_is_asked_once_it_has_checked_all_pages():
    """Every page is answered, the set is fixed, and the whole answer ends it."""
    session = HelperSession("north", cohort(0, 1, 5), dim=3)
    assert session.take_page(page_answer(session, 0, refused=(1,)))
    assert session.stage is Stage.CHECKING
    assert session.take_page(page_answer(session, 5))
    assert (session.stage, session.faults) == (Stage.CHECKED, {1: TicketFault.NOT_OPENED})
    session.ask(DIGEST)
    assert session.take_part(part(1, 2), b"second")
    assert session.stage is Stage.OPENING
    assert session.take_part(part(0, 1), b"first")
    assert session.stage is Stage.OPENED


def test_an_answer_to_something_else_changes_nothing():
    """To a page that does not wait, with another digest or position; to another set, of another size, or twice."""
    session = HelperSession("north", cohort(0, 1, 5), dim=3)
    for answer in (
        page_answer(session, 2),
        page_answer(session, 0, digest=DIGEST),
        page_answer(session, 0, refused=(5,)),
    ):
        assert not session.take_page(answer)
    assert not session.take_part(part(0, 3), b"too early")
    assert (session.stage, len(session.waiting)) == (Stage.CHECKING, 2)
    for first in (0, 5):
        session.take_page(page_answer(session, first))
    session.ask(DIGEST)
    for wrong in (part(0, 3, digest=bytes(32)), part(0, 3, dim=4), part(1, 3)):
        assert not session.take_part(wrong, b"wrong")
    assert session.take_part(part(0, 1), b"first")
    assert not session.take_part(part(0, 1), b"again")
    assert session.parts[0].signed == b"first"


def test_an_answer_that_lacks_what_it_has_to_say_of_proofs_is_none():
    """Two numbers for each ticket that is not taken out, each below p; else the page waits on."""
    for proofs in [b"", bytes(15), bytes(24), bytes(40), bytes(24) + MODULUS.to_bytes(8, "little")]:
        session = HelperSession("north", cohort(0, 1, 2), dim=3, form=PageForm(n_tickets=256, n_answer=2))
        answer = page_answer(session, refused=(1,), proofs=proofs)
        assert session.page_of(answer) is not None, proofs
        assert session.take_page(answer) is None, proofs
        assert (session.stage, list(session.waiting), session.faults) == (Stage.CHECKING, [0], {}), proofs
        assert session.take_page(page_answer(session, refused=(1,), proofs=bytes(32))) is not None, proofs
        assert session.stage is Stage.CHECKED, proofs


def test_where_there_are_no_proofs_nothing_is_said_of_them():
    """A helper that says something is not understood."""
    session = HelperSession("north", cohort(0), dim=3)
    assert session.take_page(page_answer(session, proofs=bytes(8))) is None
    assert session.take_page(page_answer(session)) is not None


def test_a_page_has_as_many_tickets_as_its_answer_has_room_for():
    """Whatever else fits; also where a client has left."""
    session = HelperSession("north", cohort(*range(7)), dim=3, form=PageForm(n_tickets=3, n_answer=2))
    assert [len(page.rows) for page in session.waiting.values()] == [3, 3, 1]
    session.leave(4)
    assert sorted(session.waiting) == [0, 3, 5, 6]


def test_parts_that_overlap_or_leave_a_hole_are_no_whole_answer():
    """It stays open, and the helper is asked again until the deadline."""
    session = HelperSession("north", cohort(0), 3, stage=Stage.OPENING, set_digest=DIGEST)
    assert session.take_part(part(0, 2), b"")
    assert session.take_part(part(1, 2), b"")
    assert session.stage is Stage.OPENING


def test_a_client_that_leaves_is_shown_no_more():
    """Its page is cut in two; the last one to be waited for ends the check."""
    session = HelperSession("north", cohort(0, 1, 2), dim=3)
    session.leave(1)
    assert sorted(session.waiting) == [0, 2]
    session.take_page(page_answer(session, 0))
    session.leave(2)
    assert session.stage is Stage.CHECKED
    session.leave(0)
    assert session.stage is Stage.CHECKED


def test_a_helper_that_does_not_know_the_set_is_shown_all_pages_again():
    """And is asked the same once it has answered; an answer that was on its way counts."""
    session = HelperSession("north", cohort(0, 1), 3, stage=Stage.OPENING, set_digest=DIGEST)
    session.forget_set()
    assert session.take_page(page_answer(session))
    assert (session.stage, session.n_shown) == (Stage.OPENING, 1)
    session.forget_set()
    assert session.take_part(part(0, 3), b"")
    assert session.stage is Stage.OPENED


DOES = {
    SessionEvent.SET_FIXED: lambda session: session.ask(DIGEST),
    SessionEvent.SET_UNKNOWN: lambda session: session.forget_set(),
}


def test_a_stage_that_does_not_allow_an_event_raises_and_changes_nothing():
    """A second question, say, for a helper that was asked one."""
    for stage, event in product(Stage, DOES):
        session = HelperSession("north", cohort(0), 3, stage=stage, set_digest=b"s" * 32)
        if (stage, event) in TRANSITIONS:
            DOES[event](session)
            assert session.stage is TRANSITIONS[stage, event], (stage, event)
            continue
        with pytest.raises(ProtocolViolationError, match=stage):
            DOES[event](session)
        assert (session.stage, session.set_digest) == (stage, b"s" * 32), event


def test_every_stage_leads_to_an_answer():
    """From each stage there is a way to the end, which is never left."""
    assert not [stage for stage, _ in TRANSITIONS if stage is Stage.OPENED]
    reaches = {Stage.OPENED}
    for _ in Stage:
        reaches |= {stage for (stage, _), following in TRANSITIONS.items() if following in reaches}
    assert reaches == set(Stage)
