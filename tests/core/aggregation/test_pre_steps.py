"""Mixing and bucketing equal their definitions, and their shares lead back to the clients."""

import numpy as np
from support import rule_definitions as definitions

from foltr.core.aggregation.pre_steps import bucketing, nnm


def test_mixing_equals_its_definition(rng: np.random.Generator) -> None:
    """Also of updates with a large common part, with a huge one among them, and where all are alike."""
    for dtype in [np.float32, np.float64]:
        for shift in [0.0, 1e4]:
            rows = (rng.normal(size=(17, 5)) + shift).astype(dtype)
            mixed = nnm(rows, np.ones(17), 4)
            assert mixed.rows.dtype == dtype, (dtype, shift)
            expected = definitions.nnm(definitions.numbers(rows), 4)
            np.testing.assert_allclose(mixed.rows, expected, atol=1e-6 * (1 + shift))
            rows[3] = 1e30
            honest = [i for i in range(17) if i != 3]
            np.testing.assert_allclose(
                nnm(rows, np.ones(17), 4).rows[honest],
                np.array(definitions.nnm(definitions.numbers(rows), 4))[honest],
                atol=1e-6 * (1 + shift),
            )
    rows = np.full((9, 2), 0.1, np.float32)
    mixed = nnm(rows, np.ones(9), 3)
    np.testing.assert_allclose(mixed.rows, rows, rtol=1e-6)
    np.testing.assert_allclose(mixed.shares_of_updates(np.full(9, 1 / 9)).sum(), 1.0)


def test_shares_lead_back_to_the_updates(rng: np.random.Generator) -> None:
    """A result made of mixed rows is made of the updates with the shares that are told."""
    rows, weights = rng.normal(size=(11, 4)), rng.integers(1, 9, 11).astype(np.float64)
    for mixed in (nnm(rows, weights, 3), bucketing(rows, weights, 3, np.random.default_rng(5))):
        shares = rng.random(len(mixed.rows))
        shares /= shares.sum()
        np.testing.assert_allclose(mixed.shares_of_updates(shares) @ rows, shares @ mixed.rows)


def test_bucketing_keeps_the_weighted_mean(rng: np.random.Generator) -> None:
    """Buckets are weighted means that weigh what is in them; the generator shuffles them."""
    for bucket_size in [1, 2, 3, 11, 50]:
        rows, weights = rng.normal(size=(11, 4)), rng.integers(1, 9, 11).astype(np.float64)
        mixed = bucketing(rows, weights, bucket_size, np.random.default_rng(1))
        assert mixed.rows.shape == (-(-11 // bucket_size), 4), bucket_size
        assert mixed.weights.sum() == weights.sum(), bucket_size
        np.testing.assert_allclose(
            np.average(mixed.rows, axis=0, weights=mixed.weights), np.average(rows, axis=0, weights=weights)
        )
        for bucket, row in enumerate(mixed.rows):
            inside = mixed.row_of == bucket
            assert 1 <= inside.sum() <= bucket_size, bucket_size
            np.testing.assert_allclose(row, np.average(rows[inside], axis=0, weights=weights[inside]))
    rows = np.arange(40.0).reshape(20, 2)
    first, again, other = (bucketing(rows, np.ones(20), 2, np.random.default_rng(seed)).rows for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
