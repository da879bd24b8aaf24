"""FedIPS and FedAvg on the device."""

import numpy as np
import pytest
from support.sampled_lists import shown_by
from support.small_rankers import LINEAR, see

from foltr.core.errors import DataError
from foltr.core.learning.interaction import Interaction
from foltr.core.learning.ips import ips_step
from foltr.core.learning.linear import rank_by_score, score
from foltr.core.learning.regression_em import propensities_of
from foltr.core.methods.base import DeviceContext
from foltr.core.methods.registry import make_device, training_for
from foltr.core.protocol.fields import pack_vector, unpack_vector

BASE = np.array([0.3, -0.2, 0.1, 0.0, 0.5, -0.4], np.float32)
POLICY = np.array([-1.0, 1.0, 0.0, 0.0, 2.0, 0.0], np.float32)


def device_of(method="fedips", own_propensities=None, **parameters):
    training = training_for(method, {"learning_rate": 0.05, **parameters}, 3)
    return training, make_device(training, LINEAR, BASE, 1, DeviceContext(5, None, own_propensities))


def device_of_estimated(base, local_state=None):
    training = training_for("fedips", {"learning_rate": 0.05, "propensities": "estimated"}, 3)
    return training, make_device(training, LINEAR, base, 1, DeviceContext(5, local_state))


@pytest.fixture
def interaction(rng):
    features = rng.random((12, 6)).astype(np.float32)
    return Interaction(0, features, np.arange(5), np.array([True, False, True, False, True]))


def delta_of(device, rng):
    return unpack_vector(device.body(rng).values)


def expected(interaction, propensities):
    start = BASE.astype(np.float64)
    stepped = ips_step(start, interaction.features, interaction.ranking, interaction.clicks, propensities, 0.05)
    return (stepped - start).astype(np.float32)


def test_known_propensities_weigh_clicks(rng, interaction):
    """Announced ones, the application's own in their place; FedAvg takes clicks at face value."""
    _, device = device_of(position_bias=1.5)
    device.learn(interaction, rng)
    np.testing.assert_array_equal(delta_of(device, rng), expected(interaction, (1 / np.arange(1, 6)) ** 1.5))
    own = np.array([1.0, 0.9, 0.5, 0.2, 0.1, 0.1])
    _, device = device_of(own_propensities=own)
    device.learn(interaction, rng)
    np.testing.assert_array_equal(delta_of(device, rng), expected(interaction, own[:5]))
    _, device = device_of("fedavg", own_propensities=np.full(5, 0.5))
    device.learn(interaction, rng)
    np.testing.assert_array_equal(delta_of(device, rng), expected(interaction, np.ones(5)))


@pytest.mark.parametrize(("policy", "policy_of_lists"), [(pack_vector(POLICY), POLICY), (b"", BASE)])
def test_lists_are_those_of_the_logging_policy(rng, policy, policy_of_lists):
    """Every device shows the announced policy's lists, or the newest model's, never its own working copy's."""
    training, device = device_of(logging_policy=policy)
    see(device, training, rng)
    features = rng.random((30, 6)).astype(np.float32)
    for _ in range(3):
        shown, variant = shown_by(device, training, features, 10, rng)
        np.testing.assert_array_equal(shown.ranking, rank_by_score(score(policy_of_lists, features), 10))
        assert variant == 0


def test_clicks_below_the_last_known_position_are_not_learned(rng, interaction):
    """Those above it are, however long the list was; nor is a list with a click that no update could hold."""
    for method, own, serp_length, learned in [
        ("fedips", [1.0, 0.5, 0.25], 5, [1.0, 0.5, 0.25]),
        ("fedips", [1.0, 0.9, 0.8, 0.7, 0.6], 2, [1.0, 0.9]),
        ("fedips", None, 3, [1.0, 1 / 2, 1 / 3]),
        ("fedavg", [1.0, 0.5], 3, [1.0, 1.0, 1.0]),
    ]:
        own = None if own is None else np.array(own)
        features = rng.random((12, 6)).astype(np.float32)
        shown = Interaction(0, features, np.arange(5), np.array([True, False, True, False, True]))
        _, device = device_of(method, own, serp_length=serp_length)
        device.learn(shown, rng)
        k = len(learned)
        cut = Interaction(0, features, shown.ranking[:k], shown.clicks[:k])
        np.testing.assert_array_equal(delta_of(device, rng), expected(cut, np.array(learned)))
        assert (delta_of(device, rng) != 0).any(), (method, own, serp_length, learned)
    _, device = device_of(own_propensities=np.array([1.0, 0.5, 1e-9, 0.25, 0.2]))
    device.learn(Interaction(0, interaction.features, interaction.ranking[:2], interaction.clicks[:2]), rng)
    learned = delta_of(device, rng)
    with pytest.raises(DataError, match="moved a weight by more than"):
        device.learn(interaction, rng)
    assert (learned != 0).any()
    np.testing.assert_array_equal(delta_of(device, rng), learned)


def test_estimates_are_made_of_the_positions_they_are_kept_for(rng):
    """A list longer than ``serp_length`` teaches what its first positions do."""
    base = np.concatenate([BASE, np.zeros(7, np.float32)])
    features = rng.random((12, 6)).astype(np.float32)
    ranking, clicks = np.arange(8), np.array([False, True, False, False, True, True, False, True])
    _, of_all = device_of_estimated(base)
    of_all.learn(Interaction(0, features, ranking, clicks), rng)
    training, of_first = device_of_estimated(base)
    k = training.serp_length
    of_first.learn(Interaction(0, features, ranking[:k], clicks[:k]), rng)
    np.testing.assert_array_equal(delta_of(of_all, rng), delta_of(of_first, rng))
    assert of_all.local_state() == of_first.local_state()
    assert (delta_of(of_all, rng)[:6] != 0).any()


def test_what_is_announced_weighs_ten_lists(rng):
    """The relevance function is sent beside the ranker; the propensities are kept and taken up again."""
    training, device = device_of_estimated(np.concatenate([BASE, np.zeros(7, np.float32)]))
    k = training.serp_length
    for i in range(30):
        features = rng.random((12, 6)).astype(np.float32)
        device.learn(Interaction(i, features, np.arange(k), np.ones(k, np.bool_)), rng)
    counts = np.frombuffer(device.local_state()).reshape(2, k)
    np.testing.assert_allclose(propensities_of(counts), (10 / np.arange(1, k + 1) + 30) / 40)
    base = np.concatenate([BASE, np.zeros(7, np.float32)])
    training, device = device_of_estimated(base)
    see(device, training, rng, n=20)
    delta = delta_of(device, rng)
    assert delta.shape == (13,)
    assert (delta[:6] != 0).any()
    assert (delta[6:] != 0).any()
    kept = device.local_state()
    counts = np.frombuffer(kept).reshape(2, training.serp_length)
    assert not np.allclose(propensities_of(counts), 1 / np.arange(1, training.serp_length + 1))
    _, following = device_of_estimated(base, kept)
    assert following.local_state() == kept
    _, fresh = device_of_estimated(base, b"of another length")
    assert fresh.local_state() != kept
