"""PDGD: learn from clicks by pairwise preferences, freed of the bias of the ranking that was shown.

Oosterhuis and de Rijke, "Differentiable Unbiased Online Learning to Rank" (CIKM 2018), as used by FPDGD
(Wang et al., ICTIR 2021, Section 3.1, Algorithm 1). The gradient is taken with respect to the scores of the
shown documents, where it has k numbers; a ranker only has to carry those back to its weights. For the linear
ranker that is one weighted sum of feature rows.

The pair weight needs the probability of the shown ranking and of the same ranking with the pair swapped.
Their ratio depends only on the Plackett-Luce denominators between the two positions, so no ranking's
probability is ever computed. Denominators are kept as logarithms and built by adding from the bottom of the
list upwards: nothing is subtracted, so scores of any size neither overflow nor cancel.

It is the probability by the ranker that drew the list. Where other weights learn from it later, they need the
scores it was drawn by: with their own, they would take out a bias that the list does not have.
"""

import math

import numpy as np
from numpy.typing import NDArray

from foltr.errors import DataError
from foltr.learning.linear import score
from foltr.numerics.compiled import compiled

# exp of a larger number overflows float64; a weight of exp(-700) is zero for every purpose here.
_LARGEST_EXPONENT = 700.0


def pdgd_step(
    weights: NDArray[np.floating],
    features: NDArray[np.float32],
    ranking: NDArray[np.int64],
    clicks: NDArray[np.bool_],
    learning_rate: float,
    scores: NDArray[np.floating] | None = None,
    proximal: float = 0.0,
    base: NDArray[np.floating] | None = None,
    drawn_by: NDArray[np.floating] | None = None,
) -> NDArray[np.floating]:
    """Return the linear ranker's weights after one interaction: w + learning_rate * gradient.

    FPDGD, Algorithm 1, line 10. FedProx (Li et al. 2020; thesis, Section 4.4) pulls the local weights towards
    the global ones: w + learning_rate * (gradient - proximal * (w - base)).

    Args:
        weights: (d,).
        features: (docs, d) float32.
        ranking: (k,) the documents shown.
        clicks: (k,) whether each was clicked.
        learning_rate: the step; 0.1 in the published experiments.
        scores: (docs,) scores of these documents under these weights, if the caller still has them from
            ranking.
        proximal: FedProx' mu, >= 0; 0 is plain FedAvg.
        base: (d,) the global weights that local training started from; needed where proximal is not 0.
        drawn_by: (docs,) the scores the list was drawn by; None where these weights drew it.

    Returns:
        (d,) a new array of the weights' type.

    Raises:
        DataError: as `pdgd_gradient`.
    """
    if scores is None:
        scores = score(weights, features)
    anchor = weights if base is None else base.astype(weights.dtype, copy=False)
    drawn_by = scores if drawn_by is None else drawn_by
    return linear_step(weights, features, ranking, clicks, scores, drawn_by, learning_rate, proximal, anchor)


def pdgd_gradient(
    weights: NDArray[np.floating],
    features: NDArray[np.float32],
    ranking: NDArray[np.int64],
    clicks: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """Estimate the direction in which the linear ranker agrees better with the clicks (FPDGD, Eq. 5 and 6).

    Args:
        weights: (d,).
        features: (docs, d) float32: all candidates, since the denominators run over the documents not shown
            too.
        ranking: (k,) distinct indices of the documents shown, best first.
        clicks: (k,) whether each shown document was clicked.

    Returns:
        (d,) float64, to be added to the weights; zero without a click or without a preference.

    Raises:
        DataError: the ranking and the clicks differ in length, a document index is repeated or outside the
            candidates, or a score is not finite.
    """
    scores = score(weights, features)
    return _weighted_rows(features, ranking, score_gradient(scores, ranking, clicks, scores))


@compiled
def score_gradient(
    scores: NDArray[np.floating],
    ranking: NDArray[np.int64],
    clicks: NDArray[np.bool_],
    drawn_by: NDArray[np.floating],
) -> NDArray[np.float64]:
    """Return the PDGD gradient with respect to the scores of the shown documents.

    Every clicked document is preferred over every unclicked one that the user surely saw: those above the
    last click and the first one after it. A preference of document p over q adds rho * sigma'(s_p - s_q) to
    the gradient of p and takes it from q's (FPDGD, Eq. 5), where sigma' is the slope of the logistic
    function.

    Args:
        scores: (docs,) finite scores of all candidates.
        ranking: (k,) int64 distinct indices of the documents shown, best first.
        clicks: (k,) bool.
        drawn_by: (docs,) finite scores that the list was drawn by; rho is theirs. ``scores`` itself where they drew it.

    Returns:
        (k,) float64, in the order shown; it sums to zero.
    """
    if drawn_by.shape[0] != scores.shape[0]:
        raise DataError("the scores that a list was drawn by must be as many as the candidates")
    drawn_scores, log_denominators = plackett_luce_denominators(drawn_by, ranking)
    length = ranking.shape[0]
    if clicks.shape[0] != length:
        raise DataError("clicks must have one entry for each document shown")
    shown_scores = np.empty(length, np.float64)
    for i in range(length):
        shown_scores[i] = scores[ranking[i]]
        if not math.isfinite(shown_scores[i]):
            raise DataError("scores must be finite numbers to learn from")
    gradient = np.zeros(length, np.float64)
    last_click = -1
    for i in range(length):
        if clicks[i]:
            last_click = i
    seen = min(last_click + 2, length)
    for preferred in range(last_click + 1):
        if not clicks[preferred]:
            continue
        for other in range(seen):
            if clicks[other]:
                continue
            rho = reversal_weight(drawn_scores, log_denominators, min(preferred, other), max(preferred, other))
            decay = math.exp(-abs(shown_scores[preferred] - shown_scores[other]))
            weight = rho * decay / (1.0 + decay) ** 2
            gradient[preferred] += weight
            gradient[other] -= weight
    return gradient


@compiled
def plackett_luce_denominators(
    scores: NDArray[np.floating], ranking: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the shown documents' scores and the logarithms of the Plackett-Luce denominators (FPDGD, Eq. 2).

    Args:
        scores: (docs,).
        ranking: (k,) int64 distinct document indices.

    Returns:
        (k,) float64 scores in the order shown, and (k + 1,) float64 log denominators: entry i covers the
        documents at position i and below with all that were not shown; the last covers only the latter, minus
        infinity if none.
    """
    length = ranking.shape[0]
    not_shown = scores.astype(np.float64)
    shown_scores = np.empty(length, np.float64)
    for i in range(length):
        document = ranking[i]
        # Compiled code checks no bounds: a wrong index must stop here.
        if document < 0 or document >= scores.shape[0]:
            raise DataError("a shown document is not among the candidates")
        if not_shown[document] == -np.inf:
            raise DataError("a document is shown twice, or its score is minus infinity")
        shown_scores[i] = not_shown[document]
        not_shown[document] = -np.inf
    log_denominators = np.full(length + 1, -np.inf)
    if length < scores.shape[0]:
        largest = np.max(not_shown)
        log_denominators[length] = largest + math.log(np.sum(np.exp(not_shown - largest)))
    for i in range(length - 1, -1, -1):
        log_denominators[i] = log_add_exp(log_denominators[i + 1], shown_scores[i])
    if not math.isfinite(log_denominators[0]):
        raise DataError("scores must be finite numbers to learn from")
    return shown_scores, log_denominators


@compiled
def reversal_weight(
    shown_scores: NDArray[np.float64], log_denominators: NDArray[np.float64], upper: int, lower: int
) -> float:
    """Return rho = P(R*) / (P(R) + P(R*)) for the shown ranking R and R* with two positions swapped.

    FPDGD, Eq. 6. The numerators of P(R) and P(R*) are the same product, and so are the denominators outside
    upper < i <= lower. Inside, the sums of R* follow from the one below `lower`, with the upper document
    standing in for the lower one.

    Args:
        shown_scores: (k,) float64.
        log_denominators: (k + 1,) float64 of R.
        upper: 0-based position, < lower.
        lower: 0-based position.

    Returns:
        a number in [0, 1].
    """
    swapped = log_add_exp(log_denominators[lower + 1], shown_scores[upper])
    log_odds = swapped - log_denominators[lower]
    for i in range(lower - 1, upper, -1):
        swapped = log_add_exp(swapped, shown_scores[i])
        log_odds += swapped - log_denominators[i]
    return 1.0 / (1.0 + math.exp(min(log_odds, _LARGEST_EXPONENT)))


@compiled
def log_add_exp(left: float, right: float) -> float:
    """Return log(exp(left) + exp(right)) for a finite right and a left that may be minus infinity."""
    if left > right:
        return left + math.log1p(math.exp(right - left))
    return right + math.log1p(math.exp(left - right))


@compiled
def _weighted_rows(
    features: NDArray[np.float32], ranking: NDArray[np.int64], row_weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Carry a gradient of the shown scores back to linear weights: a weighted sum of feature rows."""
    total = np.zeros(features.shape[1], np.float64)
    for i in range(ranking.shape[0]):
        # Most shown documents are in no pair; skipping them saves most of this pass.
        if row_weights[i] != 0.0:
            total += row_weights[i] * features[ranking[i]]
    return total


@compiled
def linear_step(
    weights: NDArray[np.floating],
    features: NDArray[np.float32],
    ranking: NDArray[np.int64],
    clicks: NDArray[np.bool_],
    scores: NDArray[np.floating],
    drawn_by: NDArray[np.floating],
    learning_rate: float,
    proximal: float,
    base: NDArray[np.floating],
) -> NDArray[np.floating]:
    """`pdgd_step` as one kernel, so that a step crosses from Python to machine code once."""
    if features.shape[0] != scores.shape[0] or features.shape[1] != weights.shape[0]:
        raise DataError("features must be documents by weights")
    if base.shape[0] != weights.shape[0]:
        raise DataError("the base weights must be as many as the weights")
    gradient = _weighted_rows(features, ranking, score_gradient(scores, ranking, clicks, drawn_by))
    return (weights + learning_rate * (gradient - proximal * (weights - base))).astype(weights.dtype)
