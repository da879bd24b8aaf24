"""From an epsilon to noise and back: the figures of the design, and that no rounding goes the wrong way."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from foltr.core.errors import SettingsError
from foltr.core.secure.accounting import (
    DEFAULT_DELTA,
    DEFAULT_EPSILON,
    DEFAULT_PARTICIPATIONS,
    LARGEST_PROJECTION,
    MASK_DEVIATION,
    NORM_PROOF_DELTA,
    check_masks,
    default_evaluation_weight,
    default_vote_weight,
    epsilon_of,
    gaussian_rho,
    gaussian_variance,
    laplace_deviation,
    laplace_epsilon,
    laplace_scale,
    least_scale,
    least_variance,
    norm_proof_rho,
    rho_for,
    squared_sensitivity,
)
from foltr.core.secure.ledger import laplace_charge, norm_proof_charge
from foltr.core.secure.noise import draw_laplace

ORDERS = (1 + np.logspace(-3, 4, 4000)).tolist()
ONLY_HERE = "dp-accounting is in the extra privacy, which nothing but this test needs"


def test_rho_of_the_usual_epsilons():
    """With delta a millionth, and back; without proofs the noise has all of it; delta is nothing to Laplace noise."""
    for epsilon, rho in [(1, 0.0244), (2, 0.0882), (4, 0.3111), (8, 1.0524)]:
        found = rho_for(epsilon, 1e-6)
        assert found == pytest.approx(rho, abs=6e-5), (epsilon, rho)
        assert epsilon_of(found, 1e-6) <= epsilon, (epsilon, rho)
        assert epsilon_of(found, 1e-6) == pytest.approx(epsilon, rel=1e-9), (epsilon, rho)
    rho = rho_for(DEFAULT_EPSILON, DEFAULT_DELTA)
    variance = gaussian_variance(256, rho, DEFAULT_PARTICIPATIONS)
    assert math.sqrt(variance) / 256 == pytest.approx(3.083, abs=1e-3)
    assert laplace_scale(256, DEFAULT_EPSILON, DEFAULT_PARTICIPATIONS) == 640 == 256 * 20 / 8
    promise = {"epsilon": 8.0, "participations": 20}
    assert least_variance(256, delta=1e-6, **promise) == gaussian_variance(256, rho_for(8.0, 1e-6), 20)
    assert least_scale(256, delta=1e-300, **promise) == 640


def test_noise_costs_no_more_than_was_allowed():
    """In fractions, over all participations; one less would cost more."""
    for bound in [1, 256, 566, 4000]:
        for participations in [1, 3, 20, 1000]:
            for epsilon in [0.1, 1.0, 8.0]:
                rho = rho_for(epsilon, 1e-6)
                variance = gaussian_variance(bound, rho, participations)
                assert participations * gaussian_rho(bound, variance) <= Fraction(rho), (bound, participations, epsilon)
                assert variance == 1 or participations * gaussian_rho(bound, variance - 1) > Fraction(rho)
                scale = laplace_scale(bound, epsilon, participations)
                assert participations * laplace_epsilon(bound, scale) <= Fraction(epsilon)
                assert scale == 1 or participations * laplace_epsilon(bound, scale - 1) > Fraction(epsilon)


def test_the_cost_of_a_norm_proof_and_the_longest_vector():
    """Rho_z at 136 and 20,000 numbers; the square root of (d + 4) C^2 is at most an eightieth of T."""
    assert LARGEST_PROJECTION == 151_850_024
    assert MASK_DEVIATION == 18_981_253
    assert norm_proof_rho(256) == Fraction(255 * 256**2, 18_981_253**2)
    assert float(norm_proof_rho(256)) == pytest.approx(4.6e-8, rel=0.01)
    assert float(norm_proof_rho(566)) == pytest.approx(2.3e-7, rel=0.02)
    longest = LARGEST_PROJECTION**2 // (80 * 256) ** 2 - 4
    check_masks(longest, 256)
    with pytest.raises(SettingsError, match="too long for the masks of norm proofs; choose --norm-proof none"):
        check_masks(longest + 1, 256)
    check_masks(474_000, 2754)


def test_noise_and_proofs_together_cost_no_more_than_was_allowed():
    """In fractions, over all participations, with the delta that the proofs leave; one less would cost more."""
    for bound in [256, 566, 700]:
        for participations in [1, 20, 200]:
            for epsilon in [2.0, 8.0]:
                promise = {"epsilon": epsilon, "delta": 1e-6, "participations": participations, "norm_proofs": True}
                left = 1e-6 - participations * NORM_PROOF_DELTA
                proofs, rho = participations * norm_proof_rho(bound), Fraction(rho_for(epsilon, left))
                variance = least_variance(bound, **promise)
                assert participations * gaussian_rho(bound, variance) + proofs <= rho, (bound, participations, epsilon)
                assert participations * gaussian_rho(bound, variance - 1) + proofs > rho
                scale, spent = least_scale(bound, **promise), epsilon_of(float(proofs), left)
                assert participations * laplace_epsilon(bound, scale) + Fraction(spent) <= Fraction(epsilon)
                assert participations * laplace_epsilon(bound, scale - 1) + Fraction(spent) > Fraction(epsilon)


def test_noise_covers_votes_and_evaluations():
    """An honest client's numbers have C^2 + v^2 + 3 u^2 at most: one unit of variance less would cost too much."""
    cases = [(votes, 0, proofs) for votes in (1, 64, 256) for proofs in (False, True)]
    cases += [(votes, evaluation, True) for votes in (0, 64) for evaluation in (1, 32, 256)]
    for votes, evaluation, norm_proofs in cases:
        promise = {"epsilon": 8.0, "delta": 1e-6, "participations": 20, "norm_proofs": norm_proofs}
        left = 1e-6 - 20 * NORM_PROOF_DELTA * norm_proofs
        proofs, rho = 20 * norm_proof_rho(256) * norm_proofs, Fraction(rho_for(8.0, left))
        squared = 256**2 + votes**2 + 3 * evaluation**2
        variance = least_variance(256, vote_weight=votes, evaluation_weight=evaluation, **promise)
        assert Fraction(20 * squared, 2 * variance) + proofs <= rho, (votes, evaluation, norm_proofs)
        assert Fraction(20 * squared, 2 * (variance - 1)) + proofs > rho, (votes, evaluation, norm_proofs)
        assert gaussian_rho(256, variance, votes, evaluation) == Fraction(squared, 2 * variance)


def test_the_weight_of_votes_and_evaluations_unless_told_otherwise():
    """A quarter of the bound, for which noise is 3 % longer, and an eighth."""
    assert [default_vote_weight(bound) for bound in (1, 256, 566)] == [1, 64, 141]
    promise = {"epsilon": 8.0, "delta": 1e-6, "participations": 20, "norm_proofs": True}
    ratio = least_variance(256, vote_weight=64, **promise) / least_variance(256, **promise)
    assert math.sqrt(ratio) == pytest.approx(1.031, abs=1e-3)
    assert [default_evaluation_weight(bound) for bound in (1, 256, 566)] == [1, 32, 70]
    for weights in ((-1, 0), (0, -1)):
        with pytest.raises(SettingsError, match="_weight must be at least 0, not -1"):
            squared_sensitivity(256, *weights)


def test_proofs_that_leave_too_little_are_refused():
    """With what to choose instead; also where hardly anything of delta is left; nor is there a promise of nothing."""
    for changed, words in [
        ({"delta": 3.6e-11}, "no more than 20 participations' proofs cost, 3.6e-11; choose a larger delta"),
        ({"epsilon": 0.05}, "of which proofs may take a hundredth; choose a larger epsilon"),
        ({"participations": 10_000}, "fewer participations, or --norm-proof none"),
    ]:
        for least in [least_variance, least_scale]:
            promise = {"epsilon": 0.5, "delta": 1e-6, "participations": 20, "norm_proofs": True}
            with pytest.raises(SettingsError, match=words):
                least(256, **promise | changed)
    promise = {"epsilon": 0.00305, "participations": 1, "norm_proofs": True}
    assert least_scale(256, delta=1e-6, **promise) > 0
    with pytest.raises(SettingsError, match=r"1 participations' proofs cost epsilon 0\.0031 of 0\.00305 with what"):
        least_scale(256, delta=NORM_PROOF_DELTA * (1 + 2**-50), **promise)
    for wrong in [
        lambda: epsilon_of(0.0, 1e-6),
        lambda: epsilon_of(math.nan, 1e-6),
        lambda: epsilon_of(1.0, 0.0),
        lambda: rho_for(1.0, 1.0),
        lambda: rho_for(math.inf, 1e-6),
        lambda: gaussian_variance(0, 1.0, 1),
        lambda: gaussian_variance(256, -1.0, 1),
        lambda: laplace_scale(256, 1.0, 0),
        lambda: laplace_scale(256, 0.0, 1),
    ]:
        with pytest.raises(SettingsError, match="must be"):
            wrong()


def test_no_order_gives_a_smaller_epsilon(rng):
    """The least of a million orders; what N(0, sigma^2) really gives (Balle & Wang, ICML 2018) is below it."""
    for rho in [1e-6, 0.01, 1.0, 30.0]:
        for delta in [1e-12, 1e-6, 0.01]:
            alpha = 1 + np.logspace(-7, 9, 1_000_000)
            bounds = rho * alpha + np.log(1 / (alpha * delta)) / (alpha - 1) + np.log1p(-1 / alpha)
            assert epsilon_of(rho, delta) <= max(0.0, bounds.min()) + 1e-9, (rho, delta)
            assert epsilon_of(rho, delta) == pytest.approx(max(0.0, bounds.min()), abs=1e-6), (rho, delta)
    assert epsilon_of(0.1, 1e-6) < epsilon_of(0.2, 1e-6) < epsilon_of(0.2, 1e-9)
    rho = rho_for(8.0, 1e-6)
    ratio = math.sqrt(2 * rho)  # C / sigma, if all participations were one
    above = math.erfc((8.0 / ratio - ratio / 2) / math.sqrt(2)) / 2
    below = math.erfc((8.0 / ratio + ratio / 2) / math.sqrt(2)) / 2
    assert 1e-8 < above - math.exp(8.0) * below < 1e-6
    assert draw_laplace(100_000, 50, rng.bytes).std() == pytest.approx(laplace_deviation(50), rel=0.02)
    assert laplace_deviation(10**6) == pytest.approx(math.sqrt(2) * 10**6)


def test_the_dp_accounting_library_says_the_same_of_noise_and_norm_proofs():
    """Google's, where it is installed: a proof is a Gaussian mechanism but for its delta; of Laplace less is found."""
    library = pytest.importorskip("dp_accounting", reason=ONLY_HERE)
    from dp_accounting import pld, rdp

    relation = library.NeighboringRelation.REPLACE_SPECIAL
    proof = library.GaussianDpEvent(1 / math.sqrt(2 * norm_proof_rho(256)))
    for epsilon, n in itertools.product([0.5, 2.0, 8.0], [1, 20]):
        promise = {"epsilon": epsilon, "delta": 1e-6, "participations": n, "norm_proofs": True}
        left = 1e-6 - n * NORM_PROOF_DELTA
        alone = rdp.RdpAccountant(ORDERS, relation)
        alone.compose(library.GaussianDpEvent(math.sqrt(gaussian_variance(256, rho_for(epsilon, 1e-6), n)) / 256), n)
        assert alone.get_epsilon(1e-6) == pytest.approx(epsilon, rel=1e-3)
        accountant = rdp.RdpAccountant(ORDERS, relation)
        accountant.compose(library.GaussianDpEvent(math.sqrt(least_variance(256, **promise)) / 256), n)
        assert accountant.compose(proof, n).get_epsilon(left) == pytest.approx(epsilon, rel=1e-3)
        scale = least_scale(256, **promise)
        exact = pld.PLDAccountant(relation).compose(library.LaplaceDpEvent(scale / 256), n)
        claimed = (laplace_charge(256, scale) + norm_proof_charge(256)).times(n).epsilon_at(1e-6)
        assert exact.compose(proof, n).get_epsilon(left) <= claimed <= epsilon
        if n == 1:
            assert claimed == pytest.approx(exact.get_epsilon(left), rel=1e-3), epsilon
