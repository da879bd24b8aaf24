"""What clicks say about a ranker, and how models and lists compare after unlearning."""

import math

import numpy as np
import pytest

from foltr.core.errors import DataError, SettingsError
from foltr.core.learning.interaction import Interaction
from foltr.core.protocol.trainings import LinearRankerSpec
from foltr_research.simulation.unlearning.ascent import projected
from foltr_research.simulation.unlearning.measures import click_losses, distance_gap, list_overlap, steps_saved

RANKER = LinearRankerSpec(n_features=1)


def shown(clicks, scores=(3.0, 2.0, 1.0, 0.0)):
    """A list in the order of its documents, each of which has its score as its feature."""
    features = np.array(scores, np.float32)[:, None]
    return Interaction(1, features, np.arange(len(clicks)), np.array(clicks, np.bool_))


def test_loss_of_clicks():
    """The second of four clicked is preferred over the first and the third; knowing nothing is a coin's throw."""
    expected = (math.log(1 + math.exp(3 - 2)) + math.log(1 + math.exp(1 - 2))) / 2
    assert click_losses(RANKER, np.ones(1), [shown([0, 1, 0, 0])])[0] == pytest.approx(expected)
    assert click_losses(RANKER, np.zeros(1), [shown([1, 0, 1, 0])])[0] == pytest.approx(math.log(2))
    loss = click_losses(RANKER, np.ones(1), [shown([0, 1], scores=(2000.0, 0.0))])[0]
    assert loss == pytest.approx(2000.0)
    good, bad = (click_losses(RANKER, weights, [shown([1, 0, 0, 0])])[0] for weights in (np.ones(1), -np.ones(1)))
    assert good < math.log(2) < bad


@pytest.mark.parametrize("clicks", [[0, 0, 0, 0], [1, 1, 1, 1]])
def test_clicks_that_prefer_nothing(clicks):
    """Nobody was passed over."""
    assert np.isnan(click_losses(RANKER, np.ones(1), [shown(clicks)])[0])


def test_the_distance_gap_compares_how_far_models_moved():
    """Retraining moved by (3, 4): half as far is too little, twice as far too much, in whatever direction."""
    before, retrained = np.zeros(2), np.array([3.0, 4.0])
    assert distance_gap(before, retrained, retrained) == 0.0
    assert distance_gap(before, before, retrained) == -1.0
    assert distance_gap(before, np.array([2.5, 0.0]), retrained) == -0.5
    assert distance_gap(before, np.array([0.0, -10.0]), retrained) == 1.0
    with pytest.raises(DataError, match="did not move the model"):
        distance_gap(before, retrained, before)


def test_lists_overlap():
    """Of two queries one is ranked alike, the other has two documents swapped; only the first k count, ties stay."""
    offsets = np.array([0, 3, 6])
    ones, others = np.array([3.0, 2.0, 1.0, 3.0, 2.0, 1.0]), np.array([30.0, 20.0, 10.0, 2.0, 3.0, 1.0])
    swapped = (0.0 + 0.9 * 2 / 2 + 0.81 * 3 / 3) / (1 + 0.9 + 0.81)
    assert list_overlap(ones, others, offsets) == pytest.approx((1.0 + swapped) / 2)
    offsets = np.array([0, 4])
    first, last = np.array([4.0, 3.0, 2.0, 1.0]), np.array([1.0, 2.0, 3.0, 4.0])
    assert list_overlap(first, last, offsets, k=2) == 0.0
    assert list_overlap(first, last, offsets, k=4) == pytest.approx((0 + 0 + 0.81 * 2 / 3 + 0.729) / 3.439)
    assert list_overlap(np.zeros(5), np.ones(5), np.array([0, 5])) == 1.0
    with pytest.raises(DataError, match="shapes"):
        list_overlap(np.zeros(5), np.ones(4), np.array([0, 5]))


def test_steps_saved():
    """Section 6.1.3: 5 / 3 * 10."""
    assert steps_saved(5, 3, 10) == pytest.approx(50 / 3)
    with pytest.raises(SettingsError, match="at least 1"):
        steps_saved(5, 0, 10)


CENTRE = np.array([1.0, 1.0], np.float32)


def test_what_is_outside_the_ball_is_drawn_to_its_surface():
    """Straight towards the centre, as (4, 5) in direction (3, 4) / 5; what is inside keeps its bits."""
    within = np.array([1.3, 0.6], np.float32)
    np.testing.assert_array_equal(projected(within, CENTRE, 0.5), within)
    np.testing.assert_allclose(projected(CENTRE + np.array([3.0, 4.0]), CENTRE, 0.5), [1 + 0.3, 1 + 0.4])
    np.testing.assert_array_equal(projected(np.array([7.0, -3.0]), CENTRE, 0.0), CENTRE)
