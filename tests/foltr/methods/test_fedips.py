"""FedIPS and FedAvg on the device."""

import numpy as np
import pytest
from methods_of import LINEAR, see

from foltr.interactions import Interaction
from foltr.ips import ips_step
from foltr.messages import pack_vector, unpack_vector
from foltr.methods.base import DeviceContext
from foltr.methods.registry import make_device, training_for
from foltr.propensities import propensities_of
from foltr.rankers import rank_by_score, score

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


def test_announced_bias_is_undone(rng, interaction):
    """Known propensities are (1 / rank) ** position_bias unless the application knows better."""
    _, device = device_of(position_bias=1.5)
    device.learn(interaction, rng)
    np.testing.assert_array_equal(delta_of(device, rng), expected(interaction, (1 / np.arange(1, 6)) ** 1.5))


def test_the_users_own_propensities_come_first(rng, interaction):
    """What an application measured replaces what is announced."""
    own = np.array([1.0, 0.9, 0.5, 0.2, 0.1, 0.1])
    _, device = device_of(own_propensities=own)
    device.learn(interaction, rng)
    np.testing.assert_array_equal(delta_of(device, rng), expected(interaction, own[:5]))


def test_fedavg_takes_clicks_at_face_value(rng, interaction):
    """The baseline is the same step with weights of one, whatever is known."""
    _, device = device_of("fedavg", own_propensities=np.full(5, 0.5))
    device.learn(interaction, rng)
    np.testing.assert_array_equal(delta_of(device, rng), expected(interaction, np.ones(5)))


@pytest.mark.parametrize(("policy", "shown_by"), [(pack_vector(POLICY), POLICY), (b"", BASE)])
def test_lists_are_those_of_the_logging_policy(rng, policy, shown_by):
    """Every device shows the announced policy's lists, or the newest model's, never its own working copy's."""
    training, device = device_of(logging_policy=policy)
    see(device, training, rng)
    features = rng.random((30, 6)).astype(np.float32)
    ranking, variant = device.rank(features, 10, rng)
    np.testing.assert_array_equal(ranking, rank_by_score(score(shown_by, features), 10))
    assert variant == 0


def test_estimates_stay_on_the_device_and_go_on(rng):
    """The relevance function is sent beside the ranker; the propensities are kept and taken up again."""
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
