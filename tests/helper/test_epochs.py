"""A helper destroys the keys of past epochs by its own clock and by what it has committed itself to, for good."""

import pytest
from support.helper_desks import contributions

from foltr.core.protocol.helper_messages import CheckAnswer, HelperRefusal, HelperRefusalCode, OpenAnswer

EPOCH_S, ISSUED_AT, N_EPOCHS = 100, 1000.0, 4


@pytest.fixture
def north(running):
    """A helper with keys for four epochs, and its federation."""
    federation, helper = running(n_epochs=N_EPOCHS, epoch_s=EPOCH_S)
    return federation, helper


def here(helper):
    """The epochs whose keys the helper has."""
    return [i for i, key in enumerate(helper.pair.epoch_keys) if helper.store.sealing_key(key.public) is not None]


def in_files(helper):
    """The epochs of whose private keys there are bytes in the store's files."""
    files = b"".join(file.read_bytes() for file in helper.path.parent.glob(f"{helper.path.name}*"))
    return [i for i, key in enumerate(helper.pair.epoch_keys) if key.private in files]


def asked(federation, helper, sent, **about):
    (checked,) = helper.ask(federation, federation.check(sent, **about))
    if not isinstance(checked, CheckAnswer):
        return checked
    return helper.ask(federation, federation.open(sent, **about))[0]


def code_of(answer):
    assert isinstance(answer, HelperRefusal), answer
    return answer.code


@pytest.mark.parametrize(
    ("now", "is_off", "left"),
    [(0, False, 4), (199, False, 4), (200, False, 3), (250, True, 3), (399, False, 2), (9000, False, 0)],
)
def test_its_own_clock_destroys_a_key_an_epoch_after_its_own(north, now, is_off, left):
    """Whatever nobody asks, and at its start before anybody can: no byte of it is left in the files."""
    _, helper = north
    helper.now = ISSUED_AT + now
    if not is_off:
        helper.desk.destroy_overdue_keys()
        assert here(helper) == in_files(helper) == [0, 1, 2, 3][4 - left :]
    helper.restart()
    assert here(helper) == in_files(helper) == [0, 1, 2, 3][4 - left :]


def test_a_clock_that_goes_back_brings_nothing_back(north):
    """The round is refused, and a later epoch goes on."""
    federation, helper = north
    helper.now = ISSUED_AT + 300
    helper.desk.destroy_overdue_keys()
    helper.now = ISSUED_AT
    helper.restart()
    assert here(helper) == [2, 3]
    refusal = asked(federation, helper, contributions(federation, 3, epoch=1), epoch=1)
    assert code_of(refusal) is HelperRefusalCode.KEY_DESTROYED
    assert "epoch 1 of policy 1 is not in this store" in refusal.detail


def test_a_set_of_a_later_epoch_destroys_the_keys_before_it(north):
    """Before its sum is opened; a federator that went back to a backup does not reach them any more."""
    federation, helper = north
    helper.now = ISSUED_AT + 150
    sent = contributions(federation, 3, epoch=1)
    helper.ask(federation, federation.check(sent, epoch=1))
    assert here(helper) == [0, 1, 2, 3]
    helper.ask_once(federation, federation.open(sent, epoch=1))
    assert here(helper) == in_files(helper) == [1, 2, 3]
    assert isinstance(helper.ask(federation, federation.open(sent, epoch=1))[0], OpenAnswer)
    before = contributions(federation, 3, round_number=9, epoch=0)
    assert code_of(asked(federation, helper, before, round=9, epoch=0)) is HelperRefusalCode.KEY_DESTROYED


def test_a_round_that_is_open_across_an_epochs_end_is_opened(north):
    """With the key of the epoch in which it was opened."""
    federation, helper = north
    sent = contributions(federation, 3)
    helper.now = ISSUED_AT + 99
    helper.ask(federation, federation.check(sent))
    helper.now = ISSUED_AT + 199
    helper.restart()
    assert isinstance(helper.ask(federation, federation.open(sent))[0], OpenAnswer)


def test_epochs_far_ahead_and_after_the_last_are_refused(north):
    """Nothing is destroyed by it: a federator whose clock is wrong costs rounds, and no keys."""
    federation, helper = north
    sent = contributions(federation, 3, epoch=2)
    assert code_of(asked(federation, helper, sent, epoch=2)) is HelperRefusalCode.EPOCH_AHEAD
    refusal = asked(federation, helper, sent, epoch=N_EPOCHS)
    assert code_of(refusal) is HelperRefusalCode.KEY_DESTROYED
    assert "foltr policy new" in refusal.detail
    assert here(helper) == [0, 1, 2, 3]


def test_seeds_that_are_sealed_to_another_epoch_are_taken_out(north):
    """Whatever a federator tells a device of its round: each costs itself its round, and nobody else."""
    federation, helper = north
    sent = contributions(federation, 4)
    sent[2] = federation.contribute(federation.client("misled"), epoch=1)
    (checked,) = helper.ask(federation, federation.check(sent))
    assert [each.position for each in checked.refused] == [2]
    (other,) = helper.ask(federation, federation.open(sent, [0, 1, 3], epoch=1))
    assert code_of(other) is HelperRefusalCode.UNKNOWN_SET
    assert isinstance(helper.ask(federation, federation.open(sent, [0, 1, 3]))[0], OpenAnswer)


def test_norm_proofs_are_checked_in_every_epoch(running):
    """The verify key is sealed to a key that lives as long as the policy."""
    federation, helper = running(n_epochs=N_EPOCHS, proofs=True, epoch_s=EPOCH_S)
    helper.now = ISSUED_AT + 350
    sent = contributions(federation, 3, epoch=3)
    (checked,) = helper.ask(federation, federation.check(sent, epoch=3))
    assert checked.refused == []
    assert checked.proofs
    assert here(helper) == [2, 3]
