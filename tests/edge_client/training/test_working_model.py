"""The working model: what ranks, what learns, and what is kept of it."""

from dataclasses import replace

import numpy as np
import pytest
from support.federator_by_hand import announced
from support.sampled_lists import even_reversals
from support.small_rankers import RANKERS, see, trainings

from foltr.core.errors import DataError, SettingsError
from foltr.core.learning.interaction import Interaction
from foltr.core.learning.neural import neural_score
from foltr.core.methods.base import DeviceContext
from foltr.core.methods.lists import draw_list
from foltr.core.methods.registry import METHODS, n_auxiliary
from foltr.core.protocol.announcements import ModelAnnouncement
from foltr.core.protocol.fields import pack_vector, unpack_vector
from foltr.core.protocol.trainings import (
    FedIpsTraining,
    FedPerTraining,
    LinearRankerSpec,
    NeuralRankerSpec,
    PdgdTraining,
    PersonalTraining,
)
from foltr.edge_client.training.working_model import (
    BareModel,
    LearnerDevice,
    WorkingModel,
    device_for,
    mark_state,
    unmark_state,
)

SETTINGS = PdgdTraining(learning_rate=0.5)
LINEAR = LinearRankerSpec(n_features=4)
CONTEXT = DeviceContext(device_seed=7)


@pytest.fixture
def interactions(rng):
    def one(i):
        features = rng.standard_normal((12, 4)).astype(np.float32)
        clicks = np.zeros(5, np.bool_)
        clicks[rng.integers(5)] = True
        return Interaction(i, features, rng.permutation(12)[:5].astype(np.int64), clicks, reversals=even_reversals(5))

    return [one(i) for i in range(10, 18)]


def model_of(weights, ranker=LINEAR, n_auxiliary=0, version=3):
    return ModelAnnouncement(
        federation="mail", version=version, ranker=ranker, n_auxiliary=n_auxiliary, weights=pack_vector(weights)
    )


def working_model_of(model, training=SETTINGS):
    return WorkingModel(model, training, device_for(model, training, CONTEXT))


def delta(device, rng):
    return unpack_vector(device.body(rng).values)


def test_it_starts_at_the_global_model(rng):
    """Before the first interaction the delta is zero and the weights are the model's."""
    working_model = working_model_of(model_of([1.0, -2.0, 0.5, 0.0]))
    assert (working_model.base_version, working_model.n_features, working_model.interaction_ids) == (3, 4, [])
    np.testing.assert_array_equal(working_model.weights, [1.0, -2.0, 0.5, 0.0])
    np.testing.assert_array_equal(delta(working_model.device, rng), np.zeros(4, np.float32))


def test_what_cannot_be_learned_changes_nothing(interactions, rng):
    """Another number of features, or without a score, are an error of the data, and no part of the working model."""
    model = model_of([0.0] * 4)
    working_model = working_model_of(model)
    working_model.learn(interactions[0], rng)
    np.testing.assert_array_equal(unpack_vector(model.weights), np.zeros(4))  # the copy is another array
    before, item = working_model.weights, interactions[1]
    for features in (item.features[:, :3], np.full_like(item.features, np.inf)):
        with pytest.raises(DataError):
            working_model.learn(replace(item, id=99, features=features), rng)
    assert working_model.interaction_ids == [10]
    np.testing.assert_array_equal(working_model.weights, before)


def test_a_neural_model_ranks_by_its_own_scores(rng):
    """The values beside the ranker's are not taken for weights."""
    ranker = NeuralRankerSpec(n_features=4, hidden=3)
    weights = rng.standard_normal(ranker.n_weights + 2).astype(np.float32)
    features = rng.random((9, 4)).astype(np.float32)
    scores, _ = BareModel(ranker, weights).scores(features, exploring=True)
    np.testing.assert_array_equal(scores, neural_score(weights[: ranker.n_weights], features, 3))


def test_a_bare_model_explores_with_care_and_says_when_it_cannot_score(rng):
    """Before an exploration is known it exchanges neighbours; features that are too large are an error of the data."""
    bare = WorkingModel(model_of([3.0, 2.0, 1.0, 0.0]), None, None)
    scores, variant = bare.ranker.scores(np.eye(4, dtype=np.float32), exploring=True)
    assert (scores.tolist(), variant) == ([3.0, 2.0, 1.0, 0.0], 0)
    shown = {tuple(draw_list(bare.exploration, scores, 3, rng).ranking.tolist()) for _ in range(3000)}
    assert shown == {(0, 1, 2), (1, 0, 2), (0, 2, 1)}
    with pytest.raises(DataError, match="features"):
        bare.ranker.scores(np.full((2, 4), 3e38, np.float32), exploring=True)


def test_a_learner_that_ends_in_nonsense_is_not_followed(rng):
    """Weights that are not finite are an error of the data; the device keeps those it had."""
    device = LearnerDevice(lambda weights, *_: weights * np.nan, LINEAR, np.ones(4, np.float32), SETTINGS)
    with pytest.raises(DataError):
        device.learn(Interaction(7, np.zeros((1, 4), np.float32), np.zeros(1, np.int64), np.zeros(1, np.bool_)), rng)
    np.testing.assert_array_equal(device.weights, np.ones(4))


@pytest.mark.parametrize(
    ("model", "training"),
    [
        pytest.param(model_of([0.0] * 4), FedPerTraining(), id="no hidden layer to share"),
        pytest.param(model_of([0.0] * 4), FedIpsTraining(propensities="estimated"), id="no relevance function"),
        pytest.param(model_of([0.0] * 9, n_auxiliary=5), SETTINGS, id="a relevance function nobody asked for"),
        pytest.param(model_of([0.0] * 6, NeuralRankerSpec(n_features=4, hidden=1)), PersonalTraining(), id="neural"),
    ],
)
def test_a_method_that_cannot_be_used_says_so(model, training):
    """With a reason, before anything is learned by it."""
    with pytest.raises(SettingsError):
        device_for(model, training, CONTEXT)


def test_local_state_is_read_by_its_own_method_only():
    """Ten propensity counts and twenty personal weights are as many bytes; neither is taken for the other."""
    kept = mark_state(b"\x01" * 160, PersonalTraining())
    assert unmark_state(kept, PersonalTraining(learning_rate=0.3)) == b"\x01" * 160
    assert unmark_state(kept, FedIpsTraining(propensities="estimated")) is None
    assert unmark_state(None, PersonalTraining()) is None
    assert mark_state(None, SETTINGS) is None


FEATURES = np.random.default_rng(4).random((8, 6), np.float32)


def model_for(training, ranker, rng):
    weights = rng.normal(size=ranker.n_weights + n_auxiliary(training, ranker)).astype(np.float32)
    return announced(0, weights, ranker, n_auxiliary=n_auxiliary(training, ranker))


PAIRS = [
    pytest.param(name, ranker, id=f"{name} {ranker.kind}")
    for name, spec in METHODS.items()
    for ranker in RANKERS
    if spec.only_ranker is None or spec.only_ranker.kind == ranker.kind
]


@pytest.mark.parametrize(("method", "ranker"), PAIRS)
def test_a_snapshot_does_not_change_when_the_device_learns(method, ranker, rng):
    """No method changes in place what it ranks by, so a shallow copy is enough for a thread that ranks meanwhile."""
    training = trainings(interactions=20)[method]
    model = model_for(training, ranker, rng)
    working_model = WorkingModel(model, training, device_for(model, training, DeviceContext(1)))
    before = working_model.snapshot()
    weights, scores = before.weights.copy(), before.ranker.scores(FEATURES, exploring=False)[0].copy()
    see(working_model.device, training, rng, n=8)
    assert method == "foltr-es" or not np.array_equal(working_model.weights, weights), "it has learned"
    np.testing.assert_array_equal(before.weights, weights)
    np.testing.assert_array_equal(before.ranker.scores(FEATURES, exploring=False)[0], scores)
