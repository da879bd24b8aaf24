"""A device follows the chain of the operator's policies, and refuses and reports one that is not of it."""

import pytest
from structlog.testing import capture_logs
from support.device_under_policy import DeviceUnderPolicy, identity
from support.secure_policies import OPERATOR, policy

from foltr.core.protocol.operator_keys import issue_link, issue_succession
from foltr.core.protocol.policies import MAX_PREDECESSORS
from foltr.core.protocol.signed_policies import Lineage, lineage_of
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.updates import MaskedVector
from foltr.edge_client.device_state import state_of
from foltr.edge_client.events import PolicyForked
from foltr.edge_client.store.store_file import MetaKey

FIRST = policy()
SECOND = policy(after=FIRST)
THIRD = policy(after=SECOND)
FOURTH = policy(after=THIRD)
OTHER_SECOND = policy(after=FIRST, n_min=11)
OTHER_THIRD = policy(after=OTHER_SECOND)
FORK = (MetaKey.POLICY_FORK_KNOWN, MetaKey.POLICY_FORK_HEARD)


@pytest.mark.parametrize(
    ("heard", "known", "lineage"),
    [
        (SECOND, SECOND, Lineage.KNOWN),
        (SECOND, FIRST, Lineage.SUCCESSOR),
        (FOURTH, FIRST, Lineage.SUCCESSOR),
        (FIRST, FOURTH, Lineage.OLDER),
        (OTHER_SECOND, SECOND, Lineage.FORK),
        (OTHER_THIRD, SECOND, Lineage.FORK),
        (OTHER_SECOND, THIRD, Lineage.FORK),
        (policy(version=9), FIRST, Lineage.FORK),
    ],
)
def test_a_policy_follows_came_before_or_is_a_fork(heard, known, lineage):
    """By the hashes that it, or the one that is known, has of those before."""
    assert lineage_of(heard, known) is lineage


def test_beyond_the_hashes_that_a_policy_has_nobody_can_tell():
    """What is newer is refused then, and what is older is no news."""
    newest, chain = FIRST, [FIRST]
    for _ in range(MAX_PREDECESSORS + 1):
        hashes = [newest.hash, *newest.policy.predecessors][:MAX_PREDECESSORS]
        newest = policy(version=newest.version + 1, predecessors=hashes)
        chain.append(newest)
    assert lineage_of(newest, chain[1]) is Lineage.SUCCESSOR
    assert lineage_of(newest, chain[0]) is Lineage.FORK
    assert lineage_of(chain[0], newest) is Lineage.OLDER


async def test_a_device_that_was_off_for_two_policies_follows(path):
    """It hears the newest alone, also where its store was put back from before."""
    device = DeviceUnderPolicy(path, FIRST)
    device.restart()
    device.hear_policy(FOURTH)
    device.signed = FOURTH
    device.join()
    device.announce(1)
    device.see(1, 2)
    assert isinstance((await device.update()).body, MaskedVector)


@pytest.mark.parametrize("fork", [OTHER_THIRD, OTHER_SECOND, policy(version=7)], ids=["newer", "same", "unrelated"])
async def test_a_forked_policy_is_refused_and_reported(path, fork):
    """Once, in the log, to the application and in the state; also after a restart. Its rounds get nothing."""
    events = []
    device = DeviceUnderPolicy(path, SECOND, on_event=events.append)
    with capture_logs() as logs:
        device.hear_policy(fork)
        device.hear_policy(fork)
        device.announce(1, secure=fork)
    device.see(1, 2)
    assert await device.is_silent()
    told = PolicyForked(2, fork.version)
    assert [event for event in events if isinstance(event, PolicyForked)] == [told]
    assert [line["event"] for line in logs if line["event"] in ("policy_forked", "round_declined")] == [
        "policy_forked",
        "round_declined",
    ]
    assert [device.store.meta(key) for key in FORK] == [SECOND.signed, fork.signed]
    device.restart()
    device.hear_policy(fork)
    assert len([event for event in events if isinstance(event, PolicyForked)]) == 1
    assert str(told) in state_of(device.agent, None, None).remarks
    assert "restored from a backup" in str(told)
    device.announce(2)
    assert isinstance((await device.update()).body, MaskedVector), "it goes on under the policy that it knows"


async def test_credentials_with_a_fork_do_not_replace_what_the_device_knows(path):
    """The operator's folder was restored, and made another second policy, before it enrolled the device anew."""
    device = DeviceUnderPolicy(path, SECOND)
    device.credentials = identity(OTHER_THIRD, serial=2)
    device.restart()
    assert device.agent.policy.newest == SECOND
    assert device.agent.policy.fork == PolicyForked(2, 3)


async def test_a_device_without_a_store_begins_with_the_policy_in_its_credentials(path):
    """And follows from there; what is of another line is a fork, whichever came first."""
    device = DeviceUnderPolicy(path, THIRD)
    device.hear_policy(FIRST)
    assert device.agent.policy.fork is None
    device.hear_policy(FOURTH)
    assert device.agent.policy.newest == FOURTH
    device.hear_policy(OTHER_THIRD)
    assert device.agent.policy.fork == PolicyForked(4, 3)


async def test_the_chain_goes_on_over_a_rotation_of_the_enrolment_key(path):
    """The next key signs a policy that names those that the former one has signed."""
    device = DeviceUnderPolicy(path, SECOND)
    key = SigningKey(bytes(range(7, 39)))
    succession = issue_succession(key, "mail", [issue_link(OPERATOR, "mail", 1, key.public)], [])
    device.credentials = identity(SECOND).with_succession(succession)
    device.restart()
    newer = policy(after=SECOND, key=key)
    device.hear_policy(policy(version=3, key=key))
    assert device.agent.policy.fork == PolicyForked(2, 3)
    device.hear_policy(newer)
    assert device.agent.policy.newest == newer
