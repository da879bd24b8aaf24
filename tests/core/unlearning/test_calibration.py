"""Lengths of then with directions of now."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from foltr.core.errors import DataError
from foltr.core.unlearning.calibration import calibrated

UPDATES = arrays(np.float32, st.integers(1, 8), elements=st.floats(-1e6, 1e6, width=32))


def test_the_thesis_equation():
    """As long as the stored update and in the new direction; nothing changes that has the length."""
    np.testing.assert_allclose(calibrated(5.0, np.array([6.0, 8.0], np.float32)), [3.0, 4.0], rtol=1e-15)
    assert calibrated(5.0, np.array([6.0, 8.0], np.float32)).dtype == np.float64
    delta = np.random.default_rng(1).normal(size=46)
    np.testing.assert_allclose(calibrated(float(np.linalg.norm(delta)), delta), delta, rtol=1e-14)


@given(length=st.floats(0.0, 1e9), delta=UPDATES)
def test_as_long_as_the_stored_update_and_in_the_new_direction(length, delta):
    """Whatever is rescaled, however small or large; zeros have no direction and stay zeros."""
    found = calibrated(length, delta)
    if not delta.any():
        assert not found.any()
        return
    assert np.linalg.norm(found) == pytest.approx(length, rel=1e-12)
    exact = delta.astype(np.float64) / np.abs(delta).max()
    # Below the smallest normal number one is only as exact as its last bit.
    last_bits = 8 * np.finfo(np.float64).smallest_subnormal
    np.testing.assert_allclose(found * np.linalg.norm(exact), exact * length, rtol=1e-12, atol=last_bits)


def test_a_wrong_length_or_update_is_refused():
    for length in [-1.0, float("nan"), float("inf")]:
        with pytest.raises(DataError, match="expected a finite number of at least 0"):
            calibrated(length, np.ones(2))
    for value in [float("nan"), float("inf")]:
        with pytest.raises(DataError, match="not finite"):
            calibrated(1.0, np.array([1.0, value]))
