"""What a thread ranks by stays as it is while another one learns: of every method, and of each of its rankers."""

import numpy as np
import pytest
from support.federator_by_hand import announced
from support.small_rankers import RANKERS, see, trainings

from foltr.core.methods.base import DeviceContext
from foltr.core.methods.registry import METHODS, n_auxiliary
from foltr.edge_client.training.working_model import WorkingModel, device_for

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
    """No method changes in place what it ranks by, so a shallow copy is enough for whoever ranks meanwhile."""
    training = trainings(interactions=20)[method]
    model = model_for(training, ranker, rng)
    working_model = WorkingModel(model, training, device_for(model, training, DeviceContext(1)))
    before = working_model.snapshot()
    weights, scores = before.weights.copy(), before.ranker.scores(FEATURES, exploring=False)[0].copy()
    see(working_model.device, training, rng, n=8)
    np.testing.assert_array_equal(before.weights, weights)
    np.testing.assert_array_equal(before.ranker.scores(FEATURES, exploring=False)[0], scores)


def test_the_device_has_learned_meanwhile(rng):
    """Or the test above would say nothing."""
    training = trainings(interactions=20)["fpdgd"]
    model = model_for(training, RANKERS[0], rng)
    working_model = WorkingModel(model, training, device_for(model, training, DeviceContext(1)))
    before = working_model.snapshot()
    see(working_model.device, training, rng, n=8)
    assert not np.array_equal(before.weights, working_model.weights)
