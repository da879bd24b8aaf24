"""FOLtR-ES: perturb, show, answer at random, climb."""

import numpy as np
import pytest
from support.sampled_lists import shown_by
from support.small_rankers import LINEAR, see

from foltr.core.errors import DataError
from foltr.core.learning.evolution_strategies import es_noise, round_noise_seed
from foltr.core.learning.interaction import Interaction
from foltr.core.learning.linear import rank_by_score, score
from foltr.core.methods.base import DeviceContext, Memory
from foltr.core.methods.registry import make_aggregation, make_device, training_for
from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.updates import DenseDelta, EvolutionPair

BASE = np.array([0.3, -0.2, 0.1, 0.0, 0.5, -0.4], np.float32)
SIGMA = 0.5


def es(interactions=4, **parameters):
    return training_for("foltr-es", {"noise_scale": SIGMA, "truth_probability": 1.0, **parameters}, interactions)


def device_of(training, version=3, seed=99):
    return make_device(training, LINEAR, BASE, version, DeviceContext(seed))


@pytest.mark.parametrize(("interactions", "signs"), [(4, [1, -1, 1, -1]), (5, [1, -1, 1, -1, 1])])
def test_every_other_list_is_shown_under_the_negative(rng, interactions, signs):
    """Antithetic: each list is the best one under the perturbation or its negative, and says which."""
    training = es(interactions)
    device = device_of(training)
    noise = es_noise(round_noise_seed(99, 3), 6, SIGMA)
    for i, sign in enumerate(signs):
        features = rng.random((20, 6)).astype(np.float32)
        shown, variant = shown_by(device, training, features, 10, rng)
        assert variant == sign
        np.testing.assert_array_equal(
            shown.ranking, rank_by_score(score(BASE.astype(np.float64) + sign * noise, features), 10)
        )
        device.learn(Interaction(i, features, shown.ranking, np.ones(10, np.bool_), variant, 3), rng)


def test_what_is_sent_is_a_seed_and_two_numbers(rng):
    """The mean reciprocal rank of the highest click on each side; below the announced length it earns nothing."""
    training = es(4)
    device = device_of(training)
    for i, highest in enumerate([1, 2, 4, None]):
        clicks = np.zeros(10, np.bool_)
        if highest is not None:
            clicks[highest - 1 :] = True
        variant = 1 if i < 2 else -1
        device.learn(Interaction(i, np.zeros((10, 6), np.float32), np.arange(10), clicks, variant, 3), rng)
    body = device.body(rng)
    assert body == EvolutionPair(seed=round_noise_seed(99, 3), plus=(1 + 1 / 2) / 2, minus=(1 / 4 + 0) / 2)
    device = device_of(es(2))
    clicks = np.zeros(25, np.bool_)
    clicks[20] = True
    for i, variant in enumerate((1, -1)):
        device.learn(Interaction(i, np.zeros((30, 6), np.float32), np.arange(25), clicks, variant, 3), rng)
    body = device.body(rng)
    assert (body.plus, body.minus) == (0.0, 0.0)


def test_what_another_perturbation_earned_does_not_count(rng):
    """Nor does what the best list earns; and nothing is sent before both sides were shown."""
    device = device_of(es())
    old = Interaction(0, np.zeros((10, 6), np.float32), np.arange(10), np.ones(10, np.bool_), 1, 2)
    with pytest.raises(DataError):
        device.learn(old, rng)
    features = rng.random((20, 6)).astype(np.float32)
    scores, variant = device.scores(features, exploring=False)
    np.testing.assert_array_equal(scores, score(BASE, features))
    with pytest.raises(DataError):
        device.learn(Interaction(0, features, rank_by_score(scores, 10), np.ones(10, np.bool_), variant, 3), rng)
    training = es(4)
    device = device_of(training)
    see(device, training, rng, base_version=3, n=1)
    with pytest.raises(DataError):
        device.body(rng)
    see(device, training, rng, base_version=3, n=1)
    device.body(rng)


def test_late_clicks_do_not_stop_it(rng):
    """Lists that were all shown before any click, or whose clicks never came, leave room for the other sign's."""
    training = es(4)
    device = device_of(training)
    features = rng.random((20, 6)).astype(np.float32)
    shown = [device.scores(features, exploring=True) for _ in range(9)]
    learned = []
    for i, (scores, variant) in enumerate(shown):
        if i in (1, 3, 5):  # closed without a record
            continue
        try:
            device.learn(Interaction(i, features, rank_by_score(scores, 10), np.ones(10, np.bool_), variant, 3), rng)
            learned.append(variant)
        except DataError:
            assert learned.count(variant) == 2, "only a sign that is full is refused"
    assert sorted(learned) == [-1, 1, 1]
    scores, variant = device.scores(features, exploring=True)
    assert variant == -1
    device.learn(Interaction(9, features, rank_by_score(scores, 10), np.ones(10, np.bool_), variant, 3), rng)
    assert device.body(rng).minus == 1.0


def test_a_restarted_device_shows_the_same_perturbation(rng):
    """The perturbation depends on the device and the model alone; another device or model has another."""
    training, seeds = es(2), []
    for version, seed in [(3, 99), (3, 99), (4, 99), (3, 98)]:
        device = device_of(training, version, seed)
        see(device, training, rng, base_version=version, n=2)
        seeds.append(device.body(rng).seed)
    assert seeds[0] == seeds[1]
    assert len(set(seeds)) == 3


def test_the_federator_climbs_as_the_equations_say():
    """Eq. 3.5 with antithetic pairs, and Adam's first step, written out."""
    training = es(4, server_learning_rate=0.01)
    bodies = [EvolutionPair(seed=11, plus=1.0, minus=0.5), EvolutionPair(seed=12, plus=0.2, minus=0.7)]
    aggregation = make_aggregation(training, LINEAR)
    for body in bodies:
        aggregation.add(body, 4)
    first = aggregation.finish(BASE)
    model = first.weights
    gradient = sum((b.plus - b.minus) * es_noise(b.seed, 6, SIGMA) for b in bodies) / (2 * len(bodies) * SIGMA**2)
    # Adam's first step: the bias-corrected moments are the gradient and its square.
    expected = BASE + 0.01 * gradient / (np.sqrt(gradient**2) + 1e-8)
    np.testing.assert_allclose(model, expected, rtol=1e-6)
    again = make_aggregation(training, LINEAR)
    again.add(bodies[0], 4)
    second = again.finish(model, first.memory).weights
    fresh = make_aggregation(training, LINEAR)
    fresh.add(bodies[0], 4)
    assert (second != fresh.finish(model).weights).any(), "the moments of the first round are part of the second"


def test_other_updates_and_states_are_refused():
    """No difference of weights, no moments of another size; a round opened with pairs may be closed without."""
    with pytest.raises(DataError):
        make_aggregation(es(), LINEAR).add(DenseDelta(dim=6, values=pack_vector([0.0] * 6)), 4)
    aggregation = make_aggregation(es(), LINEAR)
    aggregation.add(EvolutionPair(seed=1, plus=0.5, minus=0.1), 4)
    state = aggregation.finish(BASE).memory.optimiser
    with pytest.raises(DataError):
        aggregation.finish(BASE, Memory(optimiser=state[: len(state) // 2]))
    aggregation = make_aggregation(es(antithetic=False), LINEAR)
    aggregation.add(EvolutionPair(seed=1, plus=0.5, minus=0.1), 4)
    aggregation.add(EvolutionPair(seed=2, plus=0.5), 4)
    assert np.isfinite(aggregation.finish(BASE).weights).all()
