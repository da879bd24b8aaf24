"""FedIPS: learn from clicks a device logged, weighted by how likely each shown position is examined.

Li and Ouyang, "Federated Unbiased Learning to Rank" (2021), Algorithm 1, after Agarwal et al., "A General
Framework for Counterfactual Learning-to-Rank" (SIGIR 2019). A clicked document counts 1/p times, where its
propensity p is the probability that its position is examined: what is seen rarely is made up for, so in
expectation over examination the clicks stand for relevance (Eq. 9). With all propensities one this is the
FedAvg baseline.

The rank of a clicked document d is bounded from above by hinges over all candidates d' (Eq. 3 and 4):

    h_d(w) = sum_d' max(0, 1 - (w . x_d - w . x_d')),

whose gradient sums x_d' - x_d over the candidates that are not at least 1 below d. The objective of Eq. 7
also divides by the number of the device's queries; line 6 of Algorithm 1 does not, and neither do we: it
would only rescale the learning rate, which the paper searches for.
"""

import math

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import DataError, SettingsError
from foltr.core.learning.linear import score
from foltr.core.numerics.compiled import compiled


def position_propensities(exponent: float, k: int) -> NDArray[np.float64]:
    """Return P(examined) = (1 / rank)^exponent for the ranks 1 to k (FedIPS, Section 4, click simulator).

    Args:
        exponent: how fast attention falls, at least 0; 0 examines everything.
        k: how many positions.

    Returns:
        (k,) float64 in (0, 1].

    Raises:
        SettingsError: the exponent is negative or not finite.
    """
    if not (math.isfinite(exponent) and exponent >= 0.0):
        raise SettingsError(f"an examination exponent is a finite number of at least 0, not {exponent}")
    propensities: NDArray[np.float64] = np.arange(1.0, k + 1.0) ** -exponent
    return propensities


def ips_step(
    weights: NDArray[np.float64],
    features: NDArray[np.float32],
    ranking: NDArray[np.int64],
    clicks: NDArray[np.bool_],
    propensities: NDArray[np.float64],
    learning_rate: float,
) -> NDArray[np.float64]:
    """Return the linear ranker's weights after one query: w <- w - learning_rate / p_d * grad h_d(w).

    FedIPS, Algorithm 1, lines 5 to 8: one such step for each clicked document, in the order shown, each from
    the weights the one before it left.

    Args:
        weights: (d,) float64.
        features: (docs, d) float32: all candidates, shown or not.
        ranking: (k,) distinct indices of the documents shown, best first.
        clicks: (k,) whether each was clicked.
        propensities: (k,) float64 in (0, 1], of the positions shown; ones for FedAvg.
        learning_rate: the step, eta_l.

    Returns:
        (d,) float64, a new array; equal to the weights without a click.

    Raises:
        DataError: shapes that do not fit, a document shown twice or outside the candidates, a propensity
            outside (0, 1], or a score that is not finite.
    """
    clicked, inverse = _checked_clicks(weights, features, ranking, clicks, propensities)
    after = weights.copy()
    for document, weight in zip(clicked.tolist(), inverse.tolist(), strict=True):
        after -= learning_rate * weight * _hinge_gradient(score(after, features), features, document)
    return after


def _checked_clicks(
    weights: NDArray[np.floating],
    features: NDArray[np.float32],
    ranking: NDArray[np.int64],
    clicks: NDArray[np.bool_],
    propensities: NDArray[np.float64],
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The clicked documents in the order shown, and 1/p of each; DataError as `ips_step` says."""
    if features.ndim != 2 or weights.shape != (features.shape[1],):
        raise DataError(f"features {features.shape} must be documents by the ranker's {weights.shape} weights")
    if not ranking.shape == clicks.shape == propensities.shape:
        raise DataError("clicks and propensities must have one entry for each document shown")
    return _clicked(features.shape[0], ranking, clicks, propensities)


@compiled
def _clicked(
    n_docs: int, ranking: NDArray[np.int64], clicks: NDArray[np.bool_], propensities: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    length = ranking.shape[0]
    shown = np.zeros(n_docs, np.bool_)
    clicked = np.empty(length, np.int64)
    inverse = np.empty(length, np.float64)
    n_clicked = 0
    for i in range(length):
        document = ranking[i]
        if document < 0 or document >= n_docs:
            raise DataError("a shown document is not among the candidates")
        if shown[document]:
            raise DataError("a document is shown twice")
        shown[document] = True
        # Written so that it also refuses NaN.
        if not (propensities[i] > 0.0 and propensities[i] <= 1.0):
            raise DataError("a propensity is outside (0, 1]")
        if clicks[i]:
            clicked[n_clicked] = document
            inverse[n_clicked] = 1.0 / propensities[i]
            n_clicked += 1
    return clicked[:n_clicked], inverse[:n_clicked]


@compiled
def _hinge_gradient(scores: NDArray[np.float32], features: NDArray[np.float32], document: int) -> NDArray[np.float64]:
    """Return grad h_d(w): the sum of x_d' - x_d over the candidates whose hinge is active (FedIPS, Eq. 4)."""
    total = np.zeros(features.shape[1], np.float64)
    own = scores[document]
    n_active = 0
    for other in range(scores.shape[0]):
        if not math.isfinite(scores[other]):
            raise DataError("scores must be finite numbers to learn from")
        if other != document and own - scores[other] < 1.0:
            total += features[other]
            n_active += 1
    gradient: NDArray[np.float64] = total - np.float64(n_active) * features[document]
    return gradient
