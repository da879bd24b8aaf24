"""A plan: the noise that an epsilon costs a federation, compared with its clients' updates.

In a federation of N clients that each take part k times in R rounds, a client takes part in each b-th round, b =
ceil(R / k), and a round has n = floor(N / b) of them. Noise in the mean of a round is that of all helpers over n.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, get_args

from foltr.core.errors import SettingsError
from foltr.core.secure.accounting import (
    check_masks,
    default_evaluation_weight,
    default_vote_weight,
    laplace_deviation,
    least_scale,
    least_variance,
)
from foltr.core.secure.encoding import bound_for
from foltr.core.secure.ledger import Allowance, gaussian_charge, laplace_charge, norm_proof_charge
from foltr.core.secure.mechanisms import MechanismName

NormProof = Literal["l2", "none"]
"""What each message proves of its vector."""
TYPICAL_MEAN: Final = 0.17
"""The L2 norm of the mean update of a round over the clip norm C = 0.15 sqrt(B) (learning rate / 0.1), early in
training: 0.16 to 0.20 in the first ten rounds of FPDGD, linear, with 100 to 1,000 clients of B = 5 informational
interactions, on MQ2008 and MSLR-sample. Later it falls, since less remains to learn.
"""
TYPICAL_L1: Final = 0.75
"""The L1 norm of an update over sqrt(d) times its L2 norm, in the same runs."""
LEAST_CLIENTS: Final = 100
"""Of a cohort: helpers open no smaller sum, unless it is one of many cohorts."""
N_MIN_HELPERS, N_MAX_HELPERS = 2, 8

# Up to which noise beside a typical mean update nDCG@10 ended where: single runs of 200 rounds on MQ2008 and
# MSLR-sample with 10 to 300 clients, under the noise of k = 20.
_VERDICTS: Final = (
    (5.0, "learns as without noise"),
    (20.0, "learns, but less well"),
    (60.0, "learns little: most of an update is lost in the noise"),
)
_HOPELESS: Final = "hopeless: the noise drowns the updates, and the model stays as good as untrained"
NOBODY: Final = "hopeless: fewer clients than rounds in a period, so some rounds have nobody"


@dataclass(frozen=True)
class PlannedNoise:
    """The noise of one mechanism with one number of participations.

    Attributes:
        mechanism: which.
        participations: k, of each client in all rounds.
        period: b, a client takes part in each b-th round.
        clients_per_round: n.
        bound: C_int.
        sigma: the standard deviation of one helper's noise, in steps of the grid.
        replace_epsilon: epsilon if each of a client's vectors is replaced by another vector, not by zeros.
        noise_to_update: the standard deviation of all helpers' noise in a coordinate of the mean, over the size of a
            coordinate of a typical mean update; infinite without clients.
        verdict: a description for people.
    """

    mechanism: MechanismName
    participations: int
    period: int
    clients_per_round: int
    bound: int
    sigma: float
    replace_epsilon: float
    noise_to_update: float
    verdict: str


def plan_noise(
    *,
    clients: int,
    rounds: int,
    dim: int,
    epsilon: float,
    delta: float,
    participations: int,
    helpers: int,
    norm_proof: NormProof = "l2",
    votes: bool = True,
    evaluation: bool = True,
) -> list[PlannedNoise]:
    """Return the noise under each mechanism: with so many participations, and with one in every round.

    Args:
        clients: N.
        rounds: R, in the life of the federation.
        dim: d, how many numbers an update has.
        epsilon: for all participations of a client together.
        delta: likewise; without norm proofs of the Gaussian mechanism only.
        participations: k; at most one a round counts.
        helpers: how many; each adds noise.
        norm_proof: what each message proves; the noise gets the rest of the budget.
        votes: whether the Gaussian mechanism also protects a vote beside each vector, if messages are proven.
        evaluation: likewise, its lists' rewards and credits.
    """
    for name, value in {"clients": clients, "rounds": rounds, "dim": dim, "participations": participations}.items():
        if value < 1:
            raise SettingsError(f"{name} must be at least 1, not {value}")
    if not N_MIN_HELPERS <= helpers <= N_MAX_HELPERS:
        raise SettingsError(f"helpers must be {N_MIN_HELPERS} to {N_MAX_HELPERS}, not {helpers}")
    bound = bound_for(dim)
    if norm_proof == "l2":
        check_masks(dim, bound)
    planned = []
    for k in sorted({min(participations, rounds), rounds}):
        for mechanism in get_args(MechanismName):
            promise = {"epsilon": epsilon, "delta": delta, "participations": k}
            noise, caveat = _least_noise(mechanism, bound, norm_proof, promise, votes, evaluation)
            one = _planned(mechanism, k, clients, rounds, dim, bound, noise, helpers)
            planned.append(replace(one, verdict=one.verdict + caveat))
    return planned


def noise_to_update(
    mechanism: MechanismName, *, sigma: float, noises: float, clients: int, dim: int, bound: int
) -> float:
    """Return the noise in a coordinate of a round's mean, over the size of a coordinate of a typical mean update.

    Args:
        mechanism: decides the norm of the clip.
        sigma: the standard deviation of one noise, in steps of the grid.
        noises: how many such are in the mean.
        clients: in it; infinite without any.
        dim: d.
        bound: C_int.
    """
    # With an L1 clip the grid is laid over the L1 norm, which is longer.
    clip = 1.0 if mechanism == "gaussian" else TYPICAL_L1 * math.sqrt(dim)
    in_mean = math.sqrt(noises) * sigma * clip / bound / clients if clients else math.inf
    return in_mean / (TYPICAL_MEAN / math.sqrt(dim))


def verdict_on(ratio: float) -> str:
    """Describe what a model learns despite so much noise."""
    return next((words for most, words in _VERDICTS if ratio <= most), NOBODY if math.isinf(ratio) else _HOPELESS)


def period_for(rounds: int, participations: int) -> int:
    """Return b, so that a client that takes part in each b-th of so many rounds does so at most k times."""
    return -(-rounds // participations)


def ratio_text(ratio: float) -> str:
    """Format a ratio with its significant digits."""
    return f"{ratio:,.0f}" if ratio >= 10.0 else f"{ratio:.2g}"


@dataclass(frozen=True)
class _Noise:
    """The noise of one helper: its standard deviation, and epsilon if vectors are replaced."""

    sigma: float
    replace_epsilon: float


def _least_noise(
    mechanism: MechanismName, bound: int, norm_proof: NormProof, promise: dict[str, Any], votes: bool, evaluation: bool
) -> tuple[_Noise, str]:
    """Return the least noise of one helper, and a caveat: without proofs if they cost too much."""
    proven = norm_proof == "l2"
    try:
        weights = {
            "vote_weight": default_vote_weight(bound) if votes and proven else 0,
            "evaluation_weight": default_evaluation_weight(bound) if evaluation and proven else 0,
            "credit_weight": default_vote_weight(bound) if evaluation and proven else 0,
        }
        return _noise(mechanism, bound, promise | {"norm_proofs": proven}, weights), ""
    except SettingsError:
        if not proven:
            raise
        caveat = "; without norm proofs, which would cost too much (--norm-proof none)"
        return _noise(mechanism, bound, promise | {"norm_proofs": False}, {}), caveat


def _noise(mechanism: MechanismName, bound: int, promise: dict[str, Any], weights: dict[str, Any]) -> _Noise:
    if mechanism == "gaussian":
        variance = least_variance(bound, **weights, **promise)
        sigma, charge = math.sqrt(variance), gaussian_charge(bound, variance, **weights)
    else:
        scale = least_scale(bound, **promise)
        sigma, charge = laplace_deviation(scale), laplace_charge(bound, scale)
    if promise["norm_proofs"]:
        charge += norm_proof_charge(bound)
    k, delta = promise["participations"], promise["delta"]
    is_pure = mechanism == "gamma" and not promise["norm_proofs"]
    allowance = Allowance(k, promise["epsilon"], delta, charge, is_pure)
    return _Noise(sigma, allowance.epsilon_of(charge.times(k).replacing()))


def _planned(
    mechanism: MechanismName, k: int, clients: int, rounds: int, dim: int, bound: int, noise: _Noise, helpers: int
) -> PlannedNoise:
    period = period_for(rounds, k)
    n = clients // period
    ratio = noise_to_update(mechanism, sigma=noise.sigma, noises=helpers, clients=n, dim=dim, bound=bound)
    words = verdict_on(ratio)
    if 0 < n < LEAST_CLIENTS:
        words += f"; and a round wants {LEAST_CLIENTS} clients"
    return PlannedNoise(mechanism, k, period, n, bound, noise.sigma, noise.replace_epsilon, ratio, words)
