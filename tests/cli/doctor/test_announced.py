"""What ``foltr doctor`` says of what the broker retains: the round, the model, the federator, a policy of sums."""

import base64

import numpy as np
import pytest
from cli.doctor.test_doctor import announcement
from support.secure_cohorts import HelperPair, SecureFederation

from foltr.broker.address import BrokerAddress
from foltr.broker.link import InboundMessage
from foltr.cli.doctor import checks_broker
from foltr.cli.doctor.checks import Finding, State, run
from foltr.cli.doctor.checks_broker import ANNOUNCED, BrokerUnderCheck
from foltr.core.operator.credentials import Credentials
from foltr.core.protocol.announcements import ModelAnnouncement
from foltr.core.protocol.codec import encode
from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.heartbeat import FederatorStatus
from foltr.core.protocol.trainings import LinearRankerSpec

NOW = 1_000_000.0
KNOWN = SecureFederation()
NORTH = KNOWN.credentials(KNOWN.helpers[0])
DEVICE = NORTH.model_copy(update={"role": "device", "name": "device-1"})
NEWER, PROVEN = KNOWN.issue(version=2), KNOWN.issue(version=2, proofs=True)
ENDED = KNOWN.issue(version=2, epoch_s=1)


@pytest.fixture
def still_clock(monkeypatch):
    monkeypatch.setattr(checks_broker.time, "time", lambda: NOW)


async def findings(credentials: Credentials | None = None, **heard: bytes) -> list[Finding]:
    """What the command says if the broker retains these."""
    federation = "mail" if credentials is None else credentials.federation
    visited = BrokerUnderCheck(BrokerAddress.parse("mqtt://127.0.0.1"), federation, credentials)
    for name, payload in heard.items():
        topic = getattr(visited.topics, name)
        visited.heard[topic] = InboundMessage(topic, payload, retained=True)
    return await run(ANNOUNCED, visited)


async def test_another_schema_version_is_told_in_words():
    """Which side is older, and what to upgrade."""
    payload = encode(announcement(3, NOW))
    for version, older in ((0, "upgrade the peer"), (2, "upgrade this side")):
        (found,) = await findings(round=payload.replace(b"\xa1v\x01", b"\xa1v" + bytes([version])))
        assert found.state is State.PROBLEM
        assert older in found.detail


@pytest.mark.usefixtures("still_clock")
async def test_a_model_is_looked_at_even_where_it_is_large():
    """A model announcement of 60,000 features is nearly as large as a message may be."""
    ranker, weights = LinearRankerSpec(n_features=60_000), pack_vector(np.zeros(60_000))
    model = ModelAnnouncement(federation="mail", version=1, ranker=ranker, weights=weights)
    found, *_ = await findings(round=encode(announcement(3, NOW)), model=encode(model))
    assert found.state is State.OK


def status(age_s: float = 1.0, *, online: bool = True) -> FederatorStatus:
    return FederatorStatus(federation="mail", online=online, at=NOW - age_s, interval_s=30.0, software_version="1.2")


@pytest.mark.usefixtures("still_clock")
async def test_whether_the_federator_is_there():
    """A missing federator is a problem with a next step; one that stopped after its last round is not."""
    for heard, is_over, state, said in (
        (status(), False, State.OK, "it is running: foltr 1.2, its last heartbeat is from 1 s ago"),
        (status(online=False), False, State.PROBLEM, "the broker says that it is away"),
        (status(online=False), True, State.OK, "after its last round"),
        (status(600.0), False, State.WARNING, "it hangs or cannot reach its database, or the clocks differ"),
        (status(-60.0), False, State.WARNING, "this machine's clock is 60 s behind the federator's"),
        (None, False, State.WARNING, "the broker has no heartbeat of it"),
    ):
        round_ = announcement(3, NOW, open_=False).model_copy(update={"last": is_over})
        beats = {} if heard is None else {"federator_status": encode(heard)}
        (found,) = [one for one in await findings(round=encode(round_), **beats) if one.what == "federator"]
        assert found.state == state, heard
        assert said in found.detail, heard
        assert ("foltr federator run" in found.detail) == (("away" in said and not is_over) or heard is None), heard


async def of_policy(credentials, retained=None) -> list[Finding]:
    found = await findings(credentials, **({} if retained is None else {"policy": retained}))
    return [one for one in found if one.what == "policy"]


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
        (found,) = await of_policy(credentials, retained)
        assert (found.what, found.state) == ("policy", state), credentials
        assert said in found.detail, credentials
    # Without secure sums there is no line; and without credentials nobody knows whose policy it is.
    for credentials, retained in ((None, NEWER.signed), (None, None), (DEVICE, None), (DEVICE, b"")):
        assert await of_policy(credentials, retained) == [], credentials
