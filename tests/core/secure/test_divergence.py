"""The audit passes mechanisms that keep their claims, and finds the usual mistakes."""

from dataclasses import replace

import numpy as np
import pytest
import scipy
from support.divergence_audit import audit, lower_bound

from foltr.core.secure.accounting import gaussian_variance, laplace_scale, rho_for
from foltr.core.secure.encoding import encode_l2
from foltr.core.secure.mechanisms import gamma_mechanism, gaussian_mechanism
from foltr.core.secure.noise import draw_gaussian, draw_laplace
from foltr.core.secure.polya import draw_polya_share

BOUND, K, EPSILON, DELTA = 256, 20, 8.0, 1e-6
VARIANCE = gaussian_variance(BOUND, rho_for(EPSILON, DELTA), K)
SCALE = laplace_scale(BOUND, EPSILON, K)
GAUSSIAN = gaussian_mechanism(BOUND, VARIANCE, DELTA)
GAMMA = gamma_mechanism(BOUND, SCALE)


def gaussian_noise(variance):
    return replace(GAUSSIAN, draw_noise=lambda size, entropy: draw_gaussian(size, variance, entropy))


def laplace_noise(scale):
    return replace(GAMMA, draw_noise=lambda size, entropy: draw_laplace(size, scale, entropy))


def shares(n_arrived, n_shares):
    """Noise by clients, so many of them with shares that are made for so many."""

    def draw(size, entropy):
        return sum(draw_polya_share(size, SCALE, n_shares, entropy) for _ in range(n_arrived))

    return replace(GAMMA, draw_noise=draw)


def mean_of_two_answers(size, entropy):
    """What is left of the noise where a helper that is asked twice draws it twice, and both sums are released."""
    return (draw_gaussian(size, VARIANCE, entropy) + draw_gaussian(size, VARIANCE, entropy)) // 2


def clipped_by_the_largest(update, clip_norm, _entropy):
    """Each number for itself, as if the norm was that of the largest."""
    return np.rint(np.clip(update, -clip_norm, clip_norm) * BOUND / clip_norm).astype(np.int64)


def clipped_by_l2(update, clip_norm, entropy):
    return encode_l2(update, clip_norm, BOUND, entropy)


def uncharged(*weights):
    return replace(gaussian_mechanism(BOUND, VARIANCE, DELTA, *weights), claimed_delta=GAUSSIAN.claimed_delta)


WEIGHTS = {"vote_weight": 64, "evaluation_weight": 32, "credit_weight": 64}
EVALUATING = gaussian_mechanism(
    BOUND, gaussian_variance(BOUND, rho_for(EPSILON, DELTA), K, **WEIGHTS), DELTA, **WEIGHTS
)
HALF_VARIANCE = gaussian_variance(BOUND // 2, rho_for(EPSILON, DELTA), K)
VOTING = gaussian_mechanism(BOUND, gaussian_variance(BOUND, rho_for(EPSILON, DELTA), K, vote_weight=64), DELTA, 64)


def test_a_mechanism_that_keeps_its_claim_passes(rng):
    """At each epsilon, in both directions, for both inputs; and what was measured is near the claim in one number."""
    for mechanism in [GAUSSIAN, GAMMA, gamma_mechanism(BOUND, SCALE, 5), VOTING, EVALUATING]:
        findings = audit(mechanism, 60_000, rng.bytes)
        assert len(findings) == 2 * 2 * 3, mechanism
        assert all(finding.holds for finding in findings), mechanism
        at_zero = findings[0]
        assert (at_zero.dim, at_zero.epsilon) == (1, 0.0), mechanism
        assert at_zero.measured == pytest.approx(at_zero.claimed, abs=0.03), mechanism
        assert at_zero.at_least < at_zero.measured, mechanism


MISTAKES = {
    "sigma a tenth too small": (gaussian_noise(int(VARIANCE * 0.81)), 800_000, 1),
    "scale a tenth too small": (laplace_noise(int(SCALE * 0.9)), 1_200_000, 1),
    "gaussian noise for half the sensitivity": (gaussian_noise(HALF_VARIANCE), 100_000, 1),
    "laplace noise for half the sensitivity": (laplace_noise(laplace_scale(BOUND // 2, EPSILON, K)), 100_000, 1),
    "gaussian noise after a clip of each number": (replace(GAUSSIAN, encode=clipped_by_the_largest), 100_000, 4),
    "laplace noise after an L2 clip": (replace(GAMMA, encode=clipped_by_l2), 600_000, 4),
    "shares of shape 1 / (2t)": (shares(5, 10), 50_000, 1),
    "one of two shares missing": (shares(1, 2), 50_000, 1),
    "noise redrawn for a repeated question": (replace(GAUSSIAN, draw_noise=mean_of_two_answers), 100_000, 1),
    "a vote as long as the vector, for which nobody was charged": (uncharged(BOUND), 100_000, 1),
    "an evaluation as long as the vector, for which nobody was charged": (uncharged(0, BOUND), 100_000, 1),
    "no noise": (replace(GAUSSIAN, draw_noise=lambda size, _: np.zeros(size, np.int64)), 10_000, 1),
}


# What only so many sums show is for the night.
MANY = 500_000


@pytest.mark.parametrize(
    "mistake", [pytest.param(name, marks=[pytest.mark.nightly] * (n > MANY)) for name, (_, n, _) in MISTAKES.items()]
)
def test_a_mistake_is_found(mistake, rng):
    mechanism, n_sums, dim = MISTAKES[mistake]
    assert not all(finding.holds for finding in audit(mechanism, n_sums, rng.bytes, dims=(dim,)))


def test_a_bound_on_a_probability_is_below_the_exact_one():
    """Clopper & Pearson's (1934), which is the tightest that always holds; and not far below it."""
    for n in [10, 1000, 100_000]:
        for share in [0.0, 0.001, 0.3, 1.0]:
            count, doubt = int(share * n), 1e-7
            exact = 0.0 if count == 0 else float(scipy.stats.beta.ppf(doubt, count, n - count + 1))
            bound = lower_bound(count, n, doubt)
            assert bound <= exact + 1e-12, (n, share)
            assert bound == pytest.approx(exact, abs=3 / np.sqrt(n)), (n, share)
    assert lower_bound(50, 50, 1e-6) == pytest.approx(1e-6 ** (1 / 50))
