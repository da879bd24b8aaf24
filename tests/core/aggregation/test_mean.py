import tracemalloc
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foltr.core.aggregation.claimed_weights import capped_weights
from foltr.core.aggregation.mean import RunningMean, staleness_weight
from foltr.core.errors import DataError


def mean_of(updates: Iterable[tuple[np.ndarray, float]], dim: int) -> np.ndarray:
    running = RunningMean(dim)
    for vector, weight in updates:
        running.add(vector, weight)
    return running.mean()


def test_updates_count_by_their_weights(rng: np.random.Generator) -> None:
    """Blocks of updates, however they are cut, give the bits of one after the other."""
    updates = [(np.array([1, 2], np.float32), 1.0), (np.array([5, 6], np.float32), 3.0)]
    mean = mean_of(updates, 2)
    assert mean.tolist() == [(1 + 3 * 5) / 4, (2 + 3 * 6) / 4]
    assert mean.dtype == np.float64
    update = rng.normal(size=7)
    assert mean_of([(update, 2.0), (rng.normal(size=7), 0.0)], 7).tolist() == pytest.approx(update.tolist())
    updates = (rng.standard_normal((50, 7)) * 10.0 ** rng.integers(-6, 6, (50, 7))).astype(np.float32)
    weights = rng.integers(0, 9, 50).astype(np.float64)
    one_by_one, in_blocks = RunningMean(7), RunningMean(7)
    for update, weight in zip(updates, weights, strict=True):
        one_by_one.add(update, weight)
    for rows in (slice(0, 13), slice(13, 13), slice(13, 50)):
        in_blocks.add_rows(updates[rows], weights[rows])
    np.testing.assert_array_equal(in_blocks.mean(), one_by_one.mean())


def test_a_bad_update_is_named() -> None:
    """The message says which update and what was expected; nothing gets into the mean by coming in company."""
    for vector, weight, complaint in [
        (np.zeros(3), 1.0, r"update 1 has shape \(3,\), expected \(2,\)"),
        (np.zeros((1, 2)), 1.0, "update 1 has shape"),
        (np.array([0.0, np.nan]), 1.0, "update 1 contains"),
        (np.array([0.0, np.inf]), 1.0, "update 1 contains"),
        (np.zeros(2), -1.0, "update 1 has weight"),
        (np.zeros(2), float("nan"), "update 1 has weight"),
    ]:
        with pytest.raises(DataError, match=complaint):
            mean_of([(np.ones(2), 1.0), (vector, weight)], 2)
    for updates, weights in [
        (np.zeros((2, 3), np.float32), np.ones(3)),
        (np.zeros((2, 4), np.float32), np.ones(2)),
        (np.full((1, 3), np.nan, np.float32), np.ones(1)),
        (np.zeros((1, 3), np.float32), np.array([-1.0])),
        (np.zeros((1, 3), np.float32), np.array([np.inf])),
    ]:
        with pytest.raises(DataError):
            RunningMean(3).add_rows(updates, weights)
    for nothing in ([], [(np.ones(2), 0.0)]):
        with pytest.raises(DataError, match="add up to zero"):
            mean_of(nothing, 2)
    mean = RunningMean(1)
    mean.add(np.array([3e38]), 1)
    with pytest.raises(DataError, match="does not fit float32"):
        mean.apply_to(np.array([3e38]))


def test_memory_does_not_grow_with_the_number_of_updates() -> None:
    tracemalloc.start()
    mean_of(((np.full(20_000, i, np.float32), 1.0) for i in range(500)), 20_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1_000_000


def test_staleness_weight_by_hand() -> None:
    """(1 + s) ** -exponent. FedBuff divides by how many there are, not by the sum of these, which would undo them."""
    for staleness, exponent, expected in [
        (0, 0.5, 1.0),
        (8, 0.5, 1 / 3),
        (1, 1.0, 1 / 2),
        (3, 2.0, 1 / 16),
        (9, 0.0, 1.0),
    ]:
        assert staleness_weight(staleness, exponent) == pytest.approx(expected, abs=1e-15)
    mean = RunningMean(1)
    mean.add(np.array([8.0]), 2, staleness_weight=0.5)
    mean.add(np.array([4.0]), 1)
    assert mean.mean().tolist() == [(2 * 8 / 2 + 4) / 3]
    mean = RunningMean(2)
    for _ in range(5):
        mean.add(np.array([4.0, -4.0]), 1, staleness_weight=0.25)
    assert mean.mean().tolist() == [1.0, -1.0]
    assert mean.apply_to(np.array([10.0, 10.0])).tolist() == [11.0, 9.0]


claims = st.lists(st.floats(1, 1e9), min_size=1, max_size=40)


@given(claims, st.integers(0, 20))
def test_no_m_clients_hold_more_than_their_limit(claimed: list[float], m: int) -> None:
    """Halfway from m / n to a half; nobody gains, and who is below the cap keeps what it has."""
    weights = np.array(claimed)
    n = len(weights)
    capped = capped_weights(weights, m)
    assert (capped <= weights * (1 + 1e-12)).all()
    assert (capped > 0).all()
    untouched = capped == weights
    assert untouched.all() or capped[~untouched].max() <= capped.max() * (1 + 1e-12)
    limit = (m / n + 0.5) / 2 if 2 * m < n else m / n
    assert np.sort(capped)[::-1][:m].sum() <= limit * capped.sum() * (1 + 1e-9) or m >= n


def test_two_of_ten_may_hold_35_percent_of_the_weight() -> None:
    """Two of ten claim 1,000 interactions where the others have 5: together they may hold 35 % of the weight."""
    weights = np.array([5.0] * 8 + [1000.0] * 2)
    capped = capped_weights(weights, 2)
    assert capped[:8].tolist() == [5.0] * 8
    np.testing.assert_allclose(capped[8:].sum() / capped.sum(), (0.2 + 0.5) / 2)
    assert capped_weights(weights, 0) is weights
    assert capped_weights(weights, 5).tolist() == [5.0] * 10
    modest = np.array([1.0, 3, 5, 7, 9, 1, 3, 5, 7, 9])
    assert capped_weights(modest, 1) is modest
