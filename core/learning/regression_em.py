"""Regression-EM: a device estimates how likely each position is examined, from its own clicks.

Wang et al., "Position Bias Estimation for Unbiased Learning to Rank in Personal Search" (WSDM 2018), Algorithm 1,
spread over devices as in FedIPS (Li and Ouyang 2021, Section 5): the relevance model F is linear and shared, its
updates travel with the ranker's; the propensities belong to the user and never leave the device.

The click model is C = E * R: a document is clicked if its position is examined (E, depends on the rank only) and it is
relevant to this user (R, depends on the document only). Neither is observed. From the current propensities and
sigma(F(x)), the E-step gives P(E | C) and P(R | C). The M-step sets a propensity to the mean of P(E | C) at its rank,
and fits F to P(R | C) by logistic regression. Wang et al. draw binary labels for their trees; a gradient uses the
probabilities themselves, which has the same mean and less noise.

Clicks determine only the products P(E) * P(R), so propensities are relative to the first position's, which is 1. The
two factors can be separated only if similar documents appear at different ranks: if every kind of document is always
shown at one rank, no amount of clicks suffices.
"""

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import DataError, SettingsError

LOWEST_PROPENSITY = 0.05
"""Estimates are kept above this. A click counts 1/p times, so one mistaken estimate near zero would outweigh all other
clicks; the price is too little weight for positions that are truly examined more rarely."""

MEMORY = 100.0
"""How many of the latest result lists an estimate uses. EM moves only as far as the clicks outweigh earlier beliefs,
and the first posteriors come from an untrained relevance model; a mean over all would keep both for thousands of lists.
Of 50 to 3,000 lists, 100 came nearest to simulated users within 5,000."""

# The bound on a document's relevance: at exactly 1 an unclicked document at rank 1, which is always examined, would be
# impossible and its posterior 0/0.
_NEAREST_TO_CERTAIN = 1e-6


def prior_counts(propensities: NDArray[np.float64], strength: float) -> NDArray[np.float64]:
    """Return (2, k) float64 pseudo-counts of a device that has seen no click yet, from these propensities.

    Row 0 is how often a position was examined, row 1 how often it was shown.

    Args:
        propensities: (k,) in (0, 1], below 1 after the first. From 1 the estimate could never fall: for a position that
            is surely examined relevance alone explains a missing click.
        strength: the weight of the prior, in result lists, above 0.

    Raises:
        SettingsError: a propensity is out of range.
    """
    if not ((propensities > 0.0) & (propensities <= 1.0)).all() or (propensities[1:] == 1.0).any():
        raise SettingsError(f"prior propensities lie in (0, 1], below 1 after the first: not {propensities.tolist()}")
    return np.stack((propensities * strength, np.full(propensities.shape, strength)))


def propensities_of(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (k,) float64 in [`LOWEST_PROPENSITY`, 1]: examined / shown, relative to the first position, which is 1.

    Args:
        counts: (2, k) float64, as `prior_counts` and `em_step` return them.

    Raises:
        DataError: counts out of range, as from a damaged state.
    """
    examined, shown = counts
    if not (np.isfinite(counts).all() and (shown > 0.0).all() and (examined >= 0.0).all() and examined[0] > 0.0):
        raise DataError("propensity counts must be finite and positive")
    rate = examined / shown
    propensities: NDArray[np.float64] = np.clip(rate / rate[0], LOWEST_PROPENSITY, 1.0)
    return propensities


def em_step(
    counts: NDArray[np.float64],
    f_weights: NDArray[np.float64],
    features: NDArray[np.float32],
    ranking: NDArray[np.int64],
    clicks: NDArray[np.bool_],
    learning_rate: float,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the device's counts and its relevance model after one interaction: one E-step and both M-steps.

    f <- f + learning_rate * mean over the shown documents of (P(R = 1 | C) - sigma(F(x))) (x, 1). A mean and not a sum,
    so that the longest stable step does not depend on how many documents are shown.

    Args:
        counts: (2, k) of this device.
        f_weights: (d + 1,), the last being the bias.
        features: (docs, d) float32.
        ranking: (m,) the documents shown, m <= k.
        clicks: (m,) bool.
        learning_rate: the step of F alone; the ranker's hinge loss needs far smaller ones. While F has learned little,
            the propensities are biased: with eight features in [0, 1] a user alone does best with 0.3 to 1, while 0.001
            spoils a correct prior. Up to 8 / (d + 1) is stable for any such features.

    Returns:
        (2, k) counts and (d + 1,) relevance weights, float64, new arrays.

    Raises:
        DataError: an empty list or documents outside the candidates, or the relevance model is not finite.
    """
    if ranking.size == 0:
        raise DataError("no document was shown, so nothing can be learned")
    if clicks.shape != ranking.shape or len(ranking) > counts.shape[1]:
        raise DataError(f"{len(ranking)} positions shown, {len(clicks)} clicks and {counts.shape[1]} propensities")
    if ranking.min() < 0 or ranking.max() >= features.shape[0]:
        raise DataError("a shown document is not among the candidates")
    shown = features[ranking]
    relevance = relevance_probability(f_weights, shown)
    examined, relevant = e_step(clicks, relevance, propensities_of(counts)[: len(ranking)])
    residual = relevant - relevance
    gradient: NDArray[np.float64] = np.append(residual @ shown.astype(np.float64), residual.sum()) / len(residual)
    return add_examined(counts, examined), f_weights + learning_rate * gradient


def add_examined(counts: NDArray[np.float64], examined: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (2, k) counts after one more result list: the running M-step of the propensities.

    Args:
        counts: (2, k); positions that were not shown are unchanged.
        examined: (m,) P(E = 1 | C) of the positions shown, m <= k.
    """
    length = examined.shape[0]
    after = counts.copy()
    # Shrinking both rows alike keeps their ratio, and caps the number of lists a position remembers.
    after[:, :length] *= np.minimum(1.0, (MEMORY - 1.0) / counts[1, :length])
    after[0, :length] += examined
    after[1, :length] += 1.0
    return after


def relevance_probability(f_weights: NDArray[np.floating], features: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return (docs,) float64 P(R = 1 | x) = sigma(F(x)), between 0 and 1, F(x) = f . (x, 1) (Wang et al. 2018).

    Args:
        f_weights: (d + 1,), the last being the bias.
        features: (docs, d) float32.

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
    """Return (m,) P(E = 1 | C) and (m,) P(R = 1 | C), float64: what clicks say of both (Wang et al. 2018).

    A click means both for certain. Without one, with t = P(E = 1) and g = P(R = 1):

        P(E = 1 | C = 0) = t (1 - g) / (1 - t g),    P(R = 1 | C = 0) = g (1 - t) / (1 - t g).

    Args:
        clicks: (m,) bool.
        relevance: (m,) float64 P(R = 1), in [0, 1).
        propensities: (m,) float64 P(E = 1), in (0, 1].
    """
    unclicked = 1.0 - propensities * relevance
    examined = np.where(clicks, 1.0, propensities * (1.0 - relevance) / unclicked)
    relevant = np.where(clicks, 1.0, relevance * (1.0 - propensities) / unclicked)
    return examined, relevant
