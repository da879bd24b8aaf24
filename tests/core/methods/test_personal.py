"""Shared and personal weights: what is sent, what stays, and when what stays counts."""

import numpy as np
import pytest
from support.small_rankers import LINEAR, see

from foltr.core.methods.base import DeviceContext
from foltr.core.methods.personal import DOUBT, PersonalState, personal_start
from foltr.core.methods.registry import make_device, training_for
from foltr.core.protocol.fields import unpack_vector
from foltr.core.protocol.updates import DenseDelta

DIM = LINEAR.n_weights


@pytest.fixture
def training():
    return training_for("fpdgd-personal", {"personal_learning_rate": 0.1}, 4)


def device_of(training, model, local_state=None):
    return make_device(training, LINEAR, model, 1, DeviceContext(5, local_state))


def model_of(*values):
    return np.resize(np.array(values, np.float32), DIM)


def state_after(training, updates, moves):
    """State and first weights of a device for which each update was followed by a move of the global model."""
    base = np.zeros(DIM)
    state, start = personal_start(None, base, training)
    for update, move in zip(updates, moves, strict=True):
        base = base + move
        state, start = personal_start(state.after(update), base, training)
    return state, start


def test_a_new_device_ranks_as_everybody_does(training, rng):
    """Without clicks of its own it has the shared weights and nothing else, and learns like FPDGD."""
    model = model_of(0.3, -0.1)
    device = device_of(training, model)
    np.testing.assert_array_equal(device.weights, model.astype(np.float64))
    plain = make_device(training_for("fpdgd", {}, 4), LINEAR, model, 1, DeviceContext(5))
    for one in (device, plain):
        see(one, training, np.random.default_rng(3))
    np.testing.assert_array_equal(device.weights, plain.weights)
    assert unpack_vector(device.body(rng).values).any()


def test_only_what_was_learned_in_the_round_is_sent(training, rng):
    """The update is the difference to where the round began, personal weights included: they cannot be read from it."""
    directions = [np.ones(DIM)] * 5
    state, _ = state_after(training, directions, [-0.1 * one for one in directions])
    base = state.base.astype(np.float32)
    device = device_of(training, base, state.to_bytes())
    start = device.weights.copy()
    assert (start != base).any()
    see(device, training, rng)
    body = device.body(rng)
    assert isinstance(body, DenseDelta)
    np.testing.assert_array_equal(unpack_vector(body.values), (device.weights - start).astype(np.float32))


def test_what_the_federation_did_too_is_not_personal(training):
    """However far it moved; against its movement nothing is explained, or it would be doubled."""
    updates = [np.linspace(0.1, 1.0, DIM) * scale for scale in (1.0, 2.0, 0.5)]
    state, start = state_after(training, updates, updates)
    assert np.abs(state.direction).max() < 1e-12
    np.testing.assert_allclose(start, state.base, atol=1e-12)
    common, own = np.zeros(DIM), np.zeros(DIM)
    common[0], own[1] = 1.0, 0.5
    updates = [common + own] * 4
    found = [state_after(training, updates, [scale * common] * 4)[0] for scale in (1.0, 3.0, 10.0)]
    for state in found:
        np.testing.assert_allclose(state.direction, 4 * own, atol=1e-12)
    update = np.full(DIM, 0.2)
    state, _ = state_after(training, [update], [-update])
    np.testing.assert_allclose(state.direction, update)


def test_evidence_counts_by_james_and_stein(training, rng):
    """n equal rests r: s = 1 - c n r^2 / (n r)^2 = 1 - c / n, at any personal rate; one update is none."""
    rest, aside = np.zeros(DIM), np.zeros(DIM)
    rest[0], aside[1] = 0.3, 1.0
    for n in (1, 2, 4, 10):
        state, start = state_after(training, [rest] * n, [aside] * n)
        assert state.share == pytest.approx(max(0.0, 1.0 - DOUBT / n))
        np.testing.assert_allclose(start, state.base + state.share * n * rest)
    state, start = state_after(training, [rng.normal(size=DIM)], [rng.normal(size=DIM)])
    assert state.noise > 0.0
    assert state.share == 0.0
    np.testing.assert_array_equal(start, state.base)
    fast = training_for("fpdgd-personal", {"personal_learning_rate": 0.4}, 4)
    one, other = (state_after(which, [rest] * 5, [aside] * 5)[0] for which in (training, fast))
    np.testing.assert_allclose(other.direction, 4 * one.direction)
    assert other.share == pytest.approx(one.share)


def test_the_same_model_again_settles_nothing(training, rng):
    """An update whose model has not come yet waits; state survives storage, bytes of another model are left behind."""
    model = model_of(0.1, 0.2)
    first = device_of(training, model)
    see(first, training, rng)
    second = device_of(training, model, first.local_state())
    np.testing.assert_array_equal(second.weights, model.astype(np.float64))
    see(second, training, rng)
    state = PersonalState.from_bytes(second.local_state(), DIM)
    learned = (first.weights - model) + (second.weights - model)
    np.testing.assert_allclose(state.pending, learned)
    assert state.noise == 0.0
    state, _ = state_after(training, rng.normal(size=(3, DIM)), rng.normal(size=(3, DIM)))
    data = state.to_bytes()
    again = PersonalState.from_bytes(data, DIM)
    assert again.to_bytes() == data
    assert PersonalState.from_bytes(data, DIM + 1) is None
    assert PersonalState.from_bytes(b"\xff" * len(data), DIM) is None
    model = model_of(0.5)
    np.testing.assert_array_equal(device_of(training, model, b"junk").weights, model.astype(np.float64))
