"""Scaling: each kind by its formula, and nothing outside [0, 1]."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from foltr.core.learning.scaling import LARGEST_VALUE, Scaling, bounds_of, clipped_share, first_unusable, scale

ALL = bounds_of(list(Scaling), np.array([-2.0, 0.0, 0.0, 0.0]), np.array([6.0, 99.0, 0.0, 0.0]))
VALUES = st.floats(-LARGEST_VALUE, LARGEST_VALUE, allow_nan=False)


def test_each_kind_follows_its_formula():
    """Below, within and above the bounds; candidates that are all the same say nothing."""
    values = np.array([[-3.0, -1.0, -0.5, 7.0], [0.0, 9.0, 0.25, 3.0], [4.0, 99.0, 0.75, 5.0], [9.0, 500.0, 2.0, 4.0]])
    wanted = [
        [0.0, 0.0, 0.0, 1.0],
        [2 / 8, math.log(10) / math.log(100), 0.25, 0.0],
        [6 / 8, 1.0, 0.75, 2 / 4],
        [1.0, 1.0, 1.0, 1 / 4],
    ]
    scaled = scale(values, ALL)
    np.testing.assert_allclose(scaled, np.array(wanted, np.float32), rtol=1e-6)
    assert scaled.dtype == np.float32
    assert scaled.flags.c_contiguous
    assert scale(np.array([[0.0, 0.0, 0.0, 8.0]] * 3), ALL)[:, 3].tolist() == [0.0] * 3
    assert scale(np.array([[0.0, 0.0, 0.0, 8.0]]), ALL)[0, 3] == 0.0
    assert scale(np.zeros((0, 4)), ALL).shape == (0, 4)
    values = np.array([[-3.0, -1.0, -0.5, 7.0], [7.0, 9.0, 0.25, 3.0], [6.0, 99.0, 1.0, 5.0], [-2.0, 100.0, 2.0, 4.0]])
    assert clipped_share(values, ALL).tolist() == [0.5, 0.5, 0.5, 0.0]
    for bad in [math.nan, math.inf, -math.inf, 4e38]:
        values = np.zeros((3, 4))
        assert first_unusable(values) is None, bad
        values[1, 2] = values[2, 0] = bad
        assert first_unusable(values) == (1, 2), bad


@given(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=6))
def test_scaling_keeps_the_order_of_values(pairs):
    """A larger value never becomes a smaller one, and any is between 0 and 1, without a warning of NumPy."""
    values = np.repeat(np.array(pairs).reshape(-1, 1), 4, axis=1)
    scaled = scale(values, ALL)[np.argsort(values[:, 0], kind="stable")]
    assert (np.diff(scaled, axis=0) >= 0.0).all()
    assert ((scaled >= 0.0) & (scaled <= 1.0)).all()
