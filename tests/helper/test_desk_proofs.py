"""What a helper at its desk answers about norm proofs."""

from dataclasses import replace

from support.helper_desks import contributions

from foltr.core.protocol.helper_messages import PAGE_TICKETS, HelperRefusalCode, tickets_of_page, words_of_answer
from foltr.core.protocol.signed_tickets import issue_ticket, open_ticket, ticket_name


def test_what_is_said_of_norm_proofs_is_the_same_after_a_restart_and_on_another_page(running):
    """A second answer about one proof would tell more of the vector than one."""
    federation, north = running(proofs=True)
    sent = contributions(federation, 4)
    (whole,) = north.ask(federation, federation.check(sent))
    n_bytes = 8 * words_of_answer(federation.policy.policy)
    assert len(whole.proofs) == 4 * n_bytes
    first = north.ask_raw(federation.check(sent), federation.federator)
    north.restart()
    assert north.ask_raw(federation.check(sent), federation.federator) == first
    halves = [north.ask(federation, federation.check(sent[at : at + 2], first=at))[0].proofs for at in (0, 2)]
    assert b"".join(halves) == whole.proofs


def test_a_ticket_with_other_seals_is_another_one_in_a_set(running):
    """Its name is the same, and so is what is said of the same seed; no set is opened with one in the other's place."""
    federation, north = running(proofs=True)
    sent = contributions(federation, 3)
    ticket = open_ticket(sent[0].ticket).ticket
    seals = [ticket.seals[0], *(bytes(80) for _ in ticket.seals[1:])]
    exchanged = ticket.model_copy(update={"seals": seals})
    other = replace(sent[0], ticket=issue_ticket(sent[0].client.key, exchanged))
    assert ticket_name(exchanged) == ticket_name(ticket)
    (first,) = north.ask(federation, federation.check(sent))
    (second,) = north.ask(federation, federation.check([other, *sent[1:]]))
    assert (first.refused, second.refused, first.proofs) == ([], [], second.proofs)
    (refusal,) = north.ask(federation, federation.open(sent))
    assert refusal.code is HelperRefusalCode.UNKNOWN_SET
    (opened,) = north.ask(federation, federation.open([other, *sent[1:]]))
    assert opened.digest != federation.open(sent).digest
    (refusal,) = north.ask(federation, federation.open(sent))
    assert refusal.code is HelperRefusalCode.ANSWERED_OTHERWISE


def test_of_a_ticket_that_is_taken_out_nothing_is_said(running):
    """What is said of the others stands in their order."""
    federation, north = running(proofs=True)
    sent = contributions(federation, 3)
    (whole,) = north.ask(federation, federation.check(sent))
    bad = replace(sent[1], ticket=sent[1].ticket[:-1] + bytes([sent[1].ticket[-1] ^ 1]))
    (answer,) = north.ask(federation, federation.check([sent[0], bad, sent[2]]))
    n_bytes = 8 * words_of_answer(federation.policy.policy)
    assert [one.position for one in answer.refused] == [1]
    assert answer.proofs == whole.proofs[:n_bytes] + whole.proofs[2 * n_bytes :]


def test_a_page_whose_answer_would_not_fit_a_message_is_ignored(running):
    """No federator asks for one; a page that is as long as it may be is answered in one message."""
    federation, north = running(proofs=True)
    most = tickets_of_page(federation.policy.policy)
    assert most < PAGE_TICKETS
    request = federation.check(contributions(federation, 1))
    for n, n_answers in ((most, 1), (most + 1, 0)):
        page = request.model_copy(update={"tickets": [b"ticket"] * n, "enrolments": [b""] * n})
        assert len(north.ask(federation, page)) == n_answers


def test_a_verify_key_is_nowhere_in_the_store(running):
    """It is in the policy, sealed, and is opened anew for each question."""
    federation, north = running(proofs=True)
    north.ask(federation, federation.check(contributions(federation)))
    for file in north.path.parent.iterdir():
        assert federation.verify_key not in file.read_bytes(), file
