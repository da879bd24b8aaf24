"""Credits of all clients together speak for a model only if they do without those of the most favourable tenth."""

import math

import numpy as np
import pytest

from foltr.core.learning.credits import LIARS, OPENS_AT, STAKES, Credits, pooled


def test_a_bet_by_hand() -> None:
    """A fourth of each stake's gain. Each client counts by the number of its lists, the most favourable not at all."""
    assert (Credits().score, Credits().growth) == (0.0, 1.0)
    some = Credits(3.0, 4.0)
    assert some.score == 3.0 / 2.0
    assert some.growth == pytest.approx(sum(math.exp(s * 3.0 - s * s * 4.0 / 2) for s in STAKES) / 4)
    assert math.isfinite(Credits(1e9, 1.0).growth)
    totals, squares = np.array([3.0, 1.0, 2.0, -1.0]), np.full(4, 4.0)
    assert pooled(totals, squares) == (1.0 + 2.0 - 1.0, 16.0)
    assert pooled(-totals, squares) == (-3.0 - 2.0 - 1.0, 16.0)
    assert pooled(np.array([-9.0, 2.0, 3.0]), squares[:3]) == (-2.0 + 2.0, 12.0), "-9 counts like the best of the rest"
    assert pooled(np.array([9.0]), np.array([9.0])) == pooled(np.empty(0), np.empty(0)) == Credits()
    assert pooled(np.array([3.0, 2.0, 100.0]), np.array([4.0, 4.0, 400.0])) == (1.0 + 2.0, 12.0)
    honest = np.full(90, 1.0)
    totals = np.concatenate([honest, np.full(10, -1e9)])
    assert pooled(totals, np.full(100, 2.0)).total == 90 - 10 - 10


@pytest.mark.parametrize("n", [8, 100, 1000])
def test_a_tenth_of_liars_adds_nothing_for_the_model(n: int) -> None:
    """The total is no larger than the sum over the honest, if each of these is above 0."""
    rng = np.random.default_rng(n)
    n_liars = math.ceil(LIARS * n)
    for claimed in (1.0, 50.0, 1e9):
        honest = rng.uniform(0.0, 3.0, n - n_liars)
        totals = np.concatenate([honest, np.full(n_liars, claimed)])
        squares = np.concatenate([np.full(n - n_liars, 4.0), np.full(n_liars, 1e-9)])
        assert pooled(totals, squares).total <= honest.sum() + 1e-9


@pytest.mark.parametrize(("n", "n_liars"), [(8, 0), (8, 1), (100, 10), (1000, 100)])
def test_at_most_one_federation_in_a_hundred_believes_in_a_model_that_is_no_better(n: int, n_liars: int) -> None:
    """Hundreds of federations, looked at after every round; liars claim all they can."""
    rng = np.random.default_rng(7)
    n_federations, n_rounds = (600, 100) if n == 8 else (200, 20)
    n_fooled = 0
    for _ in range(n_federations):
        weights = 1.0 / rng.integers(1, 6, (n_rounds, n))
        credits_ = rng.choice([-1.0, 1.0], (n_rounds, n)) * weights
        credits_[:, :n_liars], weights[:, :n_liars] = 5.0, 1.0
        totals, squares = np.cumsum(credits_, axis=0), np.cumsum(weights**2, axis=0)
        n_fooled += any(pooled(*row).growth >= OPENS_AT for row in zip(totals, squares, strict=True))
    assert n_fooled <= 0.01 * n_federations
