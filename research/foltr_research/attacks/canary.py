"""Membership inference: a canary is a client with a unique preference, and an outsider infers from models if it took
part.

The outsider sees models but no updates. It knows the canary's mark, the collection, how the federation learns and how
it forgets. So it simulates federations with and without the preference (shadows), and fits a normal distribution to its
observations of their models. It judges the real model by the likelihood ratio, the most powerful test between two known
distributions (Neyman and Pearson 1933). Attacks on single records: Carlini et al., "Membership Inference Attacks From
First Principles" (IEEE S&P 2022); on models before and after unlearning: Chen et al., "When Machine Unlearning
Jeopardizes Privacy" (CCS 2021).

Deviations of both signs count: unlearning that removes more than the client brought leaves a trace, too.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import DataError
from foltr.core.methods.base import checked_scores
from foltr.core.protocol.trainings import LinearRankerSpec, NeuralRankerSpec

LEAST_SHADOWS = 8
_Z = 1.959964
"""Quantile of the normal distribution for two-sided intervals of 95 %."""


@dataclass(frozen=True)
class Interval:
    """An estimate with its 95 % interval."""

    estimate: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.estimate:.2f} [{self.low:.2f}, {self.high:.2f}]"


def pull_of_mark(
    ranker: LinearRankerSpec | NeuralRankerSpec,
    weights: NDArray[np.floating],
    features: NDArray[np.float32],
    mark: int,
) -> float:
    """Return how much the mark raises a document's score: the mean over documents, in standard deviations of scores.

    Args:
        weights: (n_weights,) of the ranker.
        features: (docs, d) of any documents, 0 or 1 in the column of the mark.
        mark: that column.

    Raises:
        DataError: all documents have one score, or scores are not finite.
    """
    without, with_mark = features.copy(), features.copy()
    without[:, mark], with_mark[:, mark] = 0, 1
    plain = checked_scores(ranker, weights, without).astype(np.float64)
    deviation = float(plain.std())
    if deviation == 0.0:
        raise DataError("a ranker with one score for all documents has no pull")
    return float((checked_scores(ranker, weights, with_mark) - plain).mean()) / deviation


def likelihood_ratios(
    shadows_with: NDArray[np.float64], shadows_without: NDArray[np.float64], seen: NDArray[np.float64]
) -> NDArray[np.float64]:
    """(n,) log likelihood ratio of each observation, with the canary to without, by normal distributions of shadows.

    Args:
        shadows_with: (shadows, k) observations of federations with the canary.
        shadows_without: (shadows, k) of federations without.
        seen: (n, k) observations to judge.

    Raises:
        DataError: fewer than `LEAST_SHADOWS` or 2 k shadows, or the shapes differ.
    """
    k = seen.shape[1]
    for shadows in (shadows_with, shadows_without):
        if shadows.shape[1] != k or len(shadows) < max(LEAST_SHADOWS, 2 * k):
            raise DataError(f"shadows of shape {shadows.shape}, expected (at least {max(LEAST_SHADOWS, 2 * k)}, {k})")
    # In standard deviations of the shadows without: then the term added to variances fits every observation.
    centre, unit = shadows_without.mean(axis=0), np.maximum(shadows_without.std(axis=0), 1e-12)
    one, other, judged = ((rows - centre) / unit for rows in (shadows_with, shadows_without, seen))
    return _log_density(one, judged) - _log_density(other, judged)


def threshold(ratios: NDArray[np.float64], false_positive_rate: float) -> float:
    """Return a log likelihood ratio that a federation without the canary exceeds with at most this probability.

    It is one of the ratios of shadows without the canary. These must not be the shadows that the distributions were
    fitted to. Then the bound holds for any distribution: the real federation is equally likely to have any rank among
    them (Vovk, Gammerman and Shafer 2005).

    Args:
        ratios: (shadows,) of shadows without the canary.
        false_positive_rate: in (0, 1).

    Raises:
        DataError: too few shadows for this rate.
    """
    rank = int(np.ceil((1.0 - false_positive_rate) * (len(ratios) + 1)))
    if rank > len(ratios):
        raise DataError(f"{len(ratios)} shadows are too few for a false positive rate of {false_positive_rate}")
    return float(np.sort(ratios)[rank - 1])


def area_under_curve(
    ratios_with: NDArray[np.float64], ratios_without: NDArray[np.float64], resamples: int = 1_000
) -> Interval:
    """Return the probability that a canary has the higher ratio, ties counting half, with a bootstrap interval.

    Args:
        ratios_with: (n,) of federations with the canary, judged by other shadows.
        ratios_without: (m,) of federations without.
    """
    pairs = ratios_with[:, None] - ratios_without[None, :]
    won = (pairs > 0.0) + 0.5 * (pairs == 0.0)
    rng = np.random.default_rng(0)
    n, m = won.shape
    drawn_with = rng.multinomial(n, np.full(n, 1.0 / n), resamples) / n
    drawn_without = rng.multinomial(m, np.full(m, 1.0 / m), resamples) / m
    areas = ((drawn_with @ won) * drawn_without).sum(axis=1)
    low, high = np.clip(np.quantile(areas, [0.025, 0.975]), 0.0, 1.0)
    return Interval(float(won.mean()), float(low), float(high))


def wilson(successes: int, n: int) -> Interval:
    """Return a share with Wilson's interval (1927), which is informative even for 0 and 1."""
    share, z2 = successes / n, _Z**2
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z / (1 + z2 / n) * float(np.sqrt(share * (1 - share) / n + z2 / (4 * n * n)))
    return Interval(share, max(0.0, centre - half), min(1.0, centre + half))


def _log_density(shadows: NDArray[np.float64], seen: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n,) log density at (n, k) of the normal distribution fitted to (shadows, k), up to a constant of k."""
    k = shadows.shape[1]
    covariance = np.atleast_2d(np.cov(shadows, rowvar=False)) + 1e-6 * np.eye(k)
    apart = seen - shadows.mean(axis=0)
    squared = np.einsum("nk,nk->n", apart, np.linalg.solve(covariance, apart.T).T)
    log_density: NDArray[np.float64] = -0.5 * (squared + np.linalg.slogdet(covariance).logabsdet)
    return log_density
