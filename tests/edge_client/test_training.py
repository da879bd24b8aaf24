"""Local training: the interactions, in order, folded into the global model."""

import numpy as np
import pytest

from edge_client.store import Interaction
from edge_client.training import LocalTraining, pdgd_learner
from foltr.messages import PdgdTraining
from foltr.pdgd import pdgd_step

SETTINGS = PdgdTraining(learning_rate=0.5)


@pytest.fixture
def interactions(rng):
    def one(i):
        features = rng.standard_normal((12, 4)).astype(np.float32)
        clicks = np.zeros(5, np.bool_)
        clicks[rng.integers(5)] = True
        return Interaction(i, features, rng.permutation(12)[:5].astype(np.int64), clicks)

    return [one(i) for i in range(10, 18)]


def trained(interactions, base=(0.0, 0.0, 0.0, 0.0)):
    training = LocalTraining(np.array(base, np.float32), 3, pdgd_learner)
    for interaction in interactions:
        training.learn(interaction, SETTINGS)
    return training


def test_it_starts_at_the_global_model():
    """Before the first interaction the delta is zero and the weights are the model's."""
    training = trained([], base=(1.0, -2.0, 0.5, 0.0))
    assert (training.base_version, training.dim, training.interaction_ids) == (3, 4, [])
    np.testing.assert_array_equal(training.weights, [1.0, -2.0, 0.5, 0.0])
    np.testing.assert_array_equal(training.delta(), np.zeros(4, np.float32))


def test_it_is_pdgd_step_by_step(interactions):
    """Each interaction is one PDGD step from where the last one ended, in float64."""
    base = np.array([0.1, -0.2, 0.3, 0.0], np.float32)
    weights = base.astype(np.float64)
    for item in interactions:
        weights = pdgd_step(weights, item.features, item.ranking, item.clicks, SETTINGS.learning_rate)
    training = trained(interactions, base)
    np.testing.assert_array_equal(training.weights, weights)
    np.testing.assert_array_equal(training.delta(), (weights - base.astype(np.float64)).astype(np.float32))
    assert training.delta().dtype == np.float32
    assert np.abs(training.delta()).max() > 0


def test_the_interactions_are_remembered_in_order(interactions):
    """An update names exactly what was learned."""
    assert trained(interactions).interaction_ids == list(range(10, 18))


def test_it_can_be_dropped_and_made_again(interactions):
    """The result depends on the base and the interactions alone, to the bit."""
    np.testing.assert_array_equal(trained(interactions).delta(), trained(interactions).delta())


def test_learning_in_parts_is_learning_at_once(interactions):
    """Interactions folded in as they come give what a backlog gives."""
    training = trained(interactions[:3])
    training.delta()
    for interaction in interactions[3:]:
        training.learn(interaction, SETTINGS)
    np.testing.assert_array_equal(training.delta(), trained(interactions).delta())


def test_the_announced_model_is_not_changed(interactions):
    """The weights of an announcement are a read-only view; the working copy is another array."""
    base = np.zeros(4, np.float32)
    base.flags.writeable = False
    trained(interactions, base)
    np.testing.assert_array_equal(base, np.zeros(4))


def test_no_click_teaches_nothing(interactions):
    """A list without a click counts as an interaction and moves nothing."""
    item = interactions[0]
    training = trained([Interaction(1, item.features, item.ranking, np.zeros(5, np.bool_))])
    np.testing.assert_array_equal(training.delta(), np.zeros(4, np.float32))
    assert training.interaction_ids == [1]


def test_another_learner_may_teach():
    """A test counts interactions with a learner of its own."""
    training = LocalTraining(np.zeros(2, np.float32), 1, lambda weights, item, settings: weights + item.id)  # noqa: ARG005
    item = Interaction(7, np.zeros((1, 2), np.float32), np.zeros(1, np.int64), np.zeros(1, np.bool_))
    training.learn(item, SETTINGS)
    np.testing.assert_array_equal(training.delta(), [7.0, 7.0])
