"""Who the clients are: nobody becomes one, or speaks for one, without what the operator signed."""

from dataclasses import replace

import pytest

from foltr.core.errors import MessageError
from foltr.core.protocol.signing import SESSION_STEPS, SessionSequence, SigningKey
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.federator.deciding.members import MemberChange, Members


@pytest.fixture
def members(operator):
    return Members("mail", operator.key.public)


@pytest.fixture
def alice(operator, members):
    """A member, with sequence number 10 the newest of hers."""
    device = operator.enrol("alice")
    members.apply(device.joins(10))
    return device


def refused(code):
    return pytest.raises(MessageError, match=f"^{code}: ")


def test_an_enrolled_device_joins(operator, members):
    """Its key is kept with its membership: what it signs from now on is known to be its own."""
    device = operator.enrol("alice", serial=7)
    assert members.apply(device.joins()) == MemberChange(
        "joined", news=True, public_key=device.key.public, serial=7, enrolment=device.enrolment
    )
    assert members.joined("alice")
    assert list(members.present(0.0)) == ["alice"]
    members.check_sender("alice", device.updates().signed)


def test_a_join_without_an_enrolment_is_not_taken(operator, members):
    """Where the operator's key is known, a name is not enough."""
    with refused("not_enrolled"):
        members.apply(operator.enrol("alice").but(enrolment=None).joins())
    assert not members.is_known("alice")


def test_an_enrolment_that_is_not_this_clients_lets_nobody_in(operator, members):
    """The operator's statement about this name in this federation, or nothing."""
    for shows, code, case in [
        (lambda operator: type(operator)().enrol("alice").enrolment, "not_enrolled", "forged"),
        (lambda operator: operator.enrol("bob").enrolment, "not_enrolled", "another client's"),
        (
            lambda operator: operator.enrol("alice", federation="web").enrolment,
            "not_enrolled",
            "for another federation",
        ),
        (lambda operator: operator.roster(1), "not_enrolled", "signed by the operator, but a roster"),
        (lambda _: b"\xc1", "malformed", "junk"),
        (lambda _: b"", "malformed", "empty"),
    ]:
        with refused(code):
            members.apply(operator.enrol("alice").but(enrolment=shows(operator)).joins())
        assert not members.is_known("alice"), case


def test_an_enrolment_is_no_secret(operator, members):
    """Whoever saw it pass by cannot join with it: the join is signed with the key it names, for its own topic."""
    alice = operator.enrol("alice")
    elsewhere = replace(alice.joins().signed, topic=Topics("mail").client("mallory", ClientTopic.JOIN))
    for join in (
        alice.but(key=SigningKey.generate()).joins(),
        alice.but(key=None).joins(),
        replace(alice.joins(), signed=elsewhere),
    ):
        with refused("bad_signature"):
            members.apply(join)
    assert not members.is_known("alice")


def test_a_newer_enrolment_replaces_the_older_one(operator, members, alice):
    """From the join on, the old key is nobody's; its enrolment does not come back."""
    renewed = operator.enrol("alice")
    change = members.apply(renewed.joins(11))
    assert (change.public_key, change.serial) == (renewed.key.public, 2)
    members.check_sender("alice", renewed.updates().signed)
    with refused("bad_signature"):
        members.check_sender("alice", alice.updates().signed)
    with refused("revoked"):
        members.apply(alice.joins(12))
    members.check_sender("alice", renewed.updates().signed)


def test_a_device_that_was_enrolled_anew_may_start_lower(operator, members, alice):
    """Its store and its clock may be new too; the old key's messages are no danger any more."""
    members.apply(alice.status(True, 11))
    renewed = operator.enrol("alice")
    joined = MemberChange("joined", news=False, public_key=renewed.key.public, serial=2, enrolment=renewed.enrolment)
    assert members.apply(renewed.joins(3)) == joined
    assert members.newest_sequence("alice") == 3
    assert list(members.present(0.0)) == ["alice"]
    assert members.apply(renewed.status(False, 4)) == MemberChange("offline", news=True)


@pytest.mark.parametrize("make", ["leaves", "status", "updates"])
def test_nobody_speaks_for_a_member(operator, members, alice, make):
    """Another key, no key, and another member's key: each is refused, and nothing changed."""
    for key in (SigningKey.generate(), None, operator.enrol("mallory").key):
        forger = alice.but(key=key)
        said = forger.status(False, 99) if make == "status" else getattr(forger, make)(sequence=99)
        with refused("bad_signature"):
            members.check_sender("alice", said.signed) if make == "updates" else members.apply(said)
    assert list(members.present(0.0)) == ["alice"]
    assert members.newest_sequence("alice") == 10


def test_a_stranger_who_leaves_or_is_offline_changes_nothing(operator, members):
    """Nobody has a row for it."""
    bob = operator.enrol("bob")
    assert members.apply(bob.leaves(1)) is None
    assert members.apply(bob.status(True, 1)) is None
    assert not members.is_known("bob")


def test_what_is_replayed_changes_nothing(members, alice):
    """A leave ends no membership that began after it, a status tells nothing new, and no join brings back who left."""
    joined, left, gone = alice.joins(10), alice.leaves(11), alice.status(False, 11)
    for said in (left, gone, alice.joins(12), alice.status(True, 12)):
        members.apply(said)
    for said in (left, gone):
        with refused("replayed"):
            members.apply(said)
    assert (members.joined("alice"), list(members.present(0.0))) == (True, ["alice"])
    members.apply(alice.leaves(13))
    with refused("replayed"):
        members.apply(joined)
    assert not members.joined("alice")


def test_a_repeated_join_does_not_bring_back_who_went_offline(members, alice):
    """The newest join of all may be delivered twice; the status that came after it stands."""
    recorded = alice.joins(12)
    members.apply(recorded)
    members.apply(alice.status(False, 13))
    known = {"public_key": alice.key.public, "serial": 1, "enrolment": alice.enrolment}
    joined = MemberChange("joined", news=False, online=False, status_sequence=13, **known)
    assert members.apply(recorded) == joined
    assert list(members.present(0.0)) == []
    assert members.apply(alice.joins(14)) == replace(joined, news=True, online=True)
    assert list(members.present(0.0)) == ["alice"]


def test_what_is_delivered_twice_is_taken_twice(members, alice):
    """QoS 1 may repeat a message; the second time there is no news and no error."""
    assert members.apply(alice.joins(10)).news is False
    assert [members.apply(alice.status(False, 11)).news for _ in range(2)] == [True, False]
    assert [members.apply(alice.leaves(12)).news for _ in range(2)] == [True, False]


def test_what_the_broker_retained_is_no_replay(members, alice):
    """At every connection it repeats the newest status; older ones are silent as well."""
    members.apply(alice.status(True, 11))
    assert members.apply(alice.status(True, 11, retained=True)) is None
    assert members.apply(alice.status(False, 9, retained=True)) is None
    assert members.apply(alice.status(False, 12, retained=True)) == MemberChange("offline", news=True)


def test_the_last_will_of_an_older_session_is_out_of_date(members, alice):
    """The broker finds a dead connection after the device is back: the device stays online."""
    sequence = SessionSequence()
    sequence.begin_session()
    members.apply(alice.status(True, sequence.next()))
    stale_will = alice.status(False, sequence.last_will())
    sequence.begin_session()
    members.apply(alice.status(True, sequence.next()))
    with refused("replayed"):
        members.apply(stale_will)
    assert list(members.present(0.0)) == ["alice"]
    assert members.apply(alice.status(False, sequence.last_will())) == MemberChange("offline", news=True)
    assert sequence.last_will() // SESSION_STEPS == sequence.session


def test_statuses_and_memberships_count_apart(members, alice):
    """The last will is above everything of its session; it does not make the leave before it a replay."""
    members.apply(alice.status(False, 1_000))
    assert members.apply(alice.leaves(11)) == MemberChange("left", news=True)
    assert members.newest_sequence("alice") == 11


def test_a_roster_revokes_a_member(operator, members, alice):
    """Nothing of it is taken any more, with the right key or not, and its enrolment opens nothing."""
    adoption = members.adopt_roster(operator.roster(1, alice=1))
    assert (adoption.roster.version, adoption.revoked, members.roster_version) == (1, ["alice"], 1)
    with refused("revoked"):
        members.check_sender("alice", alice.updates().signed)
    for said in (alice.joins(11), alice.leaves(12), alice.status(True, 13)):
        with refused("revoked"):
            members.apply(said)
    assert (members.joined("alice"), list(members.present(0.0))) == (False, [])


def test_a_revocation_of_older_serials_leaves_the_member_alone(operator, members):
    """It was renewed before the roster came."""
    operator.enrol("alice")
    renewed = operator.enrol("alice")
    members.apply(renewed.joins(11))
    assert members.adopt_roster(operator.roster(1, alice=1)).revoked == []
    members.check_sender("alice", renewed.updates().signed)


def test_who_was_revoked_before_it_joined_does_not_get_in(operator, members):
    """The roster may come first."""
    bob = operator.enrol("bob")
    assert members.adopt_roster(operator.roster(1, bob=1)).revoked == []
    with refused("revoked"):
        members.apply(bob.joins())


@pytest.mark.usefixtures("alice")
def test_a_roster_is_told_once(operator, members):
    """The same version again, as the broker retains it, changes nothing; a newer one names who is new on it."""
    first = operator.roster(3, alice=1)
    members.adopt_roster(first)
    assert members.adopt_roster(first) is None
    bob = operator.enrol("bob")
    members.apply(bob.joins())
    assert members.adopt_roster(operator.roster(4, alice=1, bob=2)).revoked == ["bob"]


def test_an_older_roster_brings_nobody_back(operator, members, alice):
    """Replayed by whoever kept it."""
    older = operator.roster(1)
    members.adopt_roster(operator.roster(2, alice=1))
    with refused("replayed"):
        members.adopt_roster(older)
    with refused("revoked"):
        members.apply(alice.joins(11))


def test_a_roster_that_is_not_the_operators_revokes_nobody(operator, members, alice):
    """Whatever version it claims."""
    for roster, code, case in [
        (lambda operator: type(operator)().roster(9, alice=1), "bad_signature", "forged"),
        (lambda operator: operator.roster(9, "web", alice=1), "bad_signature", "another federation"),
        (lambda operator: operator.enrol("alice").enrolment, "bad_signature", "an enrolment"),
        (lambda _: b"\xc1", "malformed", "junk"),
        (lambda operator: operator.roster(9, alice=1)[:-70], "malformed", "truncated"),
    ]:
        with refused(code):
            members.adopt_roster(roster(operator))
        assert members.roster_version == 0, case
        members.check_sender("alice", alice.updates().signed)
