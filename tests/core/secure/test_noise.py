"""The noise of helpers has the distribution that the accounting counts on."""

import numpy as np
import pytest
from support.chi_squared import discrete_gaussian, discrete_laplace, p_value

from foltr.core.errors import SettingsError
from foltr.core.secure.noise import LARGEST_SCALE, LARGEST_VARIANCE, draw_gaussian, draw_laplace

FEW, MANY = 100_000, 1_000_000
# Sigma of epsilon 8 in 20 participations with C_int = 256; and those where the lattice shows.
VARIANCES = [1, 2, 100, 622_754]
SCALES = [1, 2, 10, 640]


def test_noise_follows_its_distribution(rng):
    """By the chi-squared test of a hundred thousand, which sees a sigma that is a tenth too small."""
    for variance in VARIANCES:
        assert p_value(draw_gaussian(FEW, variance, rng.bytes), discrete_gaussian(variance)) > 1e-3, variance
    for scale in SCALES:
        assert p_value(draw_laplace(FEW, scale, rng.bytes), discrete_laplace(scale)) > 1e-3, scale
    assert p_value(draw_gaussian(FEW, 81, rng.bytes), discrete_gaussian(100)) < 1e-9
    assert p_value(draw_laplace(FEW, 9, rng.bytes), discrete_laplace(10)) < 1e-9


@pytest.mark.nightly
@pytest.mark.parametrize(("variance", "scale"), [(2, 2), (622_754, 640)])
def test_a_million_numbers_of_noise_follow_their_distribution(rng, variance, scale):
    assert p_value(draw_gaussian(MANY, variance, rng.bytes), discrete_gaussian(variance)) > 1e-3
    assert p_value(draw_laplace(MANY, scale, rng.bytes), discrete_laplace(scale)) > 1e-3


@pytest.mark.parametrize("draw", [draw_gaussian, draw_laplace])
def test_noise_is_as_long_as_asked_and_follows_from_the_bytes(draw):
    """The same bytes give the same noise; without any given, it is the system's, and never the same."""
    for size in (0, 1, 7, 1000):
        assert draw(size, 1000).shape == (size,)
    seeded = [draw(100, 1000, np.random.default_rng(5).bytes).tolist() for _ in range(2)]
    assert seeded[0] == seeded[1]
    assert draw(100, 1000).tolist() != draw(100, 1000).tolist()


def test_noise_of_the_largest_size_stays_within_its_bits(rng):
    """A tail of fifty deviations has no place for an overflow; noise without a size is refused."""
    gaussian = draw_gaussian(5000, LARGEST_VARIANCE, rng.bytes)
    assert gaussian.std() == pytest.approx(LARGEST_VARIANCE**0.5, rel=0.05)
    laplace = draw_laplace(5000, LARGEST_SCALE, rng.bytes)
    assert laplace.std() == pytest.approx(2**0.5 * LARGEST_SCALE, rel=0.08)
    for value in [0, -1, 2**51]:
        with pytest.raises(SettingsError, match="variance must be from 1"):
            draw_gaussian(1, value)
        with pytest.raises(SettingsError, match="scale must be from 1"):
            draw_laplace(1, value)
