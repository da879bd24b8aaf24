"""Directions of attacks: of length 1, and what each does to a ranker."""

import numpy as np
import pytest

from foltr.core.errors import SettingsError
from foltr_research.attacks.directions import TOWARDS, direction_of

MODEL = np.array([3.0, 0.0, 4.0])


def test_reverse_is_against_the_model():
    """What it ranks first is to be last."""
    np.testing.assert_allclose(direction_of("reverse", MODEL), [-0.6, 0.0, -0.8])


def test_orthogonal_lets_features_count_for_less_at_a_right_angle():
    """-(1, 1, 1) plus its part along (0.6, 0, 0.8), which is 1.4."""
    expected = np.array([-1.0 + 1.4 * 0.6, -1.0, -1.0 + 1.4 * 0.8])
    np.testing.assert_allclose(direction_of("orthogonal", MODEL), expected / np.linalg.norm(expected))
    assert direction_of("orthogonal", MODEL) @ MODEL == pytest.approx(0.0)


def test_a_feature_is_counted_from_one():
    """The third weight falls, and no other."""
    np.testing.assert_array_equal(direction_of("feature", MODEL, 3), [0.0, 0.0, -1.0])
    with pytest.raises(SettingsError, match="feature: 4; the ranker has 3"):
        direction_of("feature", MODEL, 4)


@pytest.mark.parametrize("towards", TOWARDS)
def test_every_direction_has_length_1(towards):
    """Whatever the model's length is."""
    assert np.linalg.norm(direction_of(towards, 100.0 * MODEL)) == pytest.approx(1.0)


def test_there_may_be_no_direction():
    """Before anything was learned nothing is its reverse, and every feature can count for less."""
    assert not direction_of("reverse", np.zeros(3)).any()
    assert (direction_of("orthogonal", np.zeros(3)) < 0.0).all()
    assert not direction_of("orthogonal", np.ones(3)).any()
