"""What noise guarantees: from an epsilon for so many participations to the noise of each, and back.

The relation between neighbours is zero-out: a client's vector in one participation against zeros in its place. Whether
it took part, and when, is public. Replacing a vector by another one moves the sum twice as far. Random selection for
rounds is not counted. An attacker may choose what all other clients send, and see what all helpers but one know; then
only the noise of the one honest helper counts, so each helper adds the whole of it.

Gaussian noise is accounted for in zero-concentrated differential privacy (zCDP): Bun & Steinke, "Concentrated
differential privacy: simplifications, extensions, and lower bounds" (TCC 2016). Noise N_Z(0, sigma^2) in each
coordinate of an integer vector with ||q||_2 <= C gives rho = C^2 / (2 sigma^2) (Canonne, Kamath & Steinke 2020, section
2), and k participations give k times as much. Laplace noise is accounted for in pure epsilon: with ||q||_1 <= C,
discrete Laplace noise of scale s gives C / s, and k participations k times as much.

With votes (`N_VOTES`), a client's vector has at most one vote of weight v beside its integers, with evaluations
(`N_EVALUATION`) three numbers that are 0 or u each, and with credits one number that is -w, 0 or w, so that C^2 + v^2 +
3 u^2 + w^2 replaces C^2 in rho.

If each message proves the norm of its vector, its verifiers learn 96 projections of the vector behind discrete Gaussian
masks. They cost `norm_proof_rho` of zCDP with a failure probability of `NORM_PROOF_DELTA`, in each participation and in
addition to the noise: the noise gets the rest of the budget. docs/privacy.md has the argument.
"""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Final

from foltr.core.errors import SettingsError
from foltr.core.secure.field import MODULUS

DEFAULT_EPSILON: Final = 8.0
LEAST_EPSILON: Final = 1e-6
MOST_EPSILON: Final = 1e6
LEAST_DELTA: Final = 1e-18
DEFAULT_DELTA: Final = 1e-6
DEFAULT_PARTICIPATIONS: Final = 20

N_SQUARES: Final = 4
"""How many numbers go with a vector in its norm proof; their squares fill the gap between its norm and the bound."""
N_VOTES: Final = 2
"""Worse, and better: votes go with a vector into the sum. An honest client has at most one at the weight of a vote."""
N_EVALUATION: Final = 3
"""Clicked, reward, and base reward: they follow the votes, and an honest client may have all at their weight."""
N_CREDITS: Final = 1
"""For the model, or against it: it follows the evaluation."""
LARGEST_PROJECTION: Final = math.isqrt(MODULUS // 800)
"""T: a masked projection farther from zero shows a vector that is too long."""
MASK_DEVIATION: Final = LARGEST_PROJECTION // 8
"""sigma_y, of the mask of a projection."""
NORM_PROOF_DELTA: Final = 2.0**-39
"""delta_z of one participation: for projections longer than R usually makes them, and for cut-off masks."""
LARGEST_SHARE_OF_PROOFS: Final = Fraction(1, 100)
"""Of a participation's rho: proofs must cost almost nothing beside the sum, or are not used."""
_ROOM_OF_MASKS: Final = 80
"""How many times longer than any projection T must be; otherwise masks would be cut off noticeably."""

# Steps of a search that narrows by a fixed share each: from 1e9 to the last digit of a float.
_STEPS = 200
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0


def epsilon_of(rho: float, delta: float) -> float:
    """Return an epsilon so that rho-zCDP implies (epsilon, delta)-differential privacy.

    The least over alpha > 1 of rho alpha + ln(1 / (alpha delta)) / (alpha - 1) + ln(1 - 1 / alpha) (Canonne, Kamath &
    Steinke 2020, section 2). Each alpha gives a true epsilon, so an inexact search only claims less.

    Args:
        rho: above 0.
        delta: between 0 and 1.
    """
    _positive("rho", rho)
    _check_delta(delta)

    def bound(log_excess: float) -> float:
        excess = math.exp(log_excess)
        alpha = 1.0 + excess
        return rho * alpha - math.log(alpha * delta) / excess + math.log(excess / alpha)

    return max(0.0, _least(bound, -20.0, 40.0))


@lru_cache(maxsize=64)
def rho_for(epsilon: float, delta: float) -> float:
    """Return the largest rho, up to rounding and up to epsilon itself, with which `epsilon_of` is at most epsilon."""
    _positive("epsilon", epsilon)
    _check_delta(delta)
    allowed, excessive = 0.0, epsilon
    for _ in range(_STEPS):
        middle = (allowed + excessive) / 2.0
        if not allowed < middle < excessive:
            break
        allowed, excessive = (middle, excessive) if epsilon_of(middle, delta) <= epsilon else (allowed, middle)
    if allowed == 0.0:
        raise SettingsError(f"epsilon {epsilon:g} is too small to be reached with delta {delta:g}")
    return allowed


def default_vote_weight(bound: int) -> int:
    """Return the default v, and w, a quarter of C: noise grows by 3 % with each.

    Args:
        bound: C.
    """
    return max(1, bound // 4)


def default_evaluation_weight(bound: int) -> int:
    """Return the default u, an eighth of C: noise grows by 2 % with it.

    Args:
        bound: C.
    """
    return max(1, bound // 8)


def least_variance(
    bound: int,
    *,
    epsilon: float,
    delta: float,
    participations: int,
    norm_proofs: bool = False,
    vote_weight: int = 0,
    evaluation_weight: int = 0,
    credit_weight: int = 0,
) -> int:
    """Return sigma^2 of each helper's noise, so that so many participations, with their proofs, keep the guarantee.

    Args:
        bound: C, of the L2 norm of a client's integers.
        epsilon, delta: for all participations together.
        participations: k.
        norm_proofs: whether each message proves its vector's norm.
        vote_weight, evaluation_weight, credit_weight: v, u and w; 0 without votes, evaluations, or credits.

    Raises:
        SettingsError: the proofs leave too little of the budget, or nothing.
    """
    weights = vote_weight, evaluation_weight, credit_weight
    if not norm_proofs:
        return gaussian_variance(bound, rho_for(epsilon, delta), participations, Fraction(0), *weights)
    rho = rho_for(epsilon, _delta_beside_proofs(delta, participations))
    _check_share_of_proofs(bound, Fraction(rho) / participations)
    return gaussian_variance(bound, rho, participations, norm_proof_rho(bound), *weights)


def least_scale(bound: int, *, epsilon: float, delta: float, participations: int, norm_proofs: bool = False) -> int:
    """Return the scale of each helper's Laplace noise, as `least_variance`; without proofs it needs no delta."""
    if not norm_proofs:
        return laplace_scale(bound, epsilon, participations)
    _check_counts(bound, participations)
    left = _delta_beside_proofs(delta, participations)
    _check_share_of_proofs(bound, (Fraction(_positive("epsilon", epsilon)) / participations) ** 2 / 2)
    spent = epsilon_of(float(participations * norm_proof_rho(bound)), left)
    if spent >= epsilon:
        raise SettingsError(
            f"norm_proof: {participations:,} participations' proofs cost epsilon {spent:.2g} of {epsilon:g} with what "
            "they leave of delta; choose a larger epsilon or delta, or --norm-proof none"
        )
    return laplace_scale(bound, epsilon - spent, participations)


def norm_proof_rho(bound: int) -> Fraction:
    """Return rho_z, the cost of one participation's norm proof: 255 C^2 / sigma_y^2."""
    return Fraction(255 * bound * bound, MASK_DEVIATION**2)


def check_masks(dim: int, bound: int) -> None:
    """Raise SettingsError if vectors of so many numbers and of this norm are too long for the masks of norm proofs.

    Args:
        dim: d; the squares go with them, of the same norm together.
        bound: C.
    """
    if (dim + N_SQUARES) * (bound * _ROOM_OF_MASKS) ** 2 > LARGEST_PROJECTION**2:
        raise SettingsError(
            f"norm_proof: vectors of {dim:,} numbers and of a norm of {bound:,} are too long for the masks of norm "
            "proofs; choose --norm-proof none, or a smaller --dim"
        )


def gaussian_variance(
    bound: int,
    rho: float,
    participations: int,
    proof_rho: Fraction = Fraction(0),
    vote_weight: int = 0,
    evaluation_weight: int = 0,
    credit_weight: int = 0,
) -> int:
    """Return sigma^2 of each helper's noise, so that so many participations cost at most rho.

    The least integer not below (C^2 + v^2 + 3 u^2 + w^2) / (2 (rho / k - rho_z)), by fractions: rounding never errs on
    the wrong side.

    Args:
        bound: C, of the L2 norm of a client's integers.
        rho: for all participations together.
        participations: k.
        proof_rho: rho_z, what each costs beside the noise.
        vote_weight, evaluation_weight, credit_weight: v, u and w; 0 without votes, evaluations, or credits.
    """
    _check_counts(bound, participations)
    left = Fraction(_positive("rho", rho)) / participations - proof_rho
    squared = squared_sensitivity(bound, vote_weight, evaluation_weight, credit_weight)
    return math.ceil(Fraction(squared) / (2 * left))


def gaussian_rho(
    bound: int, variance: int, vote_weight: int = 0, evaluation_weight: int = 0, credit_weight: int = 0
) -> Fraction:
    """Return the rho of one participation under noise of this variance."""
    return Fraction(squared_sensitivity(bound, vote_weight, evaluation_weight, credit_weight), 2 * variance)


def squared_sensitivity(bound: int, vote_weight: int, evaluation_weight: int = 0, credit_weight: int = 0) -> int:
    """Return C^2 + v^2 + 3 u^2 + w^2, the largest square of an honest client's L2 norm.

    It has at most one vote. All numbers of its evaluation may be set: its user clicked, on the first document of both
    orders.

    Args:
        bound: C.
        vote_weight: v; 0 without votes.
        evaluation_weight: u; 0 without evaluations.
        credit_weight: w; 0 without credits.
    """
    weights = {"vote_weight": vote_weight, "evaluation_weight": evaluation_weight, "credit_weight": credit_weight}
    for name, weight in weights.items():
        if weight < 0:
            raise SettingsError(f"{name} must be at least 0, not {weight}")
    return bound**2 + vote_weight**2 + N_EVALUATION * evaluation_weight**2 + N_CREDITS * credit_weight**2


def laplace_scale(bound: int, epsilon: float, participations: int) -> int:
    """Return the scale s of each helper's noise, so that so many participations cost at most this pure epsilon.

    The least integer not below C k / epsilon.

    Args:
        bound: C, of the L1 norm of a client's integers.
        epsilon: for all participations together.
        participations: k.
    """
    _check_counts(bound, participations)
    return math.ceil(Fraction(bound * participations) / Fraction(_positive("epsilon", epsilon)))


def laplace_epsilon(bound: int, scale: int) -> Fraction:
    """Return the pure epsilon of one participation under noise of this scale."""
    return Fraction(bound, scale)


def laplace_deviation(scale: int) -> float:
    """Return the standard deviation of discrete Laplace noise, sqrt(2 alpha) / (1 - alpha) for alpha = exp(-1 / s)."""
    return math.sqrt(2.0 * math.exp(-1.0 / scale)) / -math.expm1(-1.0 / scale)


def _least(function: Callable[[float], float], start: float, end: float) -> float:
    """Return the least value of a function that falls, then rises, by the golden section."""
    left, right = end - _GOLDEN * (end - start), start + _GOLDEN * (end - start)
    at_left, at_right = function(left), function(right)
    for _ in range(_STEPS):
        if at_left <= at_right:
            end, right, at_right = right, left, at_left
            left = end - _GOLDEN * (end - start)
            at_left = function(left)
        else:
            start, left, at_left = left, right, at_right
            right = start + _GOLDEN * (end - start)
            at_right = function(right)
    return min(at_left, at_right)


def _positive(name: str, value: float) -> float:
    if not (math.isfinite(value) and value > 0.0):
        raise SettingsError(f"{name} must be a finite number above 0, not {value}")
    return value


def _delta_beside_proofs(delta: float, participations: int) -> float:
    """Return the rest of delta for the noise."""
    _check_delta(delta)
    left = delta - participations * NORM_PROOF_DELTA
    if left <= 0.0:
        raise SettingsError(
            f"norm_proof: delta {delta:g} is no more than {participations:,} participations' proofs cost, "
            f"{participations * NORM_PROOF_DELTA:.2g}; choose a larger delta, fewer participations, or --norm-proof "
            "none"
        )
    return left


def _check_share_of_proofs(bound: int, rho: Fraction) -> None:
    """Refuse proofs that cost more than a hundredth of ``rho``, a participation's budget."""
    proof_rho = norm_proof_rho(bound)
    if proof_rho > LARGEST_SHARE_OF_PROOFS * rho:
        raise SettingsError(
            f"norm_proof: a proof costs rho {float(proof_rho):.2g}, and a participation may cost {float(rho):.2g}, of "
            "which proofs may take a hundredth; choose a larger epsilon, fewer participations, or --norm-proof none"
        )


def _check_delta(delta: float) -> None:
    if not 0.0 < delta < 1.0:
        raise SettingsError(f"delta must be between 0 and 1, not {delta}")


def _check_counts(bound: int, participations: int) -> None:
    if bound < 1 or participations < 1:
        raise SettingsError(f"bound and participations must be at least 1, not {bound} and {participations}")
