"""Members after a restart, members from when anyone was let in, and a federation that takes anyone."""

from datetime import UTC, datetime

import pytest

from foltr.core.errors import MessageError, SettingsError
from foltr.core.protocol.states import Membership
from foltr.federator.deciding.members import MemberChange, Members
from foltr.storage.records import ClientRow

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def row(client_id, **changes):
    """The client as the database has it."""
    fields = {
        "federation": "mail", "client_id": client_id, "membership": Membership.JOINED, "online": True, "joined_at": NOW,
        "left_at": None, "last_seen_at": NOW, "sdk_version": None, "public_key": None,
        "enrolment_serial": None, "revoked_at": None, "membership_sequence": 0, "status_sequence": 0,
        "counted_through": 0, "quarantined_at": None, "quarantine_reason": None,
    }  # fmt: skip
    return ClientRow(**(fields | changes))


def refused(code):
    return pytest.raises(MessageError, match=f"^{code}: ")


@pytest.fixture
def members(operator):
    return Members("mail", operator.key.public)


def test_what_was_stored_is_known_again(operator, members):
    """Keys, sequence numbers, who is online, who left: a replay recorded before the restart is a replay after it."""
    alice, bob = operator.enrol("alice"), operator.enrol("bob")
    enrolled = {"public_key": alice.key.public, "enrolment_serial": 1, "membership_sequence": 10, "status_sequence": 12}
    left = {
        "membership": Membership.LEFT,
        "online": False,
        "left_at": NOW,
        "public_key": bob.key.public,
        "enrolment_serial": 2,
    }
    members.restore([row("alice", **enrolled), row("bob", **left)], None)
    assert list(members.present(0.0)) == ["alice"]
    members.check_sender("alice", alice.updates().signed)
    for said in (alice.joins(9), alice.leaves(9), alice.status(False, 11)):
        with refused("replayed"):
            members.apply(said)
    with refused("unknown_client"):
        members.check_sender("bob", bob.updates().signed)
    assert members.apply(bob.joins(1)).news


def test_who_was_quarantined_stays_so(operator, members):
    """Only an order lets it out, not a restart; it is a member all the while, and nobody waits for it."""
    alice = operator.enrol("alice")
    quarantined = {"quarantined_at": NOW, "quarantine_reason": "it flips signs"}
    members.restore([row("alice", public_key=alice.key.public, enrolment_serial=1, **quarantined)], None)
    with refused("quarantined"):
        members.check_sender("alice", alice.updates().signed)
    assert members.joined("alice")
    assert list(members.present(0.0)) == []
    members.apply(alice.joins(9))
    with refused("quarantined"):
        members.check_sender("alice", alice.updates().signed)
    members.quarantine("alice", lifted=True)
    members.check_sender("alice", alice.updates().signed)


def test_who_was_revoked_stays_revoked(operator, members):
    """By its row, and by the roster that is stored, also where only the roster says so."""
    alice, bob, carol = operator.enrol("alice"), operator.enrol("bob"), operator.enrol("carol")
    rows = [
        row(
            "alice",
            public_key=alice.key.public,
            enrolment_serial=1,
            membership=Membership.LEFT,
            left_at=NOW,
            revoked_at=NOW,
        ),
        row("bob", public_key=bob.key.public, enrolment_serial=2),
    ]
    roster = operator.roster(5, alice=1, bob=2, carol=3)
    members.restore(rows, roster)
    assert members.roster_version == 5
    for device in (alice, bob):
        with refused("revoked"):
            members.check_sender(device.client_id, device.updates().signed)
    for device in (alice, bob, carol):
        with refused("revoked"):
            members.apply(device.joins(20))
    assert members.adopt_roster(roster) is None
    with refused("replayed"):
        members.adopt_roster(operator.roster(4))


def test_an_older_enrolment_is_refused_after_a_restart_too(operator, members):
    """The serial is stored with the member."""
    old, new = operator.enrol("alice"), operator.enrol("alice")
    members.restore([row("alice", public_key=new.key.public, enrolment_serial=2)], None)
    with refused("revoked"):
        members.apply(old.joins(99))
    members.check_sender("alice", new.updates().signed)


def test_another_operators_key_is_told_at_start(operator, members):
    """Without the roster that is stored nobody would be revoked any more: the federator does not start."""
    with pytest.raises(SettingsError, match=r"^enrolment_key: .*'mail'"):
        members.restore([row("alice")], type(operator)().roster(5, alice=1))


def test_who_joined_without_an_identity_joins_again(operator, members):
    """A row without a key proves nothing: the device is asked to join, and its enrolment then gives it a key."""
    alice = operator.enrol("alice")
    members.restore([row("alice")], None)
    for said in (alice.leaves(1), alice.status(False, 1)):
        with refused("unknown_client"):
            members.apply(said)
    with refused("unknown_client"):
        members.check_sender("alice", alice.updates().signed)
    known = {"public_key": alice.key.public, "serial": 1, "enrolment": alice.enrolment}
    assert members.apply(alice.joins(1)) == MemberChange("joined", news=False, **known)
    members.check_sender("alice", alice.updates().signed)


def test_who_joined_without_an_identity_can_be_revoked(operator, members):
    """By name, as there is no serial."""
    members.restore([row("alice")], None)
    assert members.adopt_roster(operator.roster(1, alice=1)).revoked == ["alice"]


def test_without_an_enrolment_key_a_name_is_enough(operator, unsigned):
    """For one machine, or a network whose every peer is trusted: signed or not, all is believed."""
    members = Members("mail", None)
    alice, bob = unsigned("alice"), operator.enrol("bob")
    assert members.apply(alice.joins(1)) == MemberChange("joined", news=True)
    assert members.apply(bob.joins(1)) == MemberChange("joined", news=True)
    members.check_sender("alice", alice.updates().signed)
    members.check_sender("bob", bob.but(key=None).updates().signed)
    with refused("unknown_client"):
        members.check_sender("carol", unsigned("carol").updates().signed)


def test_sequences_count_among_the_unsigned_too(unsigned):
    """No protection, but an old message that was delayed does not undo a newer one."""
    members, alice = Members("mail", None), unsigned("alice")
    members.apply(alice.joins(5))
    members.apply(alice.leaves(6))
    with refused("replayed"):
        members.apply(alice.joins(5))
