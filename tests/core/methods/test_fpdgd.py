"""The PDGD family on the device: FPDGD, FedProx, FedPer, and the paper's noise."""

from dataclasses import replace

import numpy as np
import pytest
from support.sampled_lists import even_reversals, reversals_of, sampled, shown_by
from support.small_rankers import LINEAR, NEURAL, RANKERS, see

from foltr.core.errors import DataError
from foltr.core.learning.interaction import Interaction
from foltr.core.learning.laplace_shares import clip_weights, gamma_noise
from foltr.core.learning.neural_pdgd import neural_pdgd_step
from foltr.core.learning.pdgd import pdgd_step
from foltr.core.methods.base import DeviceContext, scores_of
from foltr.core.methods.registry import initial_weights, make_device, spec_of, training_for
from foltr.core.protocol.fields import unpack_vector
from foltr.core.protocol.updates import DenseDelta, PartDelta


def device_of(method, ranker, model, local_state=None, **parameters):
    training = sampled(method, parameters, 4)
    return training, make_device(training, ranker, model, 1, DeviceContext(5, local_state))


def model_of(ranker, rng):
    model = initial_weights(training_for("fpdgd", {}, 4), ranker, rng)
    return model + rng.normal(0, 0.1, len(model)).astype(np.float32)


@pytest.fixture
def interactions(rng):
    def one(i):
        clicks = np.zeros(5, np.bool_)
        clicks[rng.integers(5)] = True
        features, ranking = rng.random((12, 6)).astype(np.float32), rng.permutation(12)[:5]
        return Interaction(i, features, ranking, clicks, reversals=reversals_of(rng.random(12), ranking))

    return [one(i) for i in range(4)]


@pytest.mark.parametrize("ranker", RANKERS, ids=["linear", "neural"])
def test_each_interaction_is_one_step(rng, interactions, ranker):
    """Algorithm 2's ClientUpdate: B steps of PDGD, each from where the last one ended; the difference is sent."""
    model = model_of(ranker, rng)
    _, device = device_of("fpdgd", ranker, model, learning_rate=0.3)
    weights = model.astype(np.float64)
    for item in interactions:
        seen = (item.features, item.ranking, item.clicks, 0.3)
        step = pdgd_step if ranker is LINEAR else neural_pdgd_step
        weights = step(weights, *seen, reversals=item.reversals).astype(np.float64)
        device.learn(item, rng)
    np.testing.assert_array_equal(device.weights, weights)
    body = device.body(rng)
    assert isinstance(body, DenseDelta)
    np.testing.assert_array_equal(unpack_vector(body.values), (weights - model).astype(np.float32))
    assert (device.weights != model).any()


def test_a_list_that_cannot_be_learned_from_changes_nothing(rng, interactions):
    """Nobody knows how it was drawn, or a weight would move by more than a million; only the list at fault goes."""
    _, device = device_of("fpdgd", LINEAR, np.zeros(6, np.float32))
    before = device.weights.copy()
    with pytest.raises(DataError, match="nobody knows how the list was drawn"):
        device.learn(replace(interactions[0], reversals=None), rng)
    huge = Interaction(
        9, np.eye(12, 6, dtype=np.float32) * 1e9, np.arange(5), interactions[0].clicks, reversals=even_reversals(5)
    )
    with pytest.raises(DataError, match="features should be in"):
        device.learn(huge, rng)
    np.testing.assert_array_equal(device.weights, before)
    device.learn(interactions[0], rng)
    assert (device.weights != before).any()


@pytest.mark.parametrize("ranker", RANKERS, ids=["linear", "neural"])
def test_lists_are_drawn_from_the_devices_own_scores(rng, ranker):
    """A Plackett-Luce sample of what the device has learned, not of the model it began with."""
    model = model_of(ranker, rng)
    training, device = device_of("fpdgd", ranker, model)
    see(device, training, rng)
    features = rng.random((12, 6)).astype(np.float32)
    scores = scores_of(ranker, device.weights, features)
    for exploring in (True, False):
        own, variant = device.scores(features, exploring=exploring)
        np.testing.assert_array_equal(own, scores)
        assert variant == 0
    lists = [shown_by(device, training, features, 4, rng)[0] for _ in range(20)]
    assert len({tuple(shown.ranking.tolist()) for shown in lists}) > 1
    for shown in lists:
        np.testing.assert_allclose(shown.reversals, reversals_of(scores, shown.ranking), rtol=1e-11)


def test_fedprox_is_drawn_to_the_global_model(rng, interactions):
    """With mu = 0 it is FPDGD; with more, the local model stays closer to the global one."""
    model = model_of(LINEAR, rng)
    distances = []
    for method, given in (("fpdgd", {}), *(("fedprox", {"mu": mu}) for mu in (0.0, 1.0, 5.0))):
        _, device = device_of(method, LINEAR, model, **given)
        for item in interactions:
            device.learn(item, rng)
        distances.append(np.linalg.norm(device.weights - model))
    assert distances[0] == distances[1] > distances[2] > distances[3] > 0


def test_fedper_sends_the_hidden_layer_and_keeps_the_head(rng):
    """The next device part begins with the head; one of another hidden layer starts from the announced model."""
    model = model_of(NEURAL, rng)
    training, device = device_of("fedper", NEURAL, model)
    see(device, training, rng)
    body = device.body(rng)
    n_base = NEURAL.n_base_weights
    assert isinstance(body, PartDelta)
    assert (body.start, len(unpack_vector(body.values)), body.dim) == (0, n_base, NEURAL.n_weights)
    head = device.weights[n_base:]
    assert (head != model[n_base:]).any()
    _, following = device_of("fedper", NEURAL, model, device.local_state())
    np.testing.assert_array_equal(following.weights[n_base:], head)
    np.testing.assert_array_equal(following.weights[:n_base], model[:n_base].astype(np.float64))
    _, device = device_of("fedper", NEURAL, model, b"12345678")
    np.testing.assert_array_equal(device.weights, model.astype(np.float64))


def test_the_papers_noise_is_on_what_is_sent_only(rng):
    """Algorithm 3: clipped local weights plus a share of noise are sent; the device ranks by exact weights."""
    model = model_of(LINEAR, rng)
    training, device = device_of("fpdgd-paper", LINEAR, model, n_clients=5, sensitivity=0.2, epsilon=2.0)
    see(device, training, rng)
    exact = device.weights.copy()
    sent = unpack_vector(device.body(np.random.default_rng(4)).values)
    noise = gamma_noise(5, 0.2, 2.0, 6, np.random.default_rng(4))
    np.testing.assert_array_equal(
        sent, (clip_weights(exact, 0.2) + noise - model.astype(np.float64)).astype(np.float32)
    )
    np.testing.assert_array_equal(device.weights, exact)
    assert spec_of(training).spent_when_sent, "its clicks are sent once"
