"""Under which policies a helper serves, and what it finds wrong with a ticket before there is a set."""

from dataclasses import replace

import pytest
from support.secure_cohorts import FEDERATION, HelperPair, SecureFederation

from foltr.core.protocol.enrolment import read_enrolment
from foltr.core.protocol.helper_messages import HelperRefusalCode, TicketFault
from foltr.core.protocol.policies import cohort_of
from foltr.core.protocol.roster import Revocation, Roster
from foltr.core.protocol.signed_tickets import open_ticket, ticket_hash
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.tombstones import tombstone_of
from foltr.helper.checking import KnownClient, check_page, read_page, refuse_page
from foltr.helper.terms import Refusal, Terms, VoidEnrolments, find_terms


@pytest.fixture(scope="module")
def federation():
    return SecureFederation()


SALT = bytes(range(32))


def roster(*revoked, forgotten=()):
    tombstones = [tombstone_of(SALT, name) for name in forgotten]
    about = {"revoked": list(revoked), "salt": SALT, "forgotten": tombstones}
    return Roster(federation=FEDERATION, version=2, through=1, **about)


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


def seals_of(contribution):
    return list(open_ticket(contribution.ticket).ticket.seals)


def wrong_tickets(federation):
    """Tickets of a device with one thing wrong each, and its fault."""
    contribute, device, another = federation.contribute, federation.client("device"), federation.client("another")
    good, dated = contribute(device), contribute(device, digest=b"\x07" * 32)
    yield TicketFault.MALFORMED, replace(good, ticket=b"no ticket")
    yield TicketFault.MALFORMED, contribute(device, federation="search")
    yield TicketFault.MALFORMED, replace(good, client=replace(device, enrolment=b"none"))
    yield TicketFault.NOT_ENROLLED, contribute(SecureFederation().client("device"))  # by another operator
    yield TicketFault.NOT_ENROLLED, replace(good, client=another)  # with another client's enrolment
    yield TicketFault.BAD_SIGNATURE, contribute(device, signed_by=SigningKey.generate())
    yield TicketFault.BAD_SIGNATURE, replace(dated, ticket=dated.ticket.replace(b"\x07" * 32, b"\x08" * 32))
    for changed in ({"round": 5}, {"cohort": 1}, {"policy_hash": bytes(32)}, {"participation": 21}):
        yield TicketFault.MISPLACED, contribute(device, **changed)
    helpers = federation.issue(helpers=[HelperPair(name).public for name in ("north", "south")])
    yield TicketFault.NOT_OPENED, contribute(device, policy=replace(federation.policy, content=helpers.content))
    # Sealed to nobody; copied from another client; moved from another round.
    for seals in ([bytes(80)] * 2, seals_of(contribute(another)), seals_of(contribute(device, round_number=5))):
        yield TicketFault.NOT_OPENED, contribute(device, seals=seals)


def test_a_ticket_that_is_wrong_is_out(federation):
    """Before there is a set: by a fault of its own, or of what its client or another has put into it."""
    expected, wrong = zip(*wrong_tickets(federation), strict=True)
    assert [fault_of(federation, each) for each in wrong] == list(expected)


def test_a_revoked_client_is_out(federation):
    """By the roster that the helper has; enrolled again it is in."""
    for serial, fault in ((1, TicketFault.REVOKED), (2, None)):
        sent = federation.contribute(federation.client("device", serial=serial))
        assert fault_of(federation, sent, roster=roster(Revocation(client_id="device", void_below=2))) is fault


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
        (refused,) = check(federation, federation.check([one, mixed])).refused
        assert refused.fault is TicketFault.NOT_ENROLLED
    assert [question[3] for question in asked] == ["one", "other"]


def test_what_is_for_another_helper_or_policy_is_out(federation):
    """Also where the helper has those keys, or serves under both: a ticket and a seal name what they were made for."""
    sent, newer = federation.contribute(federation.client("device")), federation.issue(version=2)
    terms = Terms(newer, "north", 0, federation.helpers[0].sealing_key)
    (refused,) = check(federation, federation.check([sent], policy_hash=newer.hash), terms=terms).refused
    assert refused.fault is TicketFault.MISPLACED
    south = Terms(federation.policy, "south", 1, federation.helpers[1].sealing_key)
    assert check(federation, federation.check([sent], helper="south"), terms=south).refused == []
    (refused,) = check(federation, federation.check([sent], helper="south"), terms=replace(south, place=0)).refused
    assert refused.fault is TicketFault.NOT_OPENED


def test_a_ticket_shown_in_another_cohort_than_its_own_is_out():
    """The request's cohort counts, not only the one that the client's hash gives."""
    federation = SecureFederation(cohorts=2)
    clients = federation.clients(50)
    sent = federation.contribute(next(c for c in clients if cohort_of(federation.policy.hash, 2, 4, c.name) == 1))
    (fault,) = check(federation, federation.check([sent])).refused
    assert fault.fault is TicketFault.MISPLACED
    assert check(federation, federation.check([sent], cohort=1)).refused == []


@pytest.mark.parametrize("participation", [1, 7, 20])
@pytest.mark.parametrize(("spent", "fault"), [(19, None), (20, TicketFault.PARTICIPATIONS_SPENT)])
def test_a_client_that_took_part_as_often_as_the_policy_allows_is_out(federation, participation, spent, fault):
    """Its device may have lost its store, and number its participations from 1 again."""
    sent = federation.contribute(federation.client("device"), participation=participation)
    assert fault_of(federation, sent, {"device": KnownClient(spent=spent)}) is fault


def test_a_client_twice_in_a_cohort_is_out_once(federation):
    """Of two tickets on a page, or the same one twice, the first stays; one on another page makes this the second."""
    client = federation.client("device")
    twice = [federation.contribute(client), federation.contribute(client, participation=2)]
    page = check(federation, federation.check(twice))
    assert [ticket.position for ticket in page.good] == [0]
    assert [(ticket.position, ticket.fault) for ticket in page.refused] == [(1, TicketFault.DUPLICATE_CLIENT)]
    again = check(federation, federation.check([twice[0], twice[0]]))
    assert [ticket.fault for ticket in again.refused] == [TicketFault.DUPLICATE_CLIENT]
    elsewhere = {"device": KnownClient(elsewhere=ticket_hash(twice[1].ticket))}
    assert fault_of(federation, twice[0], elsewhere) is TicketFault.DUPLICATE_CLIENT
    assert fault_of(federation, twice[1], elsewhere) is None


def test_a_seal_opens_in_no_other_ticket_of_its_client(federation):
    """The client's next key signs anything: a second challenge to one seal would tell more of its proof."""
    known = federation.contribute(federation.client("victim"))
    seals = seals_of(known)
    renewed = federation.client("victim", serial=2)
    for changed in ({}, {"participation": 2}, {"update_id": "f" * 32}):
        again = federation.contribute(renewed, seals=seals, **changed)
        assert fault_of(federation, again) is TicketFault.NOT_OPENED, changed
    digest = open_ticket(known.ticket).ticket.digest
    assert fault_of(federation, federation.contribute(renewed, seals=seals, digest=digest)) is None


def test_what_was_opened_is_not_checked_again(federation):
    """Neither a cohort whose sum is opened nor an older round; another cohort of the round is."""
    request = federation.check([federation.contribute(federation.client("device"))])
    assert refuse_page(request, None, is_opened=False) is None
    assert refuse_page(request, 4, is_opened=False) is None
    for newest, is_opened in ((4, True), (5, False)):
        assert refuse_page(request, newest, is_opened).code is HelperRefusalCode.ROUND_OVER


def find(federation, pair, policy="its own", keys=None):
    policy = federation.policy if policy == "its own" else policy
    held = {pair.sealing_key.public: pair.sealing_key} if keys is None else keys
    return find_terms(policy, pair.name, pair.signing_key.public, held.get, 0, 0.0)


def test_a_helper_serves_under_a_policy_that_names_it_and_whose_key_it_has():
    """Only what the operator has signed counts, and another's answers would not be believed."""
    federation = SecureFederation(n_helpers=3)
    for place, pair in enumerate(federation.helpers):
        assert find(federation, pair) == Terms(federation.policy, pair.name, place, pair.sealing_key)
    own, unknown, destroyed = federation.helpers[0], HelperRefusalCode.UNKNOWN_POLICY, HelperRefusalCode.KEY_DESTROYED
    for pair, options, code in (
        (HelperPair("north"), {}, unknown),  # its name with another signing key
        (HelperPair("east"), {}, unknown),
        (own, {"policy": None}, unknown),
        (own, {"keys": {}}, destroyed),
    ):
        found = find(federation, pair, **options)
        assert isinstance(found, Refusal)
        assert found.code is code


def test_enrolments_are_void_by_the_roster(federation):
    """Of a revoked client those below a serial, of a forgotten one all; nothing is void without a roster."""

    def enrolment(name, serial):
        signed = federation.client(name, serial).enrolment
        return read_enrolment(signed, federation.operator.public, FEDERATION, name)

    void = VoidEnrolments(roster(Revocation(client_id="device-1", void_below=6), forgotten=["device-2"]))
    found = {each: enrolment(*each) in void for each in (("device-1", 5), ("device-1", 6), ("device-2", 99), ("d", 1))}
    assert found == {("device-1", 5): True, ("device-1", 6): False, ("device-2", 99): True, ("d", 1): False}
    assert enrolment("device-1", 5) not in VoidEnrolments(None)
