"""Under which policies a helper serves, and what it finds wrong with a ticket before there is a set."""

from dataclasses import replace

import pytest
from support.secure_cohorts import FEDERATION, HelperPair, SecureFederation

from foltr.core.protocol.enrolment import read_enrolment
from foltr.core.protocol.helper_messages import HelperRefusalCode, TicketFault
from foltr.core.protocol.policies import cohort_of
from foltr.core.protocol.roster import Revocation, Roster
from foltr.core.protocol.signed_tickets import ticket_hash
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.tombstones import tombstone_of
from foltr.helper.checking import KnownClient, check_page, read_page, refuse_page
from foltr.helper.terms import Refusal, Terms, VoidEnrolments, find_terms


@pytest.fixture(scope="module")
def federation():
    return SecureFederation()


def check(federation, request, known=None, roster=None, terms=None):
    north = federation.helpers[0]
    terms = terms or Terms(federation.policy, "north", 0, north.sealing_key)
    void = VoidEnrolments(roster)
    return check_page(request, read_page(request), terms, federation.operator.public, void, known or {})


def fault_of(federation, contribution, known=None, roster=None, request=None):
    """What is wrong with the middle one of three tickets; the other two are good."""
    first, last = (federation.contribute(federation.client(name)) for name in ("first", "last"))
    page = check(federation, request or federation.check([first, contribution, last], first=7), known, roster)
    assert {ticket.position for ticket in page.good} >= {7, 9}
    assert len(page.good) + len(page.refused) == 3
    return next((ticket.fault for ticket in page.refused if ticket.position == 8), None)


def test_a_good_page_is_kept_by_position(federation):
    """Of each ticket its hash, its participation and this helper's seal."""
    sent = [federation.contribute(client, participation=3) for client in federation.clients(3)]
    page = check(federation, federation.check(sent, first=256))
    assert page.refused == []
    assert [ticket.position for ticket in page.good] == [256, 257, 258]
    for ticket, contribution in zip(page.good, sent, strict=True):
        assert ticket.client_id == contribution.client.name
        assert ticket.hash == ticket_hash(contribution.ticket)
        assert ticket.participation == 3
        assert len(federation.helpers[0].sealing_key.open(ticket.seal, ticket.info)) == 32


def test_bytes_that_are_no_ticket_are_out(federation):
    """As are a ticket of another federation, and an enrolment that cannot be read."""
    good = federation.contribute(federation.client("device"))
    assert fault_of(federation, replace(good, ticket=b"no ticket")) is TicketFault.MALFORMED
    strange = federation.contribute(federation.client("device"), federation="search")
    assert fault_of(federation, strange) is TicketFault.MALFORMED
    unreadable = replace(good, client=replace(good.client, enrolment=b"none"))
    assert fault_of(federation, unreadable) is TicketFault.MALFORMED


def test_a_client_that_the_operator_did_not_enrol_is_out(federation):
    """An enrolment by another operator, or one of another client, is none."""
    stranger = SecureFederation().client("device")
    assert fault_of(federation, federation.contribute(stranger)) is TicketFault.NOT_ENROLLED
    sent = federation.contribute(federation.client("device"))
    borrowed = replace(sent, client=federation.client("another"))
    assert fault_of(federation, borrowed) is TicketFault.NOT_ENROLLED


def test_an_enrolment_is_verified_once_in_all_rounds(federation, monkeypatch):
    """Good or not; for another name, or beside other bytes, it is another question."""
    asked = []

    def counting(*question):
        asked.append(question)
        return read_enrolment(*question)

    monkeypatch.setattr("foltr.helper.checking.read_enrolment", counting)
    one, other = (federation.contribute(federation.client(name)) for name in ("one", "other"))
    mixed = replace(other, client=one.client)  # another's enrolment beside a ticket
    for _ in range(2):
        assert [ticket.fault for ticket in check(federation, federation.check([one, mixed])).refused] == [
            TicketFault.NOT_ENROLLED
        ]
    assert [question[3] for question in asked] == ["one", "other"]


def test_a_revoked_client_is_out(federation):
    """By the roster that the helper has; enrolled anew it is in."""
    roster = Roster(
        federation=FEDERATION,
        version=2,
        through=1,
        revoked=[Revocation(client_id="device", void_below=2)],
        salt=bytes(32),
        forgotten=[],
    )
    assert (
        fault_of(federation, federation.contribute(federation.client("device")), roster=roster) is TicketFault.REVOKED
    )
    again = federation.contribute(federation.client("device", serial=2))
    assert fault_of(federation, again, roster=roster) is None


def test_a_ticket_that_its_client_did_not_sign_is_out(federation):
    """Signed by another key, or changed after it was signed."""
    client = federation.client("device")
    forged = federation.contribute(client, signed_by=SigningKey.generate())
    assert fault_of(federation, forged) is TicketFault.BAD_SIGNATURE
    sent = federation.contribute(client, digest=b"\x07" * 32)
    changed = replace(sent, ticket=sent.ticket.replace(b"\x07" * 32, b"\x08" * 32))
    assert fault_of(federation, changed) is TicketFault.BAD_SIGNATURE


@pytest.mark.parametrize("changed", [{"round": 5}, {"cohort": 1}, {"policy_hash": bytes(32)}, {"participation": 21}])
def test_a_ticket_for_something_else_is_out(federation, changed):
    """Moved to this round, cohort or policy, or one participation above the policy's."""
    sent = federation.contribute(federation.client("device"), **changed)
    assert fault_of(federation, sent) is TicketFault.MISPLACED


def test_a_ticket_shown_in_another_cohort_than_its_own_is_out():
    """The request's cohort counts, not only the one that the client's hash gives."""
    federation = SecureFederation(cohorts=2)
    client = next(
        client for client in federation.clients(50) if cohort_of(federation.policy.hash, 2, 4, client.name) == 1
    )
    sent = federation.contribute(client)
    (fault,) = check(federation, federation.check([sent])).refused
    assert fault.fault is TicketFault.MISPLACED
    assert check(federation, federation.check([sent], cohort=1)).refused == []


def test_a_ticket_moved_to_another_policy_is_out(federation):
    """Also where the helper serves under both: each names the policy that it was made for."""
    newer = federation.issue(version=2)
    sent = federation.contribute(federation.client("device"))
    terms = Terms(newer, "north", 0, federation.helpers[0].sealing_key)
    (fault,) = check(federation, federation.check([sent], policy_hash=newer.hash), terms=terms).refused
    assert fault.fault is TicketFault.MISPLACED


@pytest.mark.parametrize("participation", [1, 7, 20])
@pytest.mark.parametrize(("spent", "fault"), [(19, None), (20, TicketFault.PARTICIPATIONS_SPENT)])
def test_a_client_that_took_part_as_often_as_the_policy_allows_is_out(federation, participation, spent, fault):
    """Whatever its device says: that may have lost its store, and number its participations from 1 again."""
    sent = federation.contribute(federation.client("device"), participation=participation)
    assert fault_of(federation, sent, {"device": KnownClient(spent=spent)}) is fault


def test_a_client_twice_in_a_cohort_is_out_once(federation):
    """Of two tickets on a page the first stays; another one on another page makes this one the second."""
    client = federation.client("device")
    twice = [federation.contribute(client), federation.contribute(client, participation=2)]
    page = check(federation, federation.check(twice))
    assert [ticket.position for ticket in page.good] == [0]
    assert [(ticket.position, ticket.fault) for ticket in page.refused] == [(1, TicketFault.DUPLICATE_CLIENT)]
    elsewhere = {"device": KnownClient(elsewhere=ticket_hash(twice[1].ticket))}
    assert fault_of(federation, twice[0], elsewhere) is TicketFault.DUPLICATE_CLIENT
    assert fault_of(federation, twice[1], elsewhere) is None


def test_a_seal_that_this_helper_cannot_open_is_out(federation):
    """Sealed to another key, to the other helper, or to nobody: the client is out before there is a set."""
    client = federation.client("device")
    good = federation.contribute(client)
    others = replace(
        federation.policy, content=federation.issue(helpers=[HelperPair(n).public for n in ("north", "south")]).content
    )
    assert fault_of(federation, federation.contribute(client, policy=others)) is TicketFault.NOT_OPENED
    assert fault_of(federation, federation.contribute(client, seals=[bytes(80)] * 2)) is TicketFault.NOT_OPENED
    south = Terms(federation.policy, "south", 1, federation.helpers[1].sealing_key)
    assert check(federation, federation.check([good], helper="south"), terms=south).refused == []
    confused = replace(south, place=0)
    (fault,) = check(federation, federation.check([good], helper="south"), terms=confused).refused
    assert fault.fault is TicketFault.NOT_OPENED


def test_a_seal_that_another_client_copied_is_out(federation):
    """It was sealed for its own client, round, cohort, policy and helper, and opens for nothing else."""
    victim = federation.contribute(federation.client("victim"))
    seals = read_page(federation.check([victim]))[0].ticket.seals
    copied = federation.contribute(federation.client("copier"), seals=list(seals))
    assert fault_of(federation, copied) is TicketFault.NOT_OPENED
    later = federation.contribute(federation.client("victim"), round_number=5)
    moved = read_page(federation.check([later]))[0].ticket.seals
    assert fault_of(federation, federation.contribute(federation.client("victim"), seals=list(moved))) is (
        TicketFault.NOT_OPENED
    )


def test_a_seal_opens_in_no_other_ticket_of_its_client(federation):
    """Whoever has the client's next key signs anything: a second challenge to one seal would tell more of its proof."""
    known = federation.contribute(federation.client("victim"))
    seals = list(read_page(federation.check([known]))[0].ticket.seals)
    renewed = federation.client("victim", serial=2)
    for changed in ({}, {"participation": 2}, {"update_id": "f" * 32}):
        again = federation.contribute(renewed, seals=seals, **changed)
        assert fault_of(federation, again) is TicketFault.NOT_OPENED, changed
    digest = read_page(federation.check([known]))[0].ticket.digest
    assert fault_of(federation, federation.contribute(renewed, seals=seals, digest=digest)) is None


def test_another_clients_whole_ticket_is_out(federation):
    """Shown with the copier's enrolment, or beside its owner's: once is all that it counts."""
    victim = federation.contribute(federation.client("victim"))
    assert fault_of(federation, replace(victim, client=federation.client("copier"))) is TicketFault.NOT_ENROLLED
    page = check(federation, federation.check([victim, victim]))
    assert [ticket.fault for ticket in page.refused] == [TicketFault.DUPLICATE_CLIENT]


def test_what_was_opened_is_not_checked_again(federation):
    """Neither a cohort whose sum is opened nor an older round; another cohort of the round is."""
    request = federation.check([federation.contribute(federation.client("device"))])
    assert refuse_page(request, None, is_opened=False) is None
    assert refuse_page(request, 4, is_opened=False) is None
    for newest, is_opened in ((4, True), (5, False)):
        assert refuse_page(request, newest, is_opened).code is HelperRefusalCode.ROUND_OVER


SALT = bytes(range(32))


def find(federation, pair, policy="its own", keys=None):
    policy = federation.policy if policy == "its own" else policy
    held = {pair.sealing_key.public: pair.sealing_key} if keys is None else keys
    return find_terms(policy, pair.name, pair.signing_key.public, held.get, 0, 0.0)


def test_a_helper_serves_under_a_policy_that_names_it():
    """Its place among the helpers is that of its seal in each ticket."""
    federation = SecureFederation(n_helpers=3)
    for place, pair in enumerate(federation.helpers):
        assert find(federation, pair) == Terms(federation.policy, pair.name, place, pair.sealing_key)


@pytest.mark.parametrize(
    ("name", "options", "code"),
    [
        pytest.param("north", {}, HelperRefusalCode.UNKNOWN_POLICY, id="its name with another signing key"),
        pytest.param("east", {}, HelperRefusalCode.UNKNOWN_POLICY, id="another helper's"),
        pytest.param(None, {"policy": None}, HelperRefusalCode.UNKNOWN_POLICY, id="it never arrived"),
        pytest.param(None, {"keys": {}}, HelperRefusalCode.KEY_DESTROYED, id="its sealing key was destroyed"),
    ],
)
def test_a_policy_that_nothing_can_be_opened_under_is_refused(name, options, code):
    """Only what the operator has signed counts, and another's answers would not be believed."""
    federation = SecureFederation()
    pair = federation.helpers[0] if name is None else HelperPair(name)
    found = find(federation, pair, **options)
    assert isinstance(found, Refusal)
    assert found.code is code


def test_enrolments_are_void_by_the_roster():
    """Of a revoked client those below a serial, of a forgotten one all; nothing is void without a roster."""
    federation = SecureFederation()
    roster = Roster(
        federation=FEDERATION,
        version=2,
        through=1,
        revoked=[Revocation(client_id="device-1", void_below=6)],
        salt=SALT,
        forgotten=[tombstone_of(SALT, "device-2")],
    )

    def enrolment(name, serial):
        signed = federation.client(name, serial).enrolment
        return read_enrolment(signed, federation.operator.public, FEDERATION, name)

    void = VoidEnrolments(roster)
    assert enrolment("device-1", 5) in void
    assert enrolment("device-1", 6) not in void
    assert enrolment("device-2", 99) in void
    assert enrolment("device-3", 1) not in void
    assert enrolment("device-1", 5) not in VoidEnrolments(None)
