"""A device under a policy stays under it: no federator, no broker and no restart takes it out of secure sums."""

import base64

import numpy as np
import pytest
from structlog.testing import capture_logs
from support.device_stores import disk_is_full, stored
from support.device_under_policy import FEDERATOR, DeviceUnderPolicy, identity, learnable
from support.federator_by_hand import TOPICS
from support.secure_policies import OPERATOR, policy

from foltr.core.errors import DataError, MessageError
from foltr.core.protocol.enrolment import issue_enrolment
from foltr.core.protocol.operator_keys import follow_succession, issue_link, issue_succession
from foltr.core.protocol.signing import SigningKey, key_to_text
from foltr.core.protocol.trainings import PdgdTraining
from foltr.core.protocol.updates import DenseDelta, MaskedVector
from foltr.edge_client.store.store_file import MetaKey
from foltr.edge_client.sums.pinned_policy import PinnedPolicy
from foltr.edge_client.trust import Trust

FIRST = policy()
SECOND = policy(after=FIRST)
THIRD = policy(after=SECOND)


def pinned(store, signed=None):
    return PinnedPolicy(Trust(identity(signed), store), store, "device-7")


def test_the_newest_policy_wins_from_wherever_it_came(path):
    """Credentials, topic, store: in each order, also after a restart with the credentials of before."""
    with stored(path) as store:
        assert pinned(store).newest is None
        assert pinned(store, FIRST).newest == FIRST
    with stored(path) as store:
        kept = pinned(store)  # credentials without one
        assert kept.newest == FIRST
        assert kept.receive(THIRD.signed)
        assert not kept.receive(SECOND.signed)
        assert not kept.receive(policy(version=3, epsilon=4.0).signed), "another one of the same version"
        assert kept.newest == THIRD
    with stored(path) as store:
        assert pinned(store, SECOND).newest == THIRD
        assert store.meta(MetaKey.POLICY) == THIRD.signed


def test_only_the_operator_of_this_federation_signs_policies(path):
    """Neither the federator, nor the operator for another federation, nor anybody with junk."""
    with stored(path) as store:
        kept = pinned(store, FIRST)
        for wrong in (policy(version=9, key=FEDERATOR).signed, policy(federation="photos").signed, b"\xc1"):
            with pytest.raises(MessageError):
                kept.receive(wrong)
            assert (kept.newest, store.meta(MetaKey.POLICY)) == (FIRST, FIRST.signed)


def test_a_device_without_an_operators_key_takes_no_policy_and_keeps_the_one_it_has(path):
    """An unsigned federation has none; a device of a signed one does not get rid of it by losing its credentials."""
    with stored(path) as store:
        unsigned = PinnedPolicy(Trust(None, store), store, "device-7")
        assert not unsigned.receive(FIRST.signed)
        assert unsigned.newest is None
        pinned(store, FIRST)
        assert PinnedPolicy(Trust(None, store), store, "device-7").newest == FIRST


def test_another_operator_needs_a_higher_version(path):
    """Its policies are checked by its key; what was stored before stays the least."""
    other = SigningKey.generate()
    credentials = identity().model_copy(update={"enrolment_key": key_to_text(other.public)})
    with stored(path) as store:
        pinned(store, SECOND)
        kept = PinnedPolicy(Trust(credentials, store), store, "device-7")
        assert kept.newest == SECOND
        assert not kept.receive(policy(version=1, key=other).signed)
        assert kept.receive(policy(version=3, key=other).signed)
        with pytest.raises(MessageError):
            kept.receive(policy(version=4, key=OPERATOR).signed)


def test_a_policy_that_cannot_be_stored_is_obeyed_and_stored_later(path):
    """Until it is stored nothing is: a raw update could be sent by the next start."""
    device = DeviceUnderPolicy(path, credentials=identity())
    device.store.transaction, working = disk_is_full, device.store.transaction
    with capture_logs() as logs:
        device.hear_policy(FIRST)
    assert [line["event"] for line in logs] == ["policy_adopted", "policy_not_stored"]
    device.store.transaction = working
    assert device.store.meta(MetaKey.POLICY) is None
    device.announce(1)
    assert device.store.meta(MetaKey.POLICY) == FIRST.signed


def test_a_store_that_a_policy_can_neither_be_read_from_nor_written_to_is_not_used(path):
    """Without it nobody knows what may be sent; the application hears of it."""
    with stored(path) as store:
        working, store.transaction = store.transaction, disk_is_full
        with pytest.raises(DataError, match="disk is full"):
            pinned(store, FIRST)
        store.transaction = working
        store.put_policy(b"of another schema")
        with pytest.raises(DataError, match="cannot be read"):
            pinned(store, FIRST)


@pytest.fixture
def device(path):
    return DeviceUnderPolicy(path, SECOND)


@pytest.mark.parametrize(
    ("other", "cause"),
    [
        (None, "the federator would see the updates of this device, which is under a policy"),
        (FIRST, "the round has another policy than the newest that this device knows"),
        (THIRD, "the round has another policy than the newest that this device knows"),
        (policy(version=2, epsilon=4.0), "the round has another policy than the newest that this device knows"),
    ],
    ids=["none", "older", "newer", "another of its version"],
)
async def test_a_round_without_the_newest_policy_gets_nothing(device, other, cause):
    """A federator that switches secure sums off has devices that send nothing, and say so once in their logs."""
    with capture_logs() as logs:
        for number in (1, 2):
            device.announce(number, secure=other)
            device.see(1, 2, 3)
    assert await device.is_silent()
    assert [line["cause"] for line in logs if line["event"] == "round_declined"] == [cause]
    assert (device.store.spent().last, device.agent.participation.pending) == (0, None)


async def test_an_older_policy_never_comes_back(device):
    """Not from the topic, not from older credentials, not after a restart: its rounds get nothing."""
    device.hear_policy(FIRST)
    device.announce(1, secure=FIRST)
    device.see(1, 2)
    assert await device.is_silent()
    device.credentials = identity(FIRST)
    device.restart()
    device.announce(2, secure=FIRST)
    assert await device.is_silent()
    device.announce(3, secure=SECOND)
    assert (await device.update()).round == 3


async def test_an_unlearning_round_gets_nothing(path):
    """Its answers would be raw updates: neither of what was kept before the policy, nor of anything since."""
    device = DeviceUnderPolicy(path, SECOND, credentials=identity())
    device.announce(1, secure=None, training=PdgdTraining(min_interactions=3))
    device.see(1, 2, 3)
    device.answer(await device.update())
    device.see(4)
    device.say(TOPICS.unlearning_round, learnable())
    assert len(await device.sent()) >= 1, "without a policy it helps"
    device.say(TOPICS.unlearning_round, learnable().model_copy(update={"step": 2}))
    device.hear_policy(SECOND)
    assert await device.is_silent(), "not even what was due already"
    device.say(TOPICS.unlearning_round, learnable().model_copy(update={"step": 3}))
    assert await device.is_silent()


@pytest.mark.parametrize("comes_by", ["its topic", "new credentials"])
async def test_a_raw_update_that_is_pending_is_never_sent_under_a_policy(path, comes_by):
    """Neither if the policy comes while it waits for its receipt, nor if it is there at the next start."""
    device = DeviceUnderPolicy(path, SECOND, credentials=identity())
    device.announce(1, secure=None)
    device.see(1)
    assert isinstance((await device.update()).body, DenseDelta)
    if comes_by == "its topic":
        device.hear_policy(SECOND)
        device.agent.participation.begin_connection(0.0)
        device.join()
        assert await device.is_silent()
    else:
        device.credentials = identity(SECOND, serial=2)
    device.restart()
    assert await device.is_silent()
    assert device.store.pending_update() is None


@pytest.mark.parametrize("proofs_before", [False, True])
async def test_a_device_that_was_off_while_proofs_came_or_went_sends_what_the_newer_policy_asks_for(
    path, proofs_before
):
    """What waited for its receipt is given up and stays charged; the next update is as the newer policy has it."""
    older = policy(version=2, proofs=proofs_before)
    newer = policy(after=older, proofs=not proofs_before)
    device = DeviceUnderPolicy(path, older)
    device.announce(1)
    device.see(1, 2)
    assert bool((await device.update()).body.proof) is proofs_before
    device.store.close()
    device.signed = newer
    device.start()
    device.hear_policy(newer)
    device.join()
    device.agent.participation.begin_connection(0.0)
    device.join()
    assert await device.is_silent()
    assert (device.store.spent().last, device.store.pending_update()) == (1, None)
    device.announce(2)
    device.see(3, 4)
    update = await device.update()
    assert update.through == 2
    assert bool(update.body.proof) is not proofs_before
    assert np.flatnonzero(device.open(update)).tolist() == [3, 4]


async def test_a_secure_round_gets_nothing_from_a_device_that_knows_no_policy(path):
    """It cannot mask what it sends, and a federator of such a federation must not see it raw."""
    device = DeviceUnderPolicy(path, SECOND, credentials=identity())
    with capture_logs() as logs:
        device.announce(1)
    device.see(1, 2)
    assert await device.is_silent()
    assert any(line["event"] == "round_declined" and "this device has none" in line["cause"] for line in logs)
    device.hear_policy(SECOND)
    device.join()
    assert device.open(await device.update()) is not None


async def test_a_device_without_a_key_takes_part_in_nothing_under_a_policy(path):
    """Its store was under one: without credentials it can sign no ticket, and sends nothing raw either."""
    with stored(path) as store:
        store.put_policy(SECOND.signed)
    device = DeviceUnderPolicy(path, SECOND, credentials=None)
    device.hear_policy(THIRD)
    with capture_logs() as logs:
        device.announce(1)
        device.see(1, 2)
    assert await device.is_silent()
    assert [line["cause"] for line in logs if line["event"] == "participation_refused"] == [
        "this device has no key to sign tickets with: give it its credentials"
    ]


POLICY = policy()


def pinned_device(path, **changed):
    return DeviceUnderPolicy(path, POLICY, credentials=identity(secure=True).model_copy(update=changed))


async def test_a_pinned_device_gives_a_trusted_federator_nothing(path):
    """Also one that lost its store. It says why, and the first policy that it hears of lets it take part."""
    device = pinned_device(path)
    with capture_logs() as logs:
        device.announce(1, secure=None)
        device.announce(2, secure=None)
    device.see(1, 2, 3)
    assert await device.is_silent()
    causes = [line["cause"] for line in logs if line["event"] == "round_declined"]
    assert causes == ["this device was enrolled for a secure federation, but has no policy of its operator"]
    device.hear_policy(POLICY)
    device.join()
    device.announce(3)
    assert isinstance((await device.update()).body, MaskedVector)


async def test_what_is_from_before_the_pin_is_not_sent(path):
    """Nor learned again, raw, for a step of unlearning; the first policy spends what waits: it may have been seen."""
    device = DeviceUnderPolicy(path, POLICY, credentials=identity())
    device.announce(1, secure=None, training=PdgdTraining(min_interactions=3))
    device.see(1, 2, 3)
    device.answer(await device.update())
    device.announce(2, secure=None)
    device.see(4)
    assert device.store.pending_update() is not None
    device.credentials = identity(secure=True, serial=2)
    device.restart()
    device.announce(2, secure=None)
    device.say(TOPICS.unlearning_round, learnable())
    assert device.agent.relearning.due is None
    assert await device.is_silent()
    assert device.agent.is_settled
    device.hear_policy(POLICY)
    assert device.store.pending_update() is None
    assert device.store.n_waiting() == 0


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
