"""Distances between models, and what clicks say about a ranker."""

import math

import numpy as np
import pytest

from foltr.errors import DataError
from foltr.learning.interaction import Interaction
from foltr.protocol.trainings import LinearRankerSpec
from foltr.unlearning.measures import click_losses, cosine, relative_distance

RANKER = LinearRankerSpec(n_features=1)


def shown(clicks, scores=(3.0, 2.0, 1.0, 0.0)):
    """A list in the order of its documents, each of which has its score as its feature."""
    features = np.array(scores, np.float32)[:, None]
    return Interaction(1, features, np.arange(len(clicks)), np.array(clicks, np.bool_))


def test_distance_relative_to_the_second():
    """|(3, 4)| over |(0, 5)|."""
    assert relative_distance(np.array([3.0, 9.0]), np.array([0.0, 5.0])) == 1.0
    assert relative_distance(np.zeros(2), np.zeros(2)) == 0.0
    with pytest.raises(DataError, match="zeros"):
        relative_distance(np.ones(2), np.zeros(2))
    with pytest.raises(DataError, match="shapes"):
        relative_distance(np.ones(2), np.ones(3))


def test_cosine():
    """Of rankers that rank alike, against each other, and at a right angle."""
    a = np.array([1.0, 2.0], np.float32)
    assert cosine(a, 3 * a) == pytest.approx(1.0)
    assert cosine(a, -a) == pytest.approx(-1.0)
    assert cosine(np.array([1.0, 0.0]), np.array([0.0, 1.0])) == 0.0
    with pytest.raises(DataError, match="no direction"):
        cosine(a, np.zeros(2))


def test_loss_of_clicks():
    """The second of four clicked: preferred over the first, and over the third, which the user saw too."""
    expected = (math.log(1 + math.exp(3 - 2)) + math.log(1 + math.exp(1 - 2))) / 2
    assert click_losses(RANKER, np.ones(1), [shown([0, 1, 0, 0])])[0] == pytest.approx(expected)


def test_a_ranker_that_knows_nothing():
    """Every preference is a coin's throw: log 2."""
    assert click_losses(RANKER, np.zeros(1), [shown([1, 0, 1, 0])])[0] == pytest.approx(math.log(2))


@pytest.mark.parametrize("clicks", [[0, 0, 0, 0], [1, 1, 1, 1]])
def test_clicks_that_prefer_nothing(clicks):
    """Nobody was passed over."""
    assert np.isnan(click_losses(RANKER, np.ones(1), [shown(clicks)])[0])


def test_huge_scores_do_not_overflow():
    """The loss is the difference of scores then."""
    loss = click_losses(RANKER, np.ones(1), [shown([0, 1], scores=(2000.0, 0.0))])[0]
    assert loss == pytest.approx(2000.0)


def test_the_ranker_that_agrees_has_the_lower_loss():
    """Clicks at the top, under a ranker and its opposite."""
    good, bad = (click_losses(RANKER, weights, [shown([1, 0, 0, 0])])[0] for weights in (np.ones(1), -np.ones(1)))
    assert good < math.log(2) < bad
