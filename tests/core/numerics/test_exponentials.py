"""Exponentials and tanh of many numbers at a time."""

import numpy as np
import pytest

from foltr.core.numerics.compiled import plain_functions
from foltr.core.numerics.exponentials import exponentials, take_tanh


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_they_are_those_of_numpy(rng: np.random.Generator, dtype: type) -> None:
    """Except two bits at the end; what is not a number stays so, and what leaves float64 is its end."""
    values = np.concatenate([rng.uniform(-700, 700, 5000), rng.normal(size=5000), [0.0]]).astype(dtype)
    np.testing.assert_allclose(exponentials(values, 0.5), np.exp(values.astype(np.float64) - 0.5), rtol=2.0**-51)
    assert exponentials(values[-1:], 0.0)[0] == 1.0
    ends = np.array([np.nan, np.inf, -np.inf, 1e6, -1e6], dtype)
    with plain_functions():
        expected = exponentials(ends, 1.0)
    np.testing.assert_allclose(exponentials(ends, 1.0), expected, rtol=2.0**-51)
    assert expected[1] > 1e307
    assert 0.0 < expected[2] < 1e-307


def test_tanh_is_that_of_numpy(rng: np.random.Generator) -> None:
    """Except two units of the last place of 1; also in place, at the ends, and of what is not a number."""
    ends = [np.nan, np.inf, -np.inf, 1e30, -1e30, 0.0]
    values = np.concatenate([rng.normal(size=5000) * 3, rng.uniform(-20, 20, 5000), rng.normal(size=494) * 1e-4, ends])
    values = values.astype(np.float32).reshape(-1, 50)
    expected, results = np.tanh(values.astype(np.float64)), np.empty_like(values)
    take_tanh(values, results)
    np.testing.assert_allclose(results, expected, rtol=0.0, atol=1.2e-7)
    take_tanh(values, values)
    np.testing.assert_array_equal(values, results)
    assert (np.abs(results[np.isfinite(results)]) <= 1.0).all()
