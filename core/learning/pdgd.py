"""PDGD: learn from clicks by pairwise preferences, corrected for the bias of the ranking that was shown.

Oosterhuis and de Rijke, "Differentiable Unbiased Online Learning to Rank" (CIKM 2018), as used by FPDGD (Wang et al.,
ICTIR 2021, Section 3.1, Algorithm 1). The gradient is taken with respect to the scores of the shown documents, which
are k numbers; a ranker only has to carry those back to its weights. For the linear ranker that is one weighted sum of
feature rows.

A pair of documents is weighted by its reversal: the probability that the list was shown with the two exchanged rather
than as it was, by the distribution that it was really drawn from (`foltr.core.learning.display`). Nothing else about
the draw matters. Using the learner's own scores for a list that it did not draw would correct a bias that the list does
not have.
"""

import math

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import DataError
from foltr.core.learning.display import MOST_COMPARED, pair_index, plackett_luce_reversals
from foltr.core.learning.linear import score
from foltr.core.learning.plackett_luce import are_exact, plackett_luce_sums, reversal_of_sums, which_are_shown
from foltr.core.numerics.compiled import compiled, compiled_instead_of


def pdgd_step(
    weights: NDArray[np.floating],
    features: NDArray[np.float32],
    ranking: NDArray[np.int64],
    clicks: NDArray[np.bool_],
    learning_rate: float,
    proximal: float = 0.0,
    base: NDArray[np.floating] | None = None,
    reversals: NDArray[np.float64] | None = None,
) -> NDArray[np.floating]:
    """Return the linear ranker's weights after one interaction: w + learning_rate * gradient.

    FPDGD, Algorithm 1, line 10. FedProx (Li et al. 2020; thesis, Section 4.4) pulls the local weights towards the
    global ones: w + learning_rate * (gradient - proximal * (w - base)).

    Args:
        weights: (d,).
        features: (docs, d) float32.
        ranking: (k,) the documents shown.
        clicks: (k,) whether each was clicked.
        learning_rate: the step; 0.1 in the published experiments.
        proximal: FedProx' mu, >= 0; 0 is plain FedAvg.
        base: (d,) the global weights that local training started from; needed if proximal is not 0.
        reversals: of the list as it was drawn, see `foltr.core.learning.display.DrawnList`; None if these weights drew
            it from their Plackett-Luce model.

    Returns:
        (d,) a new array of the weights' type.

    Raises:
        DataError: as `pdgd_gradient`.
    """
    scores = score(weights, features)
    anchor = weights if base is None else base.astype(weights.dtype, copy=False)
    if reversals is None:
        reversals = clicked_reversals(scores, ranking, clicks)
    return linear_step(weights, features, ranking, clicks, scores, reversals, learning_rate, proximal, anchor)


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
    reversals = clicked_reversals(scores, ranking, clicks)
    return _weighted_rows(features, ranking, score_gradient(scores, ranking, clicks, reversals))


@compiled
def score_gradient(
    scores: NDArray[np.floating],
    ranking: NDArray[np.int64],
    clicks: NDArray[np.bool_],
    reversals: NDArray[np.float64],
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
        reversals: rho of each pair, see `foltr.core.learning.display.DrawnList`.

    Returns:
        (k,) float64, in the order shown; it sums to zero.
    """
    length = ranking.shape[0]
    shown_scores = _shown_scores(scores, ranking)
    _check_lengths(length, clicks.shape[0], reversals.shape[0])
    gradient = np.zeros(length, np.float64)
    last_click, seen = _last_click_and_seen(clicks)
    for preferred in range(last_click + 1):
        if not clicks[preferred]:
            continue
        for other in range(seen):
            if clicks[other]:
                continue
            rho = reversals[pair_index(min(preferred, other), max(preferred, other), min(length, MOST_COMPARED))]
            decay = math.exp(-abs(shown_scores[preferred] - shown_scores[other]))
            weight = rho * decay / (1.0 + decay) ** 2
            gradient[preferred] += weight
            gradient[other] -= weight
    return gradient


@compiled
def clicked_reversals(
    scores: NDArray[np.floating], ranking: NDArray[np.int64], clicks: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return the reversals, of those pairs that clicks compare, of a list drawn by the scores' Plackett-Luce model.

    The others may be 0. Each is bit for bit that of `foltr.core.learning.display.sampled_list`; a simulator learns from
    each list once, and does not need the rest.

    Args:
        scores: (docs,) finite.
        ranking: (k,) int64 distinct document indices.
        clicks: (k,) bool.
    """
    length = ranking.shape[0]
    n = min(length, MOST_COMPARED)
    _check_lengths(length, clicks.shape[0], n * (n - 1) // 2)
    reversals = np.zeros(n * (n - 1) // 2, np.float64)
    last_click, seen = _last_click_and_seen(clicks)
    if last_click < 0:
        return reversals
    chances, left = plackett_luce_sums(scores, ranking)
    if not are_exact(chances, left):
        return plackett_luce_reversals(scores, ranking)
    for lower in range(1, seen):
        for upper in range(lower):
            if clicks[upper] != clicks[lower]:
                reversals[pair_index(upper, lower, n)] = reversal_of_sums(chances, left, upper, lower)
    return reversals


@compiled
def _last_click_and_seen(clicks: NDArray[np.bool_]) -> tuple[int, int]:
    """Return the position of the last click, -1 without one, and how many positions the user surely saw.

    Both within the positions that are compared.
    """
    n = min(clicks.shape[0], MOST_COMPARED)
    last_click = -1
    for i in range(n):
        if clicks[i]:
            last_click = i
    return last_click, min(last_click + 2, n)


@compiled
def _shown_scores(scores: NDArray[np.floating], ranking: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return (k,) scores in the order shown; DataError if the ranking does not fit these documents."""
    length = ranking.shape[0]
    shown_scores = np.empty(length, np.float64)
    which_are_shown(scores.shape[0], ranking)
    for i in range(length):
        shown_scores[i] = scores[ranking[i]]
        if not math.isfinite(shown_scores[i]):
            raise DataError("scores must be finite numbers to learn from")
    return shown_scores


@compiled
def _check_lengths(n_shown: int, n_clicks: int, n_reversals: int) -> None:
    if n_clicks != n_shown:
        raise DataError("clicks must have one entry for each document shown")
    n = min(n_shown, MOST_COMPARED)
    if n_reversals != n * (n - 1) // 2:
        raise DataError("reversals must have one entry for each pair of the documents shown")


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


def _linear_step_whole(
    weights: NDArray[np.floating],
    features: NDArray[np.float32],
    ranking: NDArray[np.int64],
    clicks: NDArray[np.bool_],
    scores: NDArray[np.floating],
    reversals: NDArray[np.float64],
    learning_rate: float,
    proximal: float,
    base: NDArray[np.floating],
) -> NDArray[np.floating]:
    if features.shape[0] != scores.shape[0] or features.shape[1] != weights.shape[0]:
        raise DataError("features must be documents by weights")
    if base.shape[0] != weights.shape[0]:
        raise DataError("the base weights must be as many as the weights")
    gradient = _weighted_rows(features, ranking, score_gradient(scores, ranking, clicks, reversals))
    return (weights + learning_rate * (gradient - proximal * (weights - base))).astype(weights.dtype)


@compiled_instead_of(_linear_step_whole)
def linear_step(
    weights: NDArray[np.floating],
    features: NDArray[np.float32],
    ranking: NDArray[np.int64],
    clicks: NDArray[np.bool_],
    scores: NDArray[np.floating],
    reversals: NDArray[np.float64],
    learning_rate: float,
    proximal: float,
    base: NDArray[np.floating],
) -> NDArray[np.floating]:
    """`pdgd_step` as one kernel, so that a step crosses from Python to machine code once."""
    if features.shape[0] != scores.shape[0] or features.shape[1] != weights.shape[0]:
        raise DataError("features must be documents by weights")
    if base.shape[0] != weights.shape[0]:
        raise DataError("the base weights must be as many as the weights")
    gradient = score_gradient(scores, ranking, clicks, reversals)
    # numba would make whole arrays of what a loop adds number by number.
    total = np.zeros(features.shape[1], np.float64)
    for i in range(ranking.shape[0]):
        if gradient[i] != 0.0:
            row = features[ranking[i]]
            for j in range(total.shape[0]):
                total[j] += gradient[i] * row[j]
    stepped = np.empty_like(weights)
    for j in range(total.shape[0]):
        stepped[j] = weights[j] + learning_rate * (total[j] - proximal * (weights[j] - base[j]))
    return stepped
