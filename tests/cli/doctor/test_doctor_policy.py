"""``foltr doctor`` says under which policy of secure sums a federation is, and whether the credentials fit it."""

import base64

import pytest
from secure_cohorts import HelperPair, SecureFederation

from foltr.cli.doctor.checks import State
from foltr.cli.doctor.checks_policy import carried_policy_findings, policy_findings
from foltr.protocol.signing import key_to_text

KNOWN = SecureFederation()
NORTH = KNOWN.credentials(KNOWN.helpers[0])
DEVICE = NORTH.model_copy(update={"role": "device", "name": "device-1"})
NEWER, PROVEN = KNOWN.issue(version=2), KNOWN.issue(version=2, proofs=True)
ENDED = KNOWN.issue(version=2, epoch_s=1)
FEDERATOR = NORTH.model_copy(update={"role": "federator", "name": "@federator"})
CHECKING = FEDERATOR.model_copy(update={"sealing_keys": (key_to_text(KNOWN.federator_sealing_key.private),)})


def carrying(policy, credentials=DEVICE):
    return credentials.model_copy(update={"policy": base64.b64encode(policy.signed).decode()})


@pytest.mark.parametrize(
    ("credentials", "retained", "state", "said"),
    [
        (DEVICE, NEWER.signed, State.OK, "policy 2 is at the broker"),
        (DEVICE, NEWER.signed, State.OK, "helpers north, south"),
        (carrying(KNOWN.policy), NEWER.signed, State.OK, "policy 2 is at the broker"),
        (carrying(NEWER), KNOWN.policy.signed, State.WARNING, "foltr policy publish"),
        (carrying(NEWER), None, State.WARNING, "foltr policy publish"),
        (DEVICE, SecureFederation().policy.signed, State.WARNING, "not the operator's"),
        (DEVICE, b"junk", State.WARNING, "obeyed by nobody"),
        (NORTH, NEWER.signed, State.OK, "names north"),
        (DEVICE, PROVEN.signed, State.OK, "policy 2 is at the broker"),
        (DEVICE, ENDED.signed, State.WARNING, "it ended on 1970-01-01"),
        (NORTH, ENDED.signed, State.WARNING, "foltr policy new"),
        (KNOWN.credentials(HelperPair("west")), NEWER.signed, State.WARNING, "foltr helper keys"),
        (KNOWN.credentials(HelperPair("north")), NEWER.signed, State.WARNING, "with this key"),
    ],
)
def test_the_policy_at_the_broker_is_compared(credentials, retained, state, said):
    """With the one that the credentials carry, and with the helper that they are for."""
    (found,) = policy_findings(credentials, retained)
    assert (found.what, found.state) == ("policy", state)
    assert said in found.detail


@pytest.mark.parametrize(
    ("credentials", "policy", "state", "said"),
    [
        (FEDERATOR, NEWER, State.OK, "policy 2 is in the credentials"),
        (CHECKING, PROVEN, State.OK, "helpers north, south"),
        (FEDERATOR, ENDED, State.WARNING, "it ended on 1970-01-01"),
        (
            FEDERATOR,
            PROVEN,
            State.PROBLEM,
            "newest federator.json, or, where it has that, make another policy: foltr policy new",
        ),
    ],
)
def test_a_federator_is_told_of_the_policy_that_it_carries(credentials, policy, state, said):
    """Whether it can check norm proofs under it; it may not listen at the broker beside its own session."""
    (found,) = carried_policy_findings(carrying(policy, credentials))
    assert (found.what, found.state) == ("policy", state)
    assert said in found.detail
    assert carried_policy_findings(credentials) == []


@pytest.mark.parametrize(
    ("credentials", "retained"), [(None, NEWER.signed), (None, None), (DEVICE, None), (DEVICE, b"")]
)
def test_a_federation_without_secure_sums_has_no_line(credentials, retained):
    """Nor can anything be said without credentials: nobody knows whose policy it is."""
    assert policy_findings(credentials, retained) == []
