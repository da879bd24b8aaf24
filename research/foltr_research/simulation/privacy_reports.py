"""Claimed and actual privacy of methods' parameters: of FPDGD's noise as published, and of FOLtR-ES.

FPDGD's noise (`foltr.core.learning.laplace_shares`) adds up to Laplace noise of scale Delta/epsilon in each coordinate
over n clients. Four things keep the printed epsilon from being guaranteed:

- The clip has no named norm, and the published code uses L2. Independent Laplace noise needs a bound in L1,
  which for vectors of L2 norm Delta/2 is sqrt(d) times larger.
- Nothing is composed over the rounds.
- The server weights by n_c / n after the noise is added, so the sum is Laplace only if all clients have equally many
  interactions. The figures below are for equal n_c, the best case.
- The noise is Laplace only in the sum of all n clients. A single share, which a federator without secure
  aggregation sees, has shape 1/n: its density is infinite at zero, so no epsilon bounds the loss.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from foltr.core.errors import SettingsError
from foltr.core.learning.laplace_shares import noise_scale
from foltr.core.protocol.trainings import EvolutionTraining, FpdgdPaperTraining, MethodTraining

# P(G > 40) < 1e-17 for a Gamma variable of scale 1 and shape at most 1, and a share's shape is 1/n.
_LARGEST_GAMMA = 40.0
BARE_BELOW = 1e-6
"""Smaller noise leaves a weight practically bare: weights are of the order of 0.01 to 1."""


@dataclass(frozen=True)
class Exposure:
    """What a client reveals in a whole run: an update in each of its rounds.

    Attributes:
        n_weights: of an update.
        participants: clients in a round.
        fewest, most: interactions of a client in a round.
    """

    n_weights: int
    rounds: int
    participants: int
    fewest: int
    most: int


@dataclass(frozen=True, slots=True)
class PrivacyReport:
    """Claimed and actual privacy; every epsilon is pure (delta 0).

    "Add/remove" compares a client's weights with zeros, "replace" with any other clipped weights. Unless noted
    otherwise the figures hold only against an observer who sees nothing but the sums.

    Attributes:
        claimed_epsilon_per_round: the epsilon that scaled the noise.
        claimed_epsilon: the same, composed over the rounds.
        epsilon_per_round_add_remove: with the paper's clip, L2 to Delta/2; infinite if half the clients or fewer
            arrive.
        epsilon_per_round_replace: likewise, for replacing a client.
        epsilon_per_round_published_code: of replacing a client with the published code's clip, L2 to Delta.
        epsilon_add_remove: composed over the rounds.
        epsilon_replace: likewise.
        epsilon_published_code: likewise.
        n_clients: n, for which each share was made.
        arrived: number of shares in a sum.
        dim: d.
        rounds: number of composed rounds.
        epsilon_without_secure_aggregation: per round, against a federator that sees each client's share; infinite for
            more than one client.
        bare_share_probability: that a client's noise on one weight is smaller than `BARE_BELOW`.
        summary: the same as sentences.
    """

    claimed_epsilon_per_round: float
    claimed_epsilon: float
    epsilon_per_round_add_remove: float
    epsilon_per_round_replace: float
    epsilon_per_round_published_code: float
    epsilon_add_remove: float
    epsilon_replace: float
    epsilon_published_code: float
    n_clients: int
    arrived: int
    dim: int
    rounds: int
    epsilon_without_secure_aggregation: float
    bare_share_probability: float
    summary: str

    def to_dict(self) -> dict[str, float | int | str | None]:
        """Return the fields by name for JSON, which has no infinity: an infinite epsilon is None."""
        return {name: None if value == math.inf else value for name, value in asdict(self).items()}


def actual_epsilon(
    sensitivity: float,
    epsilon: float,
    dim: int,
    n_clients: int,
    arrived: int | None = None,
    rounds: int = 1,
) -> PrivacyReport:
    """Return what Algorithm 3 guarantees beside what it claims.

    Args:
        sensitivity: Delta.
        epsilon: the claimed one of a round.
        dim: d, the number of weights.
        n_clients: n, for which the shares are made.
        arrived: how many of them are in each sum; all by default.
        rounds: in which one client takes part.

    Raises:
        SettingsError: more clients arrived than exist, or none.
    """
    scale = noise_scale(sensitivity, epsilon)
    arrived = n_clients if arrived is None else arrived
    if not 1 <= arrived <= n_clients:
        raise SettingsError(f"arrived must be from 1 to the {n_clients} clients, not {arrived}")
    add_remove, replace, published_code = (
        _pure_epsilon(arrived / n_clients, dim, l2_bound / scale)
        for l2_bound in (sensitivity / 2.0, sensitivity, 2.0 * sensitivity)
    )
    alone = _pure_epsilon(1.0 / n_clients, dim, sensitivity / 2.0 / scale)
    bare = bare_share_probability(n_clients, scale)
    return PrivacyReport(
        claimed_epsilon_per_round=epsilon,
        claimed_epsilon=rounds * epsilon,
        epsilon_per_round_add_remove=add_remove,
        epsilon_per_round_replace=replace,
        epsilon_per_round_published_code=published_code,
        epsilon_add_remove=rounds * add_remove,
        epsilon_replace=rounds * replace,
        epsilon_published_code=rounds * published_code,
        n_clients=n_clients,
        arrived=arrived,
        dim=dim,
        rounds=rounds,
        epsilon_without_secure_aggregation=alone,
        bare_share_probability=bare,
        summary=_summary(epsilon, add_remove, replace, n_clients, arrived, rounds, bare),
    )


def bare_share_probability(n_clients: int, scale: float, threshold: float = BARE_BELOW) -> float:
    """Return the probability that one client's noise on one weight is below the threshold in size.

    gamma - gamma' is normal with variance 2 scale^2 G, G ~ Gamma(1/n), so the probability is the mean of
    erf(threshold / (2 scale sqrt(G))). It is taken over y = log G, in which the density exp(y/n - e^y) has no
    pole.

    Args:
        n_clients: n.
        scale: of the noise, Delta / epsilon.
        threshold: above 0.
    """
    shape = 1.0 / n_clients
    half_ratio = threshold / (2.0 * scale)
    # The error function is 1 to the last digit from 6 on.
    start, end = 2.0 * math.log(half_ratio / 6.0), math.log(_LARGEST_GAMMA)
    if start >= end:
        return 1.0
    y = np.linspace(start, end, 4001)
    error_function = np.array([math.erf(half_ratio * math.exp(-0.5 * point)) for point in y.tolist()])
    integrand = error_function * np.exp(shape * y - np.exp(y)) / math.gamma(shape)
    simpson = np.ones(y.shape[0])
    simpson[1:-1:2], simpson[2:-1:2] = 4.0, 2.0
    middle = float(simpson @ integrand * (y[1] - y[0]) / 3.0)
    return min(1.0, _gamma_below(shape, math.exp(start)) + middle)


def epsilon_bound(truth_probability: float, n_values: int) -> float:
    """Return the local differential privacy of one randomised response: log(p (n - 1) / (1 - p)) (thesis, Eq. 3.6).

    The average of a round's B values has B times this by composition.

    Args:
        truth_probability: p.
        n_values: n >= 2.

    Returns:
        epsilon; infinite for p = 1.

    Raises:
        SettingsError: p is above 1, or not above 1 / n, at which the truth is no likelier than another value.
    """
    if not 1.0 / n_values < truth_probability <= 1.0:
        raise SettingsError(
            f"the probability to keep one of {n_values} values must be above 1/{n_values} and at most 1, "
            f"not {truth_probability}"
        )
    if truth_probability == 1.0:
        return math.inf
    return math.log(truth_probability * (n_values - 1) / (1.0 - truth_probability))


def _paper_report(training: FpdgdPaperTraining, exposure: Exposure) -> dict[str, Any]:
    figures = actual_epsilon(
        training.sensitivity,
        training.epsilon,
        exposure.n_weights,
        training.n_clients,
        min(exposure.participants, training.n_clients),
        exposure.rounds,
    ).to_dict()
    return figures if exposure.fewest == exposure.most else _without_epsilon(figures, training.epsilon)


def _without_epsilon(figures: dict[str, float | int | str | None], claimed: float) -> dict[str, Any]:
    """Return the report of a sum weighted by unequal numbers of interactions, for which no figure holds."""
    kept = {name: None if name.startswith("epsilon_") else value for name, value in figures.items()}
    kept["summary"] = (
        f"claimed: epsilon {claimed:g} a round. Actual: none is given, because clients differ in their interactions: "
        "the noise is weighted with each update, so its sum is not Laplace and protects those with many the least."
    )
    return kept


def _evolution_report(training: EvolutionTraining, exposure: Exposure) -> dict[str, Any]:
    bound = epsilon_bound(training.truth_probability, training.serp_length + 1)
    return {
        "epsilon_per_interaction": bound,
        "epsilon_per_round": bound * exposure.most,
        "epsilon": bound * exposure.most * exposure.rounds,
        "truth_probability": training.truth_probability,
        "summary": "pure local epsilon of the metric of one interaction; it adds up over a client's "
        "interactions and rounds, and is given for the clients with the most interactions",
    }


REPORTS: Mapping[type[MethodTraining], Callable[[Any, Exposure], dict[str, Any]]] = {
    FpdgdPaperTraining: _paper_report,
    EvolutionTraining: _evolution_report,
}
"""Reports by a method's settings. Other methods have no privacy parameters."""


def _pure_epsilon(shape: float, dim: int, shift: float) -> float:
    """The pure epsilon of noise gamma - gamma' of this shape and scale 1 on dim numbers shifted by at most
    `shift` in L2.

    From shape 1 on the density falls no faster than exp(-|x|), so epsilon is the largest L1 norm of a shift. Below
    1 it falls fastest at its peak, the loss log f(0) - log f(x) is concave, and spreading the shift evenly is
    again the worst. At 1/2 and below the peak is infinitely high. (f is the variance-gamma density,
    proportional to x^v K_v(x) with v = shape - 1/2.)
    """
    if shape <= 0.5:
        return math.inf
    each = shift / math.sqrt(dim)
    if shape >= 1.0:
        return dim * each
    order = shape - 0.5
    log_peak = math.lgamma(order) - math.log(2.0)
    return dim * (log_peak - order * math.log(each / 2.0) - _log_bessel_k(order, each))


def _log_bessel_k(order: float, x: float) -> float:
    """log K_order(x) = log of the integral over t > 0 of exp(-x cosh t) cosh(order t).

    The integrand decays doubly exponentially and is even, for which the trapezoidal rule is as good as exact.
    """
    # Beyond here x (cosh t - 1) exceeds 745 + order t, and exp is zero.
    end = math.acosh(1.0 + 800.0 / x) + 1.0
    t = np.linspace(0.0, end, 4001)
    values = np.exp(-x * (np.cosh(t) - 1.0)) * np.cosh(order * t)
    integral = float((values.sum() - 0.5 * values[0]) * (t[1] - t[0]))
    return math.log(integral) - x


def _gamma_below(shape: float, x: float) -> float:
    """P(G < x) for G ~ Gamma(shape): the power series, which for the small x it is used at needs few terms."""
    term, total = 1.0, 1.0 / shape
    for k in range(1, 60):
        term *= -x / k
        total += term / (shape + k)
    return math.pow(x, shape) * total / math.gamma(shape)


def _summary(
    claimed: float, add_remove: float, replace: float, n_clients: int, arrived: int, rounds: int, bare: float
) -> str:
    if add_remove == math.inf:
        guarantee = f"only {arrived} of {n_clients} shares of noise are in the sum, so no finite epsilon holds"
    else:
        guarantee = (
            f"epsilon is {add_remove:.1f} a round for adding or removing a client and {replace:.1f} for replacing one "
            f"({rounds * add_remove:.1f} and {rounds * replace:.1f} in all, rounds: {rounds}), "
            f"if nobody sees less than the sum of the {arrived} shares"
        )
    alone = (
        "; a federator that sees each client's share gets no finite epsilon: "
        f"a weight carries less noise than {BARE_BELOW:g} with probability {bare:.3g}"
        if n_clients > 1
        else ""
    )
    return f"claimed: epsilon {claimed:g} a round. Actual: {guarantee}{alone}."
