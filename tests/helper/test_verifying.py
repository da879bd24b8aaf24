"""What a helper says of norm proofs: linear in its share, and the same of the same ticket."""

from dataclasses import replace

import numpy as np
import pytest
from support.helper_desks import contributions
from support.secure_cohorts import SecureFederation

from foltr.core.protocol.helper_messages import PAGE_TICKETS, HelperRefusalCode, tickets_of_page, words_of_answer
from foltr.core.protocol.policies import SecureVotes
from foltr.core.protocol.signed_tickets import issue_ticket, open_ticket, resign_ticket, ticket_name
from foltr.core.secure.field import add, read_words
from foltr.core.secure.message_proof import answer_message, is_message_proof_valid
from foltr.core.secure.norm_proof import answer_share, challenge_for, is_norm_proof_valid, proof_shape
from foltr.helper.checking import answer_proofs, check_page, read_page
from foltr.helper.terms import Refusal, Terms, VoidEnrolments, find_terms

SHAPE = proof_shape(3, 256)


def terms_of(federation, place=0, policy=None):
    pair = federation.helpers[place]
    keys = {pair.sealing_key.public: pair.sealing_key}
    return find_terms(policy or federation.policy, pair.name, pair.signing_key.public, keys.get, 0, 0.0)


def page_of(federation, sent, terms, place=0):
    request = federation.check(sent, federation.helpers[place].name)
    return check_page(request, read_page(request), terms, federation.operator.public, VoidEnrolments(None), {})


def said(federation, sent, place=0, shape=SHAPE):
    """(n, n_answer): what a helper says of these."""
    terms = terms_of(federation, place)
    assert isinstance(terms, Terms)
    page = page_of(federation, sent, terms, place)
    assert page.refused == []
    return read_words(answer_proofs(page.good, terms), len(sent) * shape.n_answer).reshape(-1, shape.n_answer)


def totals(federation, sent, shape=SHAPE):
    """What three helpers say of each of these, added up."""
    first, *others = (said(federation, sent, place, shape) for place in range(3))
    return [add(add(*both), third) for *both, third in zip(first, *others, strict=True)]


@pytest.fixture(scope="module")
def federation():
    return SecureFederation(3, proofs=True)


@pytest.fixture(scope="module")
def sent(federation):
    vectors = [np.array(vector) for vector in ([0, 0, 256], [3, -4, 12], [0, 0, 0], [100, 100, 100])]
    return [federation.contribute(federation.client(f"d-{i}"), vector=vector) for i, vector in enumerate(vectors)]


def test_what_all_verifiers_say_adds_up_to_the_verdict(federation, sent):
    """Each helper of its mask, and the federator of what was sent."""
    for total, one in zip(totals(federation, sent), sent, strict=True):
        challenge = challenge_for(federation.verify_key, ticket_name(open_ticket(one.ticket).ticket), SHAPE)
        assert not is_norm_proof_valid(total, SHAPE)
        assert is_norm_proof_valid(add(total, answer_share(one.words, challenge, SHAPE)), SHAPE)


def test_of_votes_helpers_say_what_adds_up_to_a_verdict_too():
    """Four numbers more of each ticket; one whose vote is none fails, however good its norm is."""
    federation = SecureFederation(3, proofs=True, votes=SecureVotes(weight=64))
    shape = federation.policy.policy.message_shape
    assert words_of_answer(federation.policy.policy) == SHAPE.n_answer + 4
    clients = federation.clients(4)
    sent = [federation.contribute(client, opinion=i - 1) for i, client in enumerate(clients[:3])]
    sent.append(federation.contribute(clients[3], votes=[128, 0]))
    verdicts = []
    for total, one in zip(totals(federation, sent, shape), sent, strict=True):
        name = ticket_name(open_ticket(one.ticket).ticket)
        own = answer_message(one.words, federation.verify_key, name, shape)
        verdicts.append(is_message_proof_valid(add(total, own), shape))
    assert verdicts == [True, True, True, False]


def test_a_ticket_that_is_signed_anew_is_the_same_ticket(federation, sent):
    """Of a device whose key was renewed, and with other seals, as who has the key may ask: it is no other challenge."""
    renewed = federation.client("d-1", serial=2)
    ticket = open_ticket(sent[1].ticket).ticket
    other = ticket.model_copy(update={"seals": [*ticket.seals[:2], bytes(80)]})
    for signed in (resign_ticket(renewed.key, sent[1].ticket), issue_ticket(renewed.key, other)):
        assert signed != sent[1].ticket
        anew = replace(sent[1], client=renewed, ticket=signed)
        np.testing.assert_array_equal(said(federation, [anew]), said(federation, [sent[1]]))


def test_where_no_proofs_are_asked_for_nothing_is_said():
    """A page of them is as long as it was."""
    plain = SecureFederation(2)
    terms = terms_of(plain)
    page = page_of(plain, [plain.contribute(plain.client("device-1"))], terms)
    assert (answer_proofs(page.good, terms), words_of_answer(plain.policy.policy)) == (b"", 0)


def test_a_verify_key_that_is_sealed_to_somebody_else_is_a_refusal(federation):
    """In words that say what to do; a policy of another version has a seal of its own."""
    proof = federation.policy.policy.norm_proof
    turned = federation.issue(norm_proof=proof.model_copy(update={"helper_seals": proof.helper_seals[::-1]}))
    older = federation.issue(version=2, norm_proof=proof)
    for policy in (turned, older):
        refusal = terms_of(federation, policy=policy)
        assert isinstance(refusal, Refusal)
        assert refusal.code is HelperRefusalCode.VERIFY_KEY_SEALED
        assert "is not sealed to north; make another policy: `foltr policy new --helper" in refusal.detail
    assert isinstance(terms_of(federation), Terms)


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
    # The verify key is sealed in the policy, and the helper opens it for each question: it is nowhere in the store.
    for file in north.path.parent.iterdir():
        assert federation.verify_key not in file.read_bytes(), file


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
