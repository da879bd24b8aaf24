"""A mechanism: what a client and the honest helper do to a vector, and the guarantee of that: `gaussian` or `gamma`."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foltr.core.secure.accounting import epsilon_of, gaussian_rho, laplace_epsilon, squared_sensitivity
from foltr.core.secure.coins import Entropy
from foltr.core.secure.encoding import encode_l1, encode_l2
from foltr.core.secure.evaluation import longest_credit, longest_evaluation
from foltr.core.secure.noise import draw_gaussian, draw_laplace
from foltr.core.secure.polya import draw_polya_share
from foltr.core.secure.vote_proof import encode_vote

MechanismName = Literal["gaussian", "gamma"]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Mechanism:
    """One participation under a mechanism: the encoding of a vector, the noise in the sum, and the claimed guarantee.

    Attributes:
        name: for people.
        bound: C_int.
        epsilon: epsilon_0, of one participation.
        encode: an update with a clip norm and the source of random bytes, as integers within the bound; with votes,
            evaluations or credits the longest of these follow.
        longest: for so many numbers, the integers that an audit looks for, with a vote, an evaluation and a credit if
            there are any. Only their direction matters to `gaussian`; to `gamma` it is the longest vector in L1.
        draw_noise: so many integers of the noise that is surely in the sum.
        claimed_delta: the most by which the probability of an event with the vector may exceed e^epsilon times that
            without it, and the other way round.
        loss: for sums (n, d) and a vector (d,), how much likelier each is with the vector than without it: (n,), a
            rising function of the logarithm.
    """

    name: str
    bound: int
    epsilon: float
    encode: Callable[[ArrayLike, float, Entropy], Integers]
    longest: Callable[[int], Integers]
    draw_noise: Callable[[int, Entropy], Integers]
    claimed_delta: Callable[[float], float]
    loss: Callable[[Integers, Integers], NDArray[np.float64]]


def gaussian_mechanism(
    bound: int,
    variance: int,
    delta: float,
    vote_weight: int = 0,
    evaluation_weight: int = 0,
    credit_weight: int = 0,
) -> Mechanism:
    """Return the default one: the noise of one helper, after an L2 clip.

    It claims the discrete Gaussian's own divergence at the bound, which is stricter than what follows from its rho: a
    sigma that is a tenth too small would hide in the difference.

    Args:
        bound: C_int.
        variance: sigma^2.
        delta: of one participation's epsilon.
        vote_weight: v, of the vote beside the integers; 0 without votes.
        evaluation_weight: u, of the evaluation beside them; 0 without evaluations.
        credit_weight: w, of the credit beside them; 0 without credits.
    """
    weights = vote_weight, evaluation_weight, credit_weight
    # The norm rounded up to an integer: promises less by under one step.
    reach = math.isqrt(squared_sensitivity(bound, *weights) - 1) + 1
    parts = encode_vote(-1, vote_weight), longest_evaluation(evaluation_weight), longest_credit(credit_weight)
    beside = np.concatenate(parts)
    with_them = [name for name, part in zip(("votes", "evaluations", "credits"), parts, strict=True) if part.size]
    return Mechanism(
        name=f"gaussian with {' and '.join(with_them)}" if with_them else "gaussian",
        bound=bound,
        epsilon=epsilon_of(float(gaussian_rho(bound, variance, *weights)), delta),
        encode=lambda update, clip_norm, entropy: np.concatenate(
            [encode_l2(update, clip_norm, bound, entropy), beside]
        ),
        longest=lambda dim: np.concatenate([np.full(dim, round(bound / math.sqrt(dim)), np.int64), beside]),
        draw_noise=lambda size, entropy: draw_gaussian(size, variance, entropy),
        claimed_delta=lambda epsilon: gaussian_delta(reach, variance, epsilon),
        loss=lambda sums, vector: (sums @ vector).astype(np.float64),
    )


def gamma_mechanism(bound: int, scale: int, n_shares: int | None = None) -> Mechanism:
    """Return the successor of the seed's noise: discrete Laplace after an L1 clip, with a pure epsilon.

    Args:
        bound: C_int.
        scale: s.
        n_shares: t, if so many clients draw the noise together; None if the helper does.
    """
    epsilon = float(laplace_epsilon(bound, scale))

    def draw_shares(size: int, entropy: Entropy) -> Integers:
        total = np.zeros(size, np.int64)
        for _ in range(n_shares or 0):
            total += draw_polya_share(size, scale, n_shares or 0, entropy)
        return total

    return Mechanism(
        name="gamma" if n_shares is None else f"gamma, noise by {n_shares} clients",
        bound=bound,
        epsilon=epsilon,
        encode=lambda update, clip_norm, entropy: encode_l1(update, clip_norm, bound, entropy),
        longest=lambda dim: np.full(dim, bound // dim, np.int64),
        draw_noise=(lambda size, entropy: draw_laplace(size, scale, entropy)) if n_shares is None else draw_shares,
        claimed_delta=lambda at: pure_delta(epsilon, at),
        loss=lambda sums, vector: (np.abs(sums) - np.abs(sums - vector)).sum(axis=1).astype(np.float64),
    )


def gaussian_delta(shift: int, variance: int, epsilon: float) -> float:
    """Return the hockey-stick divergence of N_Z(0, variance) and its shift by a whole number, at epsilon."""
    reach = 14 * (math.isqrt(variance) + 1) + shift
    weights = np.exp(-(np.arange(-reach, reach + 1, dtype=np.float64) ** 2) / (2.0 * variance))
    probabilities = np.concatenate([np.zeros(shift), weights / weights.sum(), np.zeros(shift)])
    moved = probabilities[: -shift or None]
    return float(np.maximum(moved - math.exp(epsilon) * probabilities[shift:], 0.0).sum())


def pure_delta(epsilon: float, at: float) -> float:
    """Return the largest hockey-stick divergence at ``at`` that a pure epsilon allows: that of randomised response.

    Kairouz, Oh & Viswanath, "The composition theorem for differential privacy" (ICML 2015), section 3.
    """
    return max(0.0, (math.exp(epsilon) - math.exp(at)) / (math.exp(epsilon) + 1.0))
