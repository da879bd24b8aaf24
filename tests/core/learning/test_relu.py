"""The ReLU ranker's scores, as arithmetic."""

import numpy as np
import pytest

from foltr.core.errors import DataError
from foltr.core.learning.relu import relu_score
from foltr.core.numerics.compiled import plain_functions


def test_scores_by_hand():
    """Two units of which one is off for each document: w2 . max(x W1 + b1, 0)."""
    # W1 is (1, 2) row-major, then b1, then w2.
    weights = np.array([2.0, -3.0, 0.5, 1.0, 10.0, 100.0])
    features = np.array([[1.0], [-1.0]], np.float32)
    expected = [10 * (2 * 1 + 0.5), 100 * (-3 * -1 + 1)]
    assert relu_score(weights, features, 2).tolist() == expected
    with plain_functions():
        assert relu_score(weights, features, 2).tolist() == expected


def test_documents_are_alike_where_all_units_are_off_and_weights_must_fit():
    """Such lists keep the documents' order."""
    features = np.ones((3, 4), np.float32)
    assert relu_score(np.zeros(12), features, 2).tolist() == [0.0, 0.0, 0.0]
    assert relu_score(-np.ones(12), features, 2).tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(DataError, match="hidden by features"):
        relu_score(np.zeros(9), np.zeros((4, 3), np.float32), 2)
