"""Distances between models."""

import numpy as np
import pytest

from foltr.core.errors import DataError
from foltr.core.unlearning.measures import cosine, relative_distance


def test_cosine():
    """Of rankers that rank alike, against each other, and at a right angle; distances are relative to the second."""
    a = np.array([1.0, 2.0], np.float32)
    assert cosine(a, 3 * a) == pytest.approx(1.0)
    assert cosine(a, -a) == pytest.approx(-1.0)
    assert cosine(np.array([1.0, 0.0]), np.array([0.0, 1.0])) == 0.0
    with pytest.raises(DataError, match="no direction"):
        cosine(a, np.zeros(2))
    assert relative_distance(np.array([3.0, 9.0]), np.array([0.0, 5.0])) == 1.0
    assert relative_distance(np.zeros(2), np.zeros(2)) == 0.0
    with pytest.raises(DataError, match="zeros"):
        relative_distance(np.ones(2), np.zeros(2))
    with pytest.raises(DataError, match="shapes"):
        relative_distance(np.ones(2), np.ones(3))
