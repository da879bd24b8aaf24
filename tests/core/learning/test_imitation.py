"""A model of zeros learns the order that an application shows."""

import numpy as np
import pytest

from foltr.core.learning.gate import Source
from foltr.core.learning.imitation import OF_LEARNING_RATE, imitation_step
from foltr.core.learning.interaction import Interaction
from foltr.core.learning.plackett_luce import plackett_luce_denominators
from foltr.core.methods.base import DeviceContext
from foltr.core.methods.fpdgd import FPDGD
from foltr.core.protocol.explorations import SamplingExploration
from foltr.core.protocol.trainings import LinearRankerSpec, PdgdTraining

RNG = np.random.default_rng(8)
FEATURES = RNG.random((12, 4), np.float32)
RANKING = RNG.permutation(12)[:5]
ZEROS = np.zeros(4, np.float32)


def likelihood(weights):
    shown, denominators = plackett_luce_denominators(FEATURES.astype(np.float64) @ weights, RANKING)
    return float(np.sum((shown - denominators[:5]) / np.arange(1, 6)))


def test_a_step_is_the_gradient_of_the_discounted_likelihood():
    weights, tiny = RNG.standard_normal(4), 1e-6
    step = imitation_step(weights, FEATURES, RANKING, 1.0 / OF_LEARNING_RATE) - weights
    slopes = [(likelihood(weights + tiny * one) - likelihood(weights - tiny * one)) / (2 * tiny) for one in np.eye(4)]
    assert step == pytest.approx(slopes, abs=1e-4)


def test_few_lists_teach_an_order_that_the_features_explain():
    """Of any scale: five lists, as in a first round, and other documents."""
    wanted, weights = np.array([3.0, -2.0, 1.0, 0.5]), np.zeros(4)
    for _ in range(5):
        features = RNG.random((50, 4), np.float32)
        weights = imitation_step(weights, features, np.argsort(-features @ wanted)[:10], 3.0)
    assert weights @ wanted / np.linalg.norm(weights) / np.linalg.norm(wanted) > 0.9
    learned = imitation_step(np.full(4, 1e6), FEATURES, np.arange(12), 3.0)
    assert np.isfinite(learned).all()
    assert imitation_step(np.zeros(4), FEATURES[:1], np.array([0]), 3.0).tolist() == [0.0] * 4


@pytest.mark.parametrize(
    ("source", "weights", "training", "shows_base", "is_imitated"),
    [
        (Source.BASE, ZEROS, PdgdTraining(), True, True),
        (Source.MODEL, ZEROS, PdgdTraining(), True, False),
        (Source.INTERLEAVED, ZEROS, PdgdTraining(), True, False),
        (Source.BASE, ZEROS + 1, PdgdTraining(), True, False),
        (Source.BASE, ZEROS, PdgdTraining(exploration=SamplingExploration()), True, False),
        (Source.BASE, ZEROS, PdgdTraining(), False, False),
    ],
    ids=["of zeros", "of a model before", "mixed", "a model that has learned", "as in the papers", "no base"],
)
def test_a_list_is_imitated_only_if_it_shows_the_applications_order(source, weights, training, shows_base, is_imitated):
    """Without a click PDGD learns nothing, so all that is learned was imitated."""
    context = DeviceContext(1, shows_base=shows_base)
    device = FPDGD.device(training, LinearRankerSpec(n_features=4), weights, 7, context)
    shown = Interaction(1, FEATURES, RANKING, np.zeros(5, np.bool_), reversals=np.zeros(10), source=source)
    device.learn(shown, RNG)
    assert (device.weights != weights).any() == is_imitated
