"""What mechanisms claim, beside what is known of their divergences in closed form."""

import math

import numpy as np
import pytest

from foltr.core.secure.accounting import gaussian_variance, rho_for
from foltr.core.secure.mechanisms import gamma_mechanism, gaussian_delta, gaussian_mechanism, pure_delta

VARIANCE = gaussian_variance(256, rho_for(8.0, 1e-6), 20)


def normal_above(x: float) -> float:
    return math.erfc(x / math.sqrt(2)) / 2


def test_claims_are_those_of_known_divergences():
    """Balle & Wang (ICML 2018); of two rows of weights where the lattice shows; randomised response."""
    for epsilon in [0.0, 0.3, 0.756, 1.5]:
        ratio = 256 / math.sqrt(VARIANCE)
        above, below = normal_above(epsilon / ratio - ratio / 2), normal_above(epsilon / ratio + ratio / 2)
        expected = above - math.exp(epsilon) * below
        assert gaussian_delta(256, VARIANCE, epsilon) == pytest.approx(expected, rel=1e-4, abs=1e-9), epsilon
    weights = [math.exp(-(x**2) / 2) for x in range(-10, 12)]
    moved = [math.exp(-((x - 1) ** 2) / 2) for x in range(-10, 12)]
    distance = sum(abs(a - b) for a, b in zip(weights, moved, strict=True)) / 2 / math.sqrt(2 * math.pi)
    assert gaussian_delta(1, 1, 0.0) == pytest.approx(distance, abs=1e-6)
    assert pure_delta(1.0, 0.0) == pytest.approx((math.e - 1) / (math.e + 1))
    assert pure_delta(1.0, 1.0) == pure_delta(1.0, 2.0) == 0.0


def test_a_vote_is_part_of_what_is_encoded_and_claimed(rng):
    """The longest vote beside the longest vector. Of pure epsilon a participation has a twentieth, of Gaussian more."""
    voting = gaussian_mechanism(256, VARIANCE, 1e-6, 64)
    encoded = voting.encode(np.full(4, 9.0), 1.0, rng.bytes)
    assert encoded.tolist() == [128, 128, 128, 128, 64, 0] == voting.longest(4).tolist()
    assert voting.epsilon > gaussian_mechanism(256, VARIANCE, 1e-6).epsilon
    enough = gaussian_mechanism(256, math.ceil(VARIANCE * 17 / 16), 1e-6, 64)
    assert enough.epsilon == pytest.approx(gaussian_mechanism(256, VARIANCE, 1e-6).epsilon, rel=1e-5)
    # The norm is 263.88, and what is claimed is of the next whole number.
    assert enough.claimed_delta(1.0) == gaussian_delta(264, math.ceil(VARIANCE * 17 / 16), 1.0)
    assert gamma_mechanism(256, 640).epsilon == 8 / 20
    assert gaussian_mechanism(256, VARIANCE, 1e-6).epsilon == pytest.approx(1.5127, abs=1e-3)
    shares = gamma_mechanism(256, 50, 20).draw_noise(50_000, rng.bytes)
    assert shares.std() == pytest.approx(gamma_mechanism(256, 50).draw_noise(50_000, rng.bytes).std(), rel=0.03)


@pytest.mark.parametrize("mechanism", [gaussian_mechanism(256, VARIANCE, 1e-6), gamma_mechanism(256, 640)])
def test_the_loss_is_larger_with_the_vector(mechanism, rng):
    vector = np.full(4, 64)
    noise = mechanism.draw_noise(40_000, rng.bytes).reshape(-1, 4)
    assert mechanism.loss(noise + vector, vector).mean() > mechanism.loss(noise, vector).mean() + 1
