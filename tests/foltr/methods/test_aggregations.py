"""The federator part of methods that send differences of weights."""

import numpy as np
import pytest

from foltr.errors import DataError
from foltr.messages import DenseDelta, EvolutionPair, PartDelta, pack_vector
from foltr.methods.aggregations import DeltaAggregation

BASE = np.array([1.0, 2.0, 3.0], np.float32)


def dense(values):
    return DenseDelta(dim=len(values), values=pack_vector(values))


def test_updates_count_by_their_interactions():
    """FPDGD, Eq. 10: three interactions pull three times as hard as one."""
    aggregation = DeltaAggregation(3)
    aggregation.add(dense([4.0, 0.0, -4.0]), 3)
    aggregation.add(dense([0.0, 8.0, 0.0]), 1)
    model, state = aggregation.finish(BASE, None)
    np.testing.assert_array_equal(model, np.array([1 + 12 / 4, 2 + 8 / 4, 3 - 12 / 4], np.float32))
    assert state is None
    assert model.dtype == np.float32


def test_or_all_alike_with_a_step():
    """FedIPS, Algorithm 1, line 11: the plain mean times the federator's learning rate."""
    aggregation = DeltaAggregation(3, by_interactions=False, step=0.5)
    aggregation.add(dense([4.0, 0.0, -4.0]), 3)
    aggregation.add(dense([0.0, 8.0, 0.0]), 1)
    np.testing.assert_array_equal(aggregation.finish(BASE, None)[0], np.array([2.0, 4.0, 2.0], np.float32))


def test_a_shared_part_moves_and_the_rest_stays():
    """FedPer: only the entries that updates cover change."""
    aggregation = DeltaAggregation(3, start=0, n_values=2)
    aggregation.add(PartDelta(dim=3, start=0, values=pack_vector([1.0, -1.0])), 5)
    np.testing.assert_array_equal(aggregation.finish(BASE, b"s")[0], np.array([2.0, 1.0, 3.0], np.float32))


def test_a_stale_update_is_a_smaller_step():
    """FedBuff: a discount shrinks the update, not its weight."""
    aggregation = DeltaAggregation(3)
    aggregation.add(dense([4.0, 0.0, 0.0]), 1, discount=0.5)
    assert aggregation.finish(BASE, None)[0][0] == 3.0


@pytest.mark.parametrize(
    "body",
    [
        dense([0.0] * 4),
        PartDelta(dim=3, start=1, values=pack_vector([0.0])),
        EvolutionPair(seed=1, plus=0.5),
    ],
)
def test_another_kind_of_update_is_refused(body):
    """Nothing of another shape or method gets into a mean."""
    with pytest.raises(DataError):
        DeltaAggregation(3).add(body, 1)


def test_the_model_given_is_not_changed():
    """The base model is somebody else's array."""
    aggregation = DeltaAggregation(3)
    aggregation.add(dense([1.0, 1.0, 1.0]), 1)
    aggregation.finish(BASE, None)
    np.testing.assert_array_equal(BASE, [1.0, 2.0, 3.0])
