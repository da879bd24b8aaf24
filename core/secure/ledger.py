"""A client's lifetime spending, and whether it may take part again: arithmetic of charges, without a store.

Charges add up: rho of zero-concentrated differential privacy always does, and if each has a pure epsilon, so does that.
A pure epsilon is zCDP with rho = epsilon^2 / 2 (Bun & Steinke 2016, Proposition 1.4), so charges of different
mechanisms add up too. They are for life: a later policy counts what was spent under earlier ones.

A norm proof costs zCDP that fails with a probability, its delta. Probabilities add up as well, and an epsilon is
computed with the rest of a policy's delta.
"""

import math
from dataclasses import dataclass
from typing import Final

from foltr.core.secure.accounting import NORM_PROOF_DELTA, epsilon_of, gaussian_rho, laplace_epsilon, norm_proof_rho

_SLACK: Final = 1e-9
"""Relative. As many participations as a policy was made for cost exactly its epsilon, up to the last digits."""


@dataclass(frozen=True)
class Charge:
    """The common cost of some participations.

    Attributes:
        rho: of zCDP, of noise and norm proofs together.
        epsilon: the pure one of the noise alone; None if that of one of them gives none.
        proof_rho: the part of rho for norm proofs.
        delta: the probability that rho does not hold.
    """

    rho: float
    epsilon: float | None
    proof_rho: float = 0.0
    delta: float = 0.0

    def __add__(self, other: "Charge") -> "Charge":
        both_pure = self.epsilon is not None and other.epsilon is not None
        return Charge(
            self.rho + other.rho,
            (self.epsilon or 0.0) + (other.epsilon or 0.0) if both_pure else None,
            self.proof_rho + other.proof_rho,
            self.delta + other.delta,
        )

    def times(self, n: int) -> "Charge":
        """Return the cost of n participations of this charge."""
        epsilon = None if self.epsilon is None else n * self.epsilon
        return Charge(n * self.rho, epsilon, n * self.proof_rho, n * self.delta)

    def replacing(self) -> "Charge":
        """Return the charge if a vector is replaced by another one instead of by zeros: the sum moves twice as far.

        A norm proof costs the same: it is charged for any two vectors of one norm.
        """
        epsilon = None if self.epsilon is None else 2.0 * self.epsilon
        noise_rho = self.rho - self.proof_rho
        return Charge(4.0 * noise_rho + self.proof_rho, epsilon, self.proof_rho, self.delta)

    def epsilon_at(self, delta: float) -> float:
        """Return an epsilon that holds with this delta: the smaller one of the two ways to add up.

        It is infinite if nothing of delta is left for it.
        """
        if self.rho == 0.0:
            return 0.0
        left = delta - self.delta
        if left <= 0.0:
            return math.inf
        concentrated = epsilon_of(self.rho, left)
        if self.epsilon is None:
            return concentrated
        proofs = epsilon_of(self.proof_rho, left) if self.proof_rho > 0.0 else 0.0
        return min(self.epsilon + proofs, concentrated)


NOTHING: Final = Charge(0.0, 0.0)


@dataclass(frozen=True)
class Spent:
    """A client's spending.

    Attributes:
        last: the number of its last participation; 0 before the first.
        charge: of all up to that one.
    """

    last: int = 0
    charge: Charge = NOTHING


@dataclass(frozen=True)
class Allowance:
    """A policy's allowance for a client's life.

    Attributes:
        participations: k, the highest number of one.
        epsilon, delta: of all of them together.
        charge: of one under this policy.
        is_pure: epsilon is claimed without a delta. Once something without a pure epsilon was spent, that claim no
            longer holds, and delta counts.
    """

    participations: int
    epsilon: float
    delta: float
    charge: Charge
    is_pure: bool = False

    def epsilon_of(self, charge: Charge) -> float:
        """Return the share of the policy's epsilon that a charge uses."""
        if self.is_pure and charge.epsilon is not None and charge.delta == 0.0:
            return charge.epsilon
        return charge.epsilon_at(self.delta)


def gaussian_charge(
    bound: int, variance: int, vote_weight: int = 0, evaluation_weight: int = 0, credit_weight: int = 0
) -> Charge:
    """Return the cost of a participation under Gaussian noise of this variance.

    Args:
        bound: C_int, of the L2 norm of a client's integers.
        variance: sigma^2.
        vote_weight: v, of at most one vote with them; 0 without votes.
        evaluation_weight: u, of at most three numbers of an evaluation with them; 0 without evaluations.
        credit_weight: w, of the credit with them; 0 without credits.
    """
    return Charge(float(gaussian_rho(bound, variance, vote_weight, evaluation_weight, credit_weight)), None)


def laplace_charge(bound: int, scale: int) -> Charge:
    """Return the cost of a participation under discrete Laplace noise of this scale, with integers of this L1 norm."""
    epsilon = float(laplace_epsilon(bound, scale))
    return Charge(epsilon**2 / 2.0, epsilon)


def norm_proof_charge(bound: int) -> Charge:
    """Return the additional cost of a participation's norm proof, with integers of this L2 norm."""
    rho = float(norm_proof_rho(bound))
    return Charge(rho, 0.0, rho, NORM_PROOF_DELTA)


def refusal(spent: Spent, allowance: Allowance, number: int) -> str | None:
    """Say why a client may not take part with this number; None if it may.

    Args:
        spent: before it.
        allowance: of the policy it would be under.
        number: above `Spent.last`; skipped numbers are charged like this one.
    """
    if number > allowance.participations:
        return f"participation {number} of {allowance.participations}"
    charge = spent.charge + allowance.charge.times(number - spent.last)
    epsilon = allowance.epsilon_of(charge)
    if math.isinf(epsilon):
        return f"participation {number} would make delta {charge.delta:.4g} of {allowance.delta:g}"
    if epsilon > allowance.epsilon * (1.0 + _SLACK):
        return f"participation {number} would make epsilon {epsilon:.4g} of {allowance.epsilon:g}"
    return None


def participations_left(spent: Spent, allowance: Allowance) -> int:
    """Return how many more times a client may take part under a policy."""
    fewest, most = 0, max(0, allowance.participations - spent.last)
    while fewest < most:
        middle = (fewest + most + 1) // 2
        if refusal(spent, allowance, spent.last + middle) is None:
            fewest = middle
        else:
            most = middle - 1
    return fewest
