"""Each rule equals its paper's definition, and keeps what the definition promises."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from support import rule_definitions as definitions

from foltr.core.aggregation.bulyan import bulyan
from foltr.core.aggregation.centres import centred_clipping, geometric_median, norm_bounding, norms
from foltr.core.aggregation.coordinates import median, trimmed_mean, weighted_mean
from foltr.core.aggregation.krum import krum, krum_scores, least, multi_krum

SIZES = [(5, 1, 1), (7, 4, 1), (11, 3, 2), (12, 5, 2), (23, 40, 5), (33, 17, 7)]
# The parts of these rules that float32 leaves: it has seven digits.
TOLERANCE = {np.float32: 2e-6, np.float64: 1e-12}

Rule = Callable[[np.ndarray, int], np.ndarray]
RULES: dict[str, Rule] = {
    "mean": lambda rows, _: weighted_mean(rows, np.ones(len(rows))).vector,
    "krum": lambda rows, m: krum(rows, m).vector,
    "multi-krum": lambda rows, m: multi_krum(rows, np.ones(len(rows)), m).vector,
    "trimmed-mean": lambda rows, m: trimmed_mean(rows, np.ones(len(rows)), m).vector,
    "median": lambda rows, _: median(rows, np.ones(len(rows))).vector,
    "bulyan": lambda rows, m: bulyan(rows, m).vector,
    "geometric-median": lambda rows, _: (
        geometric_median(rows, np.ones(len(rows)), n_iterations=500, tolerance=1e-10).vector
    ),
    "centred-clipping": lambda rows, _: centred_clipping(rows, np.ones(len(rows))).vector,
    "norm-bounding": lambda rows, _: norm_bounding(rows, np.ones(len(rows))).vector,
}
WITHSTANDS = [name for name in RULES if name not in ("mean", "norm-bounding")]


def updates(n: int, dim: int, dtype: type = np.float64, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Rows without equal values, and whole weights."""
    rng = np.random.default_rng([n, dim])
    return (rng.normal(size=(n, dim)) + shift).astype(dtype), rng.integers(1, 9, n).astype(np.float64)


def test_equals_the_definition() -> None:
    """Every rule, also where the updates share a part a thousand times as large as their differences."""
    for n, dim, m in SIZES:
        for dtype in [np.float32, np.float64]:
            for shift in [0.0, 1e3]:
                rows, weights = updates(n, dim, dtype, shift)
                plain, claimed = definitions.numbers(rows), weights.tolist()
                middle = definitions.weighted_median(plain, weights.astype(int).tolist())
                close = {"rtol": TOLERANCE[dtype], "atol": TOLERANCE[dtype] * (1 + shift)}

                for found, expected in [
                    (weighted_mean(rows, weights), definitions.mean(plain, claimed)),
                    (multi_krum(rows, weights, m), definitions.multi_krum(plain, claimed, m)),
                    (bulyan(rows, m), definitions.bulyan(plain, m)),
                    (
                        centred_clipping(rows, weights, 1.0, 3),
                        definitions.centred_clipping(plain, claimed, 1.0, 3, middle),
                    ),
                    (norm_bounding(rows, weights, 1.0), definitions.norm_bounding(plain, claimed, 1.0)),
                ]:
                    np.testing.assert_allclose(found.vector, expected, **close)
                scores = definitions.krum_scores(plain, m)
                np.testing.assert_allclose(krum_scores(rows, m), scores, rtol=10 * TOLERANCE[dtype])
                np.testing.assert_array_equal(krum(rows, m).vector, definitions.krum(plain, m))
                for used in (np.ones(n), weights):
                    expected = definitions.trimmed_mean(plain, used.tolist(), m)
                    np.testing.assert_allclose(trimmed_mean(rows, used, m).vector, expected, **close)
                    np.testing.assert_allclose(trimmed_mean(rows, used, m, with_shares=True).vector, expected, **close)
                np.testing.assert_allclose(median(rows, np.ones(n)).vector, definitions.median(plain), rtol=1e-15)
                np.testing.assert_allclose(median(rows, weights).vector, middle, rtol=1e-15)


def test_geometric_median_is_a_least_sum_of_distances() -> None:
    for n, dim, m in SIZES:
        rows, weights = updates(n, dim)
        plain, claimed = definitions.numbers(rows), weights.tolist()
        found = geometric_median(rows, weights, n_iterations=2_000, tolerance=1e-9).vector
        least = definitions.sum_of_distances(plain, claimed, found.tolist())
        rng = np.random.default_rng(m)
        for size in (1e-3, 1e-1, 1.0):
            other = found + size * rng.normal(size=dim)
            assert least <= definitions.sum_of_distances(plain, claimed, other.tolist()) * (1 + 1e-9), (n, dim, m)
        assert all(least <= definitions.sum_of_distances(plain, claimed, row) * (1 + 1e-6) for row in plain)


def test_geometric_median_by_default_is_near_enough() -> None:
    """Within a thousandth of the typical distance after at most 32 passes; zero where most updates are."""
    rows, weights = updates(10, 136)
    quick = geometric_median(rows, weights)
    exact = geometric_median(rows, weights, n_iterations=5_000, tolerance=1e-12)
    assert quick.used["n_iterations"] <= 32
    assert np.linalg.norm(quick.vector - exact.vector) < 1e-3 * np.median(exact.scores)
    rows = np.zeros((5, 3))
    rows[:2] = 1.0
    assert geometric_median(rows, np.ones(5)).vector.tolist() == [0.0] * 3
    rows[:3] = 1.0
    np.testing.assert_allclose(geometric_median(rows, np.ones(5), n_iterations=100).vector, 1.0, atol=1e-3)


def test_huge_updates_do_not_carry_it_away() -> None:
    """m hostile rows, together or apart, leave the result about as far from the honest mean as honest updates are."""
    for name in WITHSTANDS:
        for huge in [1e3, 1e12, 1e30]:
            for dtype in [np.float32, np.float64]:
                rng = np.random.default_rng(7)
                n, m, dim = 23, 5, 6
                honest = rng.normal(size=(n - m, dim)) + 3
                for hostile in (np.full((m, dim), huge), huge * rng.normal(size=(m, dim)), -huge * np.eye(m, dim)):
                    rows = np.concatenate([hostile[:2], honest, hostile[2:]]).astype(dtype)
                    result = RULES[name](rows, m)
                    farthest = np.linalg.norm(honest - honest.mean(axis=0), axis=1).max()
                    assert np.linalg.norm(result - honest.mean(axis=0)) < farthest, (name, huge, dtype)
                    if name in ("krum", "trimmed-mean", "median", "bulyan", "multi-krum"):
                        assert (result >= honest.min(axis=0) - 1e-6).all(), (name, huge, dtype)
                        assert (result <= honest.max(axis=0) + 1e-6).all(), (name, huge, dtype)


def test_norm_bounding_bounds_each_client() -> None:
    """A huge update counts as one of the median length; squares beyond float32 do not hide honest distances."""
    rows, weights = updates(11, 4)
    rows[3] *= 1e20
    result = norm_bounding(rows, np.ones(11))
    clip_norm = np.median(norms(rows))
    assert result.used == {"clip_norm": clip_norm}
    assert np.linalg.norm(result.vector) <= clip_norm
    assert result.clipped is not None
    assert result.clipped[3]
    half = norm_bounding(rows, weights, clip_factor=0.5)
    assert half.used["clip_norm"] == pytest.approx(clip_norm / 2)
    rows = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
    expected = definitions.krum_scores(definitions.numbers(rows), 2)
    with_huge = np.concatenate([rows, np.full((1, 4), 1e30, np.float32)])
    np.testing.assert_allclose(krum_scores(with_huge, 3)[:9], expected, rtol=1e-5)
    tiny = krum_scores(rows * np.float32(1e-25), 2)
    np.testing.assert_allclose(tiny * 1e50, expected, rtol=1e-4)


def test_identical_updates_give_that_update_and_ties_go_to_the_first() -> None:
    """Of two that are each other's only neighbour, too."""
    for rule in RULES.values():
        for dtype in [np.float32, np.float64]:
            for value in [0.0, 0.1, -1e20]:
                rows = np.full((11, 5), value, dtype)
                np.testing.assert_allclose(rule(rows, 2), rows[0].astype(np.float64), rtol=1e-6)
    for dtype in (np.float32, np.float64):
        assert np.argmax(krum(np.full((7, 3), 0.1, dtype), 1).shares) == 0
        rows, _ = updates(2, 30, dtype)
        assert krum(rows, 0).shares.tolist() == [1.0, 0.0]
        assert multi_krum(np.full((5, 2), 0.3, dtype), np.ones(5), 1).shares.tolist() == [0.25] * 4 + [0.0]


def test_the_smallest_rounds() -> None:
    """One client's update is the result; two or three give something between theirs; too large a beta is refused."""
    for name, rule in RULES.items():
        for n, dim in [(1, 1), (1, 5), (2, 1), (3, 2)]:
            rows, _ = updates(n, dim)
            result = rule(rows, 0)
            assert result.dtype == np.float64, (name, n, dim)
            assert result.shape == (dim,), (name, n, dim)
            if n == 1:
                np.testing.assert_allclose(result, rows[0])
            if name != "norm-bounding":
                assert (result >= rows.min(axis=0) - 1e-9).all(), (name, n, dim)
                assert (result <= rows.max(axis=0) + 1e-9).all(), (name, n, dim)
    for beta in [-1, 3, 4]:
        with pytest.raises(ValueError, match="2 \\* beta must be below n"):
            trimmed_mean(np.zeros((6, 2)), np.ones(6), beta)
    with pytest.raises(ValueError, match="4 \\* m must be below n"):
        bulyan(np.zeros((8, 2)), 2)
    rows, weights = updates(23, 7, np.float32)
    rows.setflags(write=False)
    weights.setflags(write=False)
    for rule in RULES.values():
        rule(rows, 5)
    trimmed_mean(rows, weights, 5)
    median(rows, weights)


def test_five_thousand_clients() -> None:
    """At small d every rule is still a matter of a second, and right in float32 as in float64."""
    for name, rule in RULES.items():
        n = 5_000 if name != "bulyan" else 1_500
        rows, _ = updates(n, 3, np.float32)
        result = rule(rows, n // 5)
        np.testing.assert_allclose(result, rule(rows.astype(np.float64), n // 5), atol=1e-5)


def test_shares_add_up() -> None:
    """What each update has of the result: one in all, less what was clipped off; equal values share what is kept."""
    rows, weights = updates(23, 7)
    for result in (
        weighted_mean(rows, weights),
        krum(rows, 5),
        multi_krum(rows, weights, 5),
        trimmed_mean(rows, weights, 5, with_shares=True),
        median(rows, weights, with_shares=True),
        bulyan(rows, 5),
        geometric_median(rows, weights),
    ):
        assert result.shares is not None
        assert math.isclose(result.shares.sum(), 1.0)
    for result in (weighted_mean(rows, weights), multi_krum(rows, weights, 5), norm_bounding(rows, weights)):
        np.testing.assert_allclose(result.shares @ rows, result.vector, atol=1e-12)
    assert 0.5 < norm_bounding(rows, weights).shares.sum() < 1.0
    assert centred_clipping(rows, weights).shares.sum() < 1.0
    rows = np.array([[1.0], [1.0], [1.0], [5.0], [9.0]])
    result = trimmed_mean(rows, np.ones(5), 2, with_shares=True)
    assert result.vector.tolist() == [1.0]
    np.testing.assert_allclose(result.shares, [1 / 3, 1 / 3, 1 / 3, 0, 0])
    np.testing.assert_allclose(median(rows, np.ones(5), with_shares=True).shares, [1 / 3, 1 / 3, 1 / 3, 0, 0])


def chosen_by_definition(rows: np.ndarray, m: int) -> set[int]:
    """Apply Krum repeatedly to the remaining rows, and compute each score from the start."""
    distances = ((rows[:, None] - rows[None]) ** 2).sum(axis=-1)
    np.fill_diagonal(distances, np.inf)
    left, chosen = list(range(len(rows))), set()
    for _ in range(len(rows) - 2 * m):
        n_near = max(1, len(left) - m - 2)
        scores = np.array([np.sort(distances[i, left])[:n_near].sum() for i in left])
        best = left[int(scores.argmin()) if n_near > 1 else least(scores)]
        left.remove(best)
        chosen.add(best)
    return chosen


def test_equal_distances_are_counted_once() -> None:
    """Whole numbers, of which every sum is exact and many are equal; some updates are copies of each other."""
    for dtype in [np.float32, np.float64]:
        for distinct in [2, 9]:
            for n, dim, m in [(31, 35, 5), (48, 31, 5), (70, 41, 3), (92, 10, 1), (106, 16, 2)]:
                for seed in range(4):
                    rng = np.random.default_rng([n, seed])
                    rows = rng.integers(0, distinct, size=(n, dim)).astype(np.float64)
                    rows[: n // 6] = rows[-1]
                    found = bulyan(rows.astype(dtype), m).shares
                    assert found is not None, (dtype, distinct, n, dim, m)
                    assert set(np.flatnonzero(found).tolist()) == chosen_by_definition(rows, m)
