"""A device that was enrolled for a secure federation sends nothing but under a policy, whoever withholds it."""

import base64

import pytest
from structlog.testing import capture_logs
from support.device_under_policy import FEDERATOR, TOPICS, DeviceUnderPolicy, identity, learnable
from support.secure_policies import OPERATOR, policy

from foltr.core.protocol.enrolment import issue_enrolment
from foltr.core.protocol.operator_keys import follow_succession, issue_link, issue_succession
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.updates import MaskedVector

POLICY = policy()


def pinned_device(path, **changed):
    return DeviceUnderPolicy(path, POLICY, credentials=identity(secure=True).model_copy(update=changed))


async def test_a_pinned_device_gives_a_trusted_federator_nothing(path):
    """It says why, and the first policy that it hears of lets it take part."""
    device = pinned_device(path)
    with capture_logs() as logs:
        device.announce(1, secure=None)
        device.announce(2, secure=None)
    device.see(1, 2, 3)
    assert await device.is_silent()
    causes = [line["cause"] for line in logs if line["event"] == "round_objected"]
    assert causes == ["this device was enrolled for a secure federation, and has heard of no policy of its operator"]
    device.hear_policy(POLICY)
    device.join()
    device.announce(3)
    assert isinstance((await device.update()).body, MaskedVector)


async def test_the_pin_outlives_the_store(path):
    """A device that lost its store, and with it the policy that it knew, has the pin in its credentials."""
    device = pinned_device(path)
    device.hear_policy(POLICY)
    device.store.close()
    device = pinned_device(path.with_name("another.sqlite"))
    device.announce(1, secure=None)
    device.see(1, 2)
    assert await device.is_silent()


async def test_a_raw_update_from_before_the_pin_is_not_sent(path):
    """A device that is enrolled anew with a pin keeps what waits; a policy spends it, as it may have been seen."""
    device = DeviceUnderPolicy(path, POLICY, credentials=identity())
    device.announce(1, secure=None)
    device.see(1)
    assert device.store.pending_update() is not None
    device.credentials = identity(secure=True, serial=2)
    device.restart()
    device.announce(1, secure=None)
    assert await device.is_silent()
    assert device.agent.is_settled
    device.hear_policy(POLICY)
    assert device.store.pending_update() is None
    assert device.store.n_waiting() == 0


async def test_a_pinned_device_answers_no_unlearning_job(path):
    """A step would ask for its clicks once more, raw."""
    device = DeviceUnderPolicy(path, POLICY, credentials=identity())
    device.announce(1, secure=None)
    device.see(1, 2, 3)
    device.answer(await device.update())
    device.credentials = identity(secure=True, serial=2)
    device.restart()
    device.say(TOPICS.unlearning_round, learnable())
    assert device.agent.relearning.due is None
    assert await device.is_silent()


async def test_an_enrolment_that_cannot_be_read_lets_nothing_out(path):
    """What it says of the federation nobody knows."""
    credentials = identity()
    forged = issue_enrolment(FEDERATOR, "mail", "device-7", credentials.key.public, 1, 0.0)
    device = pinned_device(path, enrolment=base64.b64encode(forged).decode())
    device.announce(1, secure=None)
    device.see(1, 2)
    assert await device.is_silent()


@pytest.mark.parametrize("secure", [True, False])
def test_the_pin_is_what_the_operator_signed_also_by_a_former_key(secure):
    """The device's file is from before a rotation; what it holds of the operator was checked then."""
    credentials, key = identity(secure=secure), SigningKey(bytes(range(7, 39)))
    link = issue_link(OPERATOR, "mail", 1, key.public)
    succession = issue_succession(key, "mail", [link], [])
    assert follow_succession(succession, OPERATOR.public, "mail").newest == key.public
    assert credentials.is_pinned is credentials.with_succession(succession).is_pinned is secure
