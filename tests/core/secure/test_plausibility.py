"""The longest plausible sum: longer than honest ones, and not by much."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

from foltr.core.secure.noise import draw_gaussian, draw_laplace
from foltr.core.secure.plausibility import is_plausible, longest_gaussian, longest_laplace
from foltr.core.secure.polya import draw_polya_share

ENTROPY = np.random.default_rng(5).bytes
N_SUMS = 300


def drawn(draw: Callable, noises: int, dim: int, size: int) -> np.ndarray:
    """(N_SUMS, dim): sums of so many noises."""
    return sum(draw(N_SUMS * dim, size, ENTROPY) for _ in range(noises)).reshape(N_SUMS, dim).astype(np.float64)


def gauss_tail(lengths: np.ndarray) -> float:
    """Where the normal distribution would have its quantile of 1 - 10^-9: six standard deviations from the mean."""
    return float(lengths.mean() + 6.0 * lengths.std())


def test_gaussian_noise_is_shorter_than_the_bound():
    """In each of many draws, as is Laplace noise; with many coordinates the bound is near the tail's expected end."""
    for dim, noises in itertools.product([1, 46, 300], [1, 2, 4]):
        lengths = np.sqrt(np.square(drawn(draw_gaussian, noises, dim, 10_000)).sum(axis=1))
        longest = longest_gaussian(dim, 10_000, noises)
        assert lengths.max() < longest, (dim, noises)
        assert dim == 1 or longest < 1.3 * gauss_tail(lengths), (dim, noises)
        for scale in [2, 640]:
            lengths = np.abs(drawn(draw_laplace, noises, dim, scale)).sum(axis=1)
            longest = longest_laplace(dim, scale, noises)
            assert lengths.max() < longest, (dim, noises, scale)
            assert dim == 1 or longest < (1.4 if scale > 2 else 2.0) * gauss_tail(lengths), (dim, noises, scale)


def test_the_sizes_of_several_laplace_numbers_are_bounded_by_their_mean():
    """With many coordinates 1.5 scales for two; ninety clients with shares of 60 are bounded as two noises."""
    assert longest_laplace(10**8, 10**4, 2) == pytest.approx(1.5e12, rel=0.02)
    assert longest_laplace(10**8, 10**4, 1) == pytest.approx(1.0e12, rel=0.02)
    dim, scale = 46, 100
    noise = sum(draw_polya_share(dim, scale, 60, ENTROPY) for _ in range(90))
    assert np.abs(noise).sum() < longest_laplace(dim, scale, 1.5) == longest_laplace(dim, scale, 2)


@pytest.mark.parametrize(("mechanism", "noise"), [("gaussian", 622_754), ("gamma", 640)])
def test_an_honest_sum_is_plausible_and_one_beyond_is_not(mechanism, noise):
    """All clients the same way, as far as they may; one number more than the noise explains is too far."""
    dim, n, bound = 136, 100, 256
    honest = np.zeros(dim, np.int64)
    honest[0] = n * bound
    draw = draw_gaussian if mechanism == "gaussian" else draw_laplace
    terms = {"n_clients": n, "bound": bound, "noise": noise, "noises": 2.0}
    assert is_plausible(honest + draw(dim, noise, ENTROPY) + draw(dim, noise, ENTROPY), mechanism, **terms)
    longest = longest_gaussian(dim, noise, 2) if mechanism == "gaussian" else longest_laplace(dim, noise, 2)
    for beyond, expected in ((math.floor(longest), True), (math.floor(longest) + 1, False)):
        far = np.zeros(dim, np.int64)
        far[3] = -(n * bound + beyond)
        assert is_plausible(far, mechanism, **terms) is expected
