"""Regression-EM: a device estimates how likely each position is examined, from its own clicks.

Wang et al., "Position Bias Estimation for Unbiased Learning to Rank in Personal Search" (WSDM 2018),
Algorithm 1, spread over devices as FedIPS (Li and Ouyang 2021, Section 5) does: the relevance model F is
linear and shared, its updates travel with the ranker's; the propensities are the user's own and never leave
the device.

The click model is C = E * R: a document is clicked if its position is examined (E, depends on the rank only)
and it is relevant to this user (R, depends on the document only). Neither is observed. From the current
propensities and sigma(F(x)), the E-step gives P(E | C) and P(R | C). The M-step sets a propensity to the mean
of P(E | C) at its rank, and fits F to P(R | C) by logistic regression. Where Wang et al. draw binary labels for
their trees, a gradient takes the probabilities themselves, which has the same mean and less noise.

Clicks fix only the products P(E) * P(R), so propensities are counted relative to the first position's, which
is 1. What tells the two factors apart is documents of like features at different ranks: if every kind of
document is always shown at one rank, no amount of clicks will.
"""

import math

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import DataError, SettingsError

LOWEST_PROPENSITY = 0.05
"""Estimates are kept above this. A click counts 1/p times, so one mistaken estimate near zero would outweigh all
other clicks; the price is too little weight for positions that are truly examined more rarely than this."""

MEMORY = 100.0
"""How many of the latest result lists an estimate is made of. EM moves only as far as the clicks outweigh what was
believed before, and the first posteriors come from a relevance model that had learned nothing; a mean over everything
would keep both for thousands of lists. Of 50 to 3,000 lists, 100 came nearest to simulated users within 5,000."""

# So sure of a document's relevance and no surer: at exactly 1 an unclicked document at rank 1, which is always
# examined, would be impossible and its posterior 0/0.
_NEAREST_TO_CERTAIN = 1e-6


def prior_counts(propensities: NDArray[np.float64], strength: float) -> NDArray[np.float64]:
    """Return the counts of a device that has seen no click yet but believes in these propensities.

    Args:
        propensities: (k,) in (0, 1], below 1 after the first. From 1 the estimate could never fall: a position
            that is examined for certain explains a missing click by relevance alone.
        strength: how many result lists' worth of evidence the prior is, above 0.

    Returns:
        (2, k) float64 pseudo-counts: row 0 how often a position was examined, row 1 how often it was shown.

    Raises:
        SettingsError: the strength or a propensity is out of range.
    """
    if not (math.isfinite(strength) and strength > 0.0):
        raise SettingsError(f"the strength of a prior is a finite number above 0, not {strength}")
    if not ((propensities > 0.0) & (propensities <= 1.0)).all() or (propensities[1:] == 1.0).any():
        raise SettingsError(f"prior propensities lie in (0, 1], below 1 after the first: not {propensities.tolist()}")
    return np.stack((propensities * strength, np.full(propensities.shape, strength)))


def propensities_of(counts: NDArray[np.float64], lowest: float = LOWEST_PROPENSITY) -> NDArray[np.float64]:
    """Return the position propensities the counts stand for: examined / shown, relative to the first position.

    Args:
        counts: (2, k) float64, as `prior_counts` and `add_examined` return them.
        lowest: the bound from below, in (0, 1].

    Returns:
        (k,) float64 in [lowest, 1]; the first is 1.

    Raises:
        DataError: counts of another shape or out of range, as from a damaged state.
        SettingsError: `lowest` outside (0, 1].
    """
    if not 0.0 < lowest <= 1.0:
        raise SettingsError(f"the lowest propensity must lie in (0, 1], not {lowest}")
    if counts.ndim != 2 or counts.shape[0] != 2 or counts.shape[1] == 0:
        raise DataError(f"propensity counts must have the shape (2, positions), not {counts.shape}")
    examined, shown = counts
    if not (np.isfinite(counts).all() and (shown > 0.0).all() and (examined >= 0.0).all() and examined[0] > 0.0):
        raise DataError("propensity counts must be finite and positive")
    rate = examined / shown
    propensities: NDArray[np.float64] = np.clip(rate / rate[0], lowest, 1.0)
    return propensities


def add_examined(
    counts: NDArray[np.float64], examined: NDArray[np.float64], memory: float = MEMORY
) -> NDArray[np.float64]:
    """Return the counts after one more result list: the running M-step of the propensities.

    Args:
        counts: (2, k).
        examined: (m,) P(E = 1 | C) of the positions shown, m <= k.
        memory: about how many of the latest result lists count, at least 1.

    Returns:
        (2, k) a new array; positions not shown are unchanged.

    Raises:
        DataError: more posteriors than positions, or one that is not a probability.
        SettingsError: a memory below 1.
    """
    if not memory >= 1.0:
        raise SettingsError(f"a memory is a number of result lists of at least 1, not {memory}")
    length = examined.shape[0]
    if length > counts.shape[1]:
        raise DataError(f"{length} positions shown, but propensities are kept for {counts.shape[1]}")
    if not ((examined >= 0.0) & (examined <= 1.0)).all():
        raise DataError("a posterior is not a probability")
    after = counts.copy()
    # Shrinking both rows alike keeps their ratio, and caps the number of lists a position remembers.
    after[:, :length] *= np.minimum(1.0, (memory - 1.0) / counts[1, :length])
    after[0, :length] += examined
    after[1, :length] += 1.0
    return after


def relevance_probability(f_weights: NDArray[np.floating], features: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return P(R = 1 | x) = sigma(F(x)), F(x) = f . (x, 1) (Wang et al. 2018).

    Args:
        f_weights: (d + 1,), the last being the bias.
        features: (docs, d) float32.

    Returns:
        (docs,) float64, strictly between 0 and 1.

    Raises:
        DataError: the weights do not fit, or a value of F is not a number.
    """
    if features.ndim != 2 or f_weights.shape != (features.shape[1] + 1,):
        raise DataError(f"{features.shape} features need {features.shape[-1] + 1} weights, not {f_weights.shape}")
    logits = features @ f_weights[:-1].astype(features.dtype) + np.float64(f_weights[-1])
    if np.isnan(logits).any():
        raise DataError("the relevance model gives what is not a number")
    # The hyperbolic tangent is the logistic function without its overflow.
    probability = 0.5 * (1.0 + np.tanh(0.5 * logits))
    return np.clip(probability, _NEAREST_TO_CERTAIN, 1.0 - _NEAREST_TO_CERTAIN)


def e_step(
    clicks: NDArray[np.bool_], relevance: NDArray[np.float64], propensities: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return what the clicks say about examination and relevance (Wang et al. 2018).

    A click means both for certain. Without one, with t = P(E = 1) and g = P(R = 1):

        P(E = 1 | C = 0) = t (1 - g) / (1 - t g),    P(R = 1 | C = 0) = g (1 - t) / (1 - t g).

    Args:
        clicks: (m,) bool.
        relevance: (m,) float64 P(R = 1), in [0, 1).
        propensities: (m,) float64 P(E = 1), in (0, 1].

    Returns:
        (m,) P(E = 1 | C) and (m,) P(R = 1 | C), float64.

    Raises:
        DataError: shapes that differ, or a probability out of range.
    """
    if not clicks.shape == relevance.shape == propensities.shape:
        raise DataError("relevance and propensities must have one entry for each document shown")
    if not ((propensities > 0.0) & (propensities <= 1.0)).all():
        raise DataError("a propensity is outside (0, 1]")
    if not ((relevance >= 0.0) & (relevance < 1.0)).all():
        raise DataError("a probability of relevance is outside [0, 1)")
    unclicked = 1.0 - propensities * relevance
    examined = np.where(clicks, 1.0, propensities * (1.0 - relevance) / unclicked)
    relevant = np.where(clicks, 1.0, relevance * (1.0 - propensities) / unclicked)
    return examined, relevant


def relevance_step(
    f_weights: NDArray[np.float64],
    features: NDArray[np.float32],
    ranking: NDArray[np.int64],
    relevant: NDArray[np.float64],
    learning_rate: float,
) -> NDArray[np.float64]:
    """Return the relevance model after one step of logistic regression on soft labels: the M-step of F.

    f <- f + learning_rate * mean over the shown documents of (P(R = 1 | C) - sigma(F(x))) (x, 1). A mean and not
    a sum, so that the longest stable step does not depend on how many documents are shown.

    Args:
        f_weights: (d + 1,) float64, the last being the bias.
        features: (docs, d) float32.
        ranking: (m,) the documents shown.
        relevant: (m,) P(R = 1 | C) of each.
        learning_rate: the step of F alone; the ranker's hinge loss needs far smaller ones. While F has learned little,
            the propensities are biased: with eight features in [0, 1] a user alone does best with 0.3 to 1, while
            0.001 spoils a prior that was right. Up to 8 / (d + 1) is stable for any such features.

    Returns:
        (d + 1,) float64, a new array.

    Raises:
        DataError: shapes that do not fit, or a shown document outside the candidates.
    """
    shown = _shown_rows(features, ranking)
    if relevant.shape != ranking.shape:
        raise DataError("there must be one posterior for each document shown")
    return _logistic_step(f_weights, shown, relevant - relevance_probability(f_weights, shown), learning_rate)


def em_step(
    counts: NDArray[np.float64],
    f_weights: NDArray[np.float64],
    features: NDArray[np.float32],
    ranking: NDArray[np.int64],
    clicks: NDArray[np.bool_],
    learning_rate: float,
    lowest: float = LOWEST_PROPENSITY,
    memory: float = MEMORY,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the device's counts and its relevance model after one interaction: one E-step and both M-steps.

    Args:
        counts: (2, k) of this device; for the rest see `relevance_step`, `propensities_of`, `add_examined`.
        clicks: (m,) bool, m <= k.

    Returns:
        (2, k) counts and (d + 1,) relevance weights, float64, new arrays.

    Raises:
        DataError: as the steps it is made of.
    """
    length = ranking.shape[0]
    if length > counts.shape[1]:
        raise DataError(f"{length} positions shown, but propensities are kept for {counts.shape[1]}")
    shown = _shown_rows(features, ranking)
    relevance = relevance_probability(f_weights, shown)
    examined, relevant = e_step(clicks, relevance, propensities_of(counts, lowest)[:length])
    return (
        add_examined(counts, examined, memory),
        _logistic_step(f_weights, shown, relevant - relevance, learning_rate),
    )


def _shown_rows(features: NDArray[np.float32], ranking: NDArray[np.int64]) -> NDArray[np.float32]:
    if ranking.size == 0:
        raise DataError("no document was shown: there is nothing to learn from")
    if ranking.min() < 0 or ranking.max() >= features.shape[0]:
        raise DataError("a shown document is not among the candidates")
    return features[ranking]


def _logistic_step(
    f_weights: NDArray[np.float64], shown: NDArray[np.float32], residual: NDArray[np.float64], learning_rate: float
) -> NDArray[np.float64]:
    gradient: NDArray[np.float64] = np.append(residual @ shown.astype(np.float64), residual.sum()) / len(residual)
    return f_weights + learning_rate * gradient
