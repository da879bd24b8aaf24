"""A device takes no part under a policy that promises its user less than the application asks for, and says why."""

import sys

import pytest
from structlog.testing import capture_logs
from support.device_under_policy import DeviceUnderPolicy
from support.secure_policies import policy

from foltr.core.errors import SettingsError
from foltr.core.protocol.policies import GaussianNoise
from foltr.core.protocol.updates import MaskedVector
from foltr.core.secure.accounting import DEFAULT_DELTA, DEFAULT_EPSILON
from foltr.edge_client.blockers import BlockerKind, blocker_of
from foltr.edge_client.device_state import settled_by_now, state_of
from foltr.edge_client.sums.privacy_limits import USUAL_PRIVACY, PrivacyLimits

USUAL = policy()
BEYOND = policy(epsilon=1e6, noise=GaussianNoise(variance=1), n_min=2, after=USUAL)


class ConnectedLink:
    outage = None
    shares_session = False


def test_what_the_tool_makes_by_itself_is_within_the_usual_limits():
    """Also the smallest cohorts of one of several; just beyond each limit is not."""
    made = {"epsilon": DEFAULT_EPSILON, "delta": DEFAULT_DELTA, "n_min": 10}
    for signed in (policy(**made), policy(epsilon=10.0, delta=1e-5)):
        assert USUAL_PRIVACY.excess_of(signed.policy) is None
    for changed, word in (
        ({"epsilon": 10.1}, "max_epsilon"),
        ({"delta": 2e-5}, "max_delta"),
        ({"n_min": 9}, "min_cohort"),
    ):
        assert word in USUAL_PRIVACY.excess_of(policy(**changed).policy)
    assert USUAL_PRIVACY.excess_of(policy(gamma=True, delta=0.5).policy) is not None


def test_limits_that_are_none_are_refused():
    """With the setting and its value."""
    for name, wrong in (("max_epsilon", 2e6), ("max_delta", 1.0), ("min_cohort", 1)):
        with pytest.raises(SettingsError, match=name):
            PrivacyLimits(**{name: wrong})


async def test_a_policy_beyond_the_limits_gets_nothing(path):
    """No sum and nothing raw; the log, the blocker and the state say by what, and what to do."""
    device = DeviceUnderPolicy(path, BEYOND)
    with capture_logs() as logs:
        device.announce(1)
        device.announce(2)
        device.announce(3, secure=None)
    device.see(1, 2, 3, 4)
    assert await device.is_silent()
    (line,) = [line for line in logs if line["event"] == "round_declined"]
    assert "epsilon 1e+06 is above 10" in line["excess"]
    assert "2 clients, but this device asks for 10" in line["excess"]
    device.agent.link = ConnectedLink()
    found = blocker_of(device.agent, 0.0)
    assert found.kind is BlockerKind.POLICY_BEYOND_LIMITS
    assert "privacy_limits" in found.message
    assert "under a policy beyond its limits" in state_of(device.agent, found, None).status
    assert device.store.entries() == []


async def test_a_device_without_the_extra_for_masks_sends_nothing_and_says_what_to_install(path, monkeypatch):
    """No participation is charged; after the next start the same clicks go into a sum."""
    monkeypatch.setitem(sys.modules, "cryptography", None)
    device = DeviceUnderPolicy(path, USUAL)
    device.announce(1)
    device.announce(2, secure=None)
    device.see(1, 2)
    assert await device.is_silent()
    device.agent.link = ConnectedLink()
    found = blocker_of(device.agent, 0.0)
    assert found.kind is BlockerKind.CANNOT_MASK
    assert "pip install " in found.message
    assert "[secure]'" in found.message
    assert "start the application again" in found.message
    assert device.store.entries() == []
    monkeypatch.undo()
    device.announce(3)
    assert blocker_of(device.agent, 0.0) == found
    assert device.store.pending_update() is None
    device.restart()
    device.announce(3)
    assert isinstance((await device.update()).body, MaskedVector)


async def test_a_running_device_stops_where_its_policy_is_replaced_by_one_beyond(path):
    """What waits for its receipt is given up, as with each newer policy; the application may raise its limits later."""
    device = DeviceUnderPolicy(path, USUAL)
    device.announce(1)
    device.see(1, 2)
    assert isinstance((await device.update()).body, MaskedVector)
    device.hear_policy(BEYOND)
    device.signed = BEYOND
    device.join()
    device.announce(2)
    device.see(3, 4)
    assert await device.is_silent()
    device.options |= {"privacy_limits": PrivacyLimits(max_epsilon=1e6, min_cohort=2)}
    device.restart()
    device.announce(2)
    assert (await device.update()).through == 2


async def test_a_masked_update_waits_while_the_limits_are_lower(path):
    """It was charged and is kept, which `wait_settled` says; with the limits of before it is sent, the same bytes."""
    device = DeviceUnderPolicy(path, USUAL)
    device.announce(1)
    device.see(1, 2)
    before = device.store.pending_update()
    device.options |= {"privacy_limits": PrivacyLimits(max_epsilon=1.0)}
    device.restart()
    device.announce(1)
    assert await device.is_silent()
    device.agent.link = ConnectedLink()
    settled = settled_by_now(device.agent, blocker_of(device.agent, 0.0))
    assert str(settled).startswith("an update waits for its receipt: the policy promises less")
    device.options |= {"privacy_limits": USUAL_PRIVACY}
    device.restart()
    device.announce(1)
    assert (await device.update()).update_id == before.update_id
    assert len(device.store.entries()) == 1
