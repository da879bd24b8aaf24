"""``foltr doctor`` says under which policy of secure sums a federation is, and whether the credentials fit it."""

import base64

from support.secure_cohorts import HelperPair, SecureFederation

from foltr.broker.address import BrokerAddress
from foltr.broker.link import InboundMessage
from foltr.cli.doctor.checks import Finding, State, run
from foltr.cli.doctor.checks_broker import ANNOUNCED, BrokerUnderCheck

KNOWN = SecureFederation()
NORTH = KNOWN.credentials(KNOWN.helpers[0])
DEVICE = NORTH.model_copy(update={"role": "device", "name": "device-1"})
NEWER, PROVEN = KNOWN.issue(version=2), KNOWN.issue(version=2, proofs=True)
ENDED = KNOWN.issue(version=2, epoch_s=1)


async def findings_of(credentials, retained=None) -> list[Finding]:
    """What the command says if the broker retains this policy."""
    federation = "fed" if credentials is None else credentials.federation
    visit = BrokerUnderCheck(BrokerAddress.parse("mqtt://127.0.0.1"), federation, credentials)
    if retained is not None:
        visit.heard[visit.topics.policy] = InboundMessage(visit.topics.policy, retained, retained=True)
    return [found for found in await run(ANNOUNCED, visit) if found.what == "policy"]


def carrying(policy):
    return DEVICE.model_copy(update={"policy": base64.b64encode(policy.signed).decode()})


async def test_the_policy_at_the_broker_is_compared():
    """With the one that the credentials carry, and with the helper that they are for."""
    for credentials, retained, state, said in (
        (DEVICE, NEWER.signed, State.OK, "policy 2 is at the broker"),
        (DEVICE, NEWER.signed, State.OK, "helpers north, south"),
        (carrying(KNOWN.policy), NEWER.signed, State.OK, "policy 2 is at the broker"),
        (carrying(NEWER), KNOWN.policy.signed, State.WARNING, "foltr policy publish"),
        (DEVICE, SecureFederation().policy.signed, State.WARNING, "not the operator's"),
        (DEVICE, b"junk", State.WARNING, "nobody follows it"),
        (NORTH, NEWER.signed, State.OK, "names north"),
        (DEVICE, PROVEN.signed, State.OK, "policy 2 is at the broker"),
        (DEVICE, ENDED.signed, State.WARNING, "it ended on 1970-01-01"),
        (NORTH, ENDED.signed, State.WARNING, "foltr policy new"),
        (KNOWN.credentials(HelperPair("west")), NEWER.signed, State.WARNING, "foltr helper keys"),
        (KNOWN.credentials(HelperPair("north")), NEWER.signed, State.WARNING, "with this key"),
    ):
        (found,) = await findings_of(credentials, retained)
        assert (found.what, found.state) == ("policy", state), credentials
        assert said in found.detail, credentials


async def test_a_federation_without_secure_sums_has_no_line():
    """Nor can anything be said without credentials: nobody knows whose policy it is."""
    for credentials, retained in ((None, NEWER.signed), (None, None), (DEVICE, None), (DEVICE, b"")):
        assert await findings_of(credentials, retained) == [], credentials
