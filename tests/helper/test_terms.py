"""Under which policies a helper serves, and whose enrolment is void."""

import pytest
from support.secure_cohorts import FEDERATION, HelperPair, SecureFederation

from foltr.core.protocol.enrolment import read_enrolment
from foltr.core.protocol.helper_messages import HelperRefusalCode
from foltr.core.protocol.roster import Revocation, Roster
from foltr.core.protocol.tombstones import tombstone_of
from foltr.helper.terms import Refusal, Terms, VoidEnrolments, find_terms

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


@pytest.mark.parametrize("same_name", [True, False])
def test_a_policy_that_names_another_helper_is_refused(same_name):
    """Also one of the same name with another signing key: its answers would not be believed."""
    federation = SecureFederation()
    found = find(federation, HelperPair("north" if same_name else "east"))
    assert isinstance(found, Refusal)
    assert found.code is HelperRefusalCode.UNKNOWN_POLICY


def test_a_policy_that_never_arrived_is_refused():
    """Only what the operator has signed counts, so the helper waits for it."""
    federation = SecureFederation()
    found = find(federation, federation.helpers[0], policy=None)
    assert isinstance(found, Refusal)
    assert found.code is HelperRefusalCode.UNKNOWN_POLICY


def test_a_destroyed_sealing_key_is_said_to_be():
    """Nothing that was sealed to it is opened any more."""
    federation = SecureFederation()
    found = find(federation, federation.helpers[0], keys={})
    assert isinstance(found, Refusal)
    assert found.code is HelperRefusalCode.KEY_DESTROYED


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
