"""Epochs follow from a policy and a moment alone, and a policy has keys of every helper for each of them."""

import pytest
from support.secure_policies import HELPERS, policy

from foltr.core.protocol.epochs import ends_soon, epoch_of, has_ended

EPOCH_S = 100


def of_epochs(n_epochs, **changed):
    helpers = [
        each.model_copy(update={"epoch_keys": [bytes([16 * place + i + 1]) * 32 for i in range(n_epochs)]})
        for place, each in enumerate(HELPERS)
    ]
    return policy(**{"epoch_s": EPOCH_S, "helpers": helpers} | changed).policy


def test_a_moment_is_in_one_epoch():
    """From when the policy was issued; the last eighth announces the end; a key shared would be destroyed too late."""
    for at, epoch in [(0, 0), (1000, 0), (1099.9, 0), (1100, 1), (1750, 7), (1799.9, 7), (1800, 8), (1e9, 9_999_990)]:
        made = of_epochs(8)
        assert epoch_of(made, at) == epoch, (at, epoch)
        assert has_ended(made, at) == (epoch >= 8), (at, epoch)
    made = of_epochs(8)
    assert (made.n_epochs, made.ends_at) == (8, 1800.0)
    assert [ends_soon(made, at) for at in (1699.9, 1700.0, 2000.0)] == [False, True, True]
    one, other = of_epochs(3).helpers
    for wrong, told in (
        ([one, other.model_copy(update={"epoch_keys": other.epoch_keys[:2]})], "different numbers of epochs"),
        ([one, other.model_copy(update={"epoch_keys": [other.epoch_keys[0]] * 3})], "two epochs have the same key"),
        ([one, other.model_copy(update={"epoch_keys": one.epoch_keys})], "two helpers have the same name or key"),
    ):
        with pytest.raises(ValueError, match=told):
            of_epochs(3, helpers=wrong)
