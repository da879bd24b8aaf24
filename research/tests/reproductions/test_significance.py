"""The papers' t test gives scipy's p, and markers say which way and how surely."""

import numpy as np
import pytest

from foltr_research.reproductions.significance import bonferroni, marker, paired_t_test


def test_p_is_that_of_scipy(rng):
    """Two-sided, by pairs, for any number of them."""
    from scipy.stats import ttest_rel

    for n in (2, 3, 5, 25, 400):
        first, second = rng.normal(0.5, 0.1, n), rng.normal(0.45, 0.1, n)
        assert paired_t_test(first, second) == pytest.approx(ttest_rel(first, second).pvalue, rel=1e-9), n
        assert paired_t_test(first, second) == paired_t_test(second, first)


def test_p_by_hand_and_of_nothing():
    """Differences 1 and 3: t = 2 with one degree of freedom, p = 1 - 2 / pi * atan(2). One pair has no p."""
    first, second = np.array([1.0, 3.0]), np.zeros(2)
    assert paired_t_test(first, second) == pytest.approx(1 - 2 / np.pi * np.arctan(2))
    assert np.isnan(paired_t_test(first[:1], second[:1]))
    assert np.isnan(paired_t_test(np.array([np.nan, 1.0]), second))
    assert paired_t_test(first, first) == 1.0
    assert paired_t_test(first + 1, first) == 0.0


def test_corrected_p_and_markers():
    """Of 24 comparisons a p of 0.01 proves nothing; the triangle points up for a gain, and is full below 0.01."""
    assert bonferroni(0.01, 24) == pytest.approx(0.24)
    assert bonferroni(0.5, 24) == 1.0
    assert np.isnan(bonferroni(float("nan"), 24))
    assert [marker(sign, p) for p in (0.009, 0.04) for sign in (1.0, -1.0)] == ["▲", "▼", "△", "▽"]
    assert marker(1.0, 0.05) == marker(1.0, float("nan")) == ""
