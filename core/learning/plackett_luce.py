"""The Plackett-Luce model of a ranking: its probability, and that of the same ranking with a pair exchanged.

Wang et al., "Effective and Privacy-preserving Federated Online Learning to Rank" (ICTIR 2021, FPDGD), Eq. 1, 2 and 6.
The ratio of two such probabilities depends only on the denominators between the two positions, so none is ever
computed for it. Denominators are built by adding from the bottom of the list upwards: nothing is subtracted, so nothing
cancels. They are sums of exponentials or, for scores so far apart that these would leave float64, their logarithms.
"""

import math

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import DataError
from foltr.core.numerics.compiled import compiled
from foltr.core.numerics.exponentials import exponentials

# exp of a larger number overflows float64; a weight of exp(-700) is zero for every purpose here.
_LARGEST_EXPONENT = 700.0
# Of documents that differ more in their chances, sums and quotients would leave float64.
_LEAST_CHANCE = 1e-280


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
def reversal_log_odds(
    shown_scores: NDArray[np.float64], log_denominators: NDArray[np.float64], upper: int, lower: int
) -> float:
    """Return log(P(R) / P(R*)) for the shown ranking R and R* with two positions exchanged.

    FPDGD, Eq. 6. The numerators of P(R) and P(R*) are the same product, and so are the denominators outside
    upper < i <= lower. Inside, the sums of R* follow from the one below `lower`, with the upper document
    standing in for the lower one.

    Args:
        shown_scores: (k,) float64.
        log_denominators: (k + 1,) float64 of R.
        upper: 0-based position, < lower.
        lower: 0-based position.
    """
    swapped = log_add_exp(log_denominators[lower + 1], shown_scores[upper])
    log_odds = swapped - log_denominators[lower]
    for i in range(lower - 1, upper, -1):
        swapped = log_add_exp(swapped, shown_scores[i])
        log_odds += swapped - log_denominators[i]
    return float(log_odds)


@compiled
def reversal_weight(log_odds: float) -> float:
    """Return rho = P(R*) / (P(R) + P(R*)) in [0, 1] from log(P(R) / P(R*)), which is infinite if R* is impossible."""
    if log_odds == np.inf:
        return 0.0
    return 1.0 / (1.0 + math.exp(min(log_odds, _LARGEST_EXPONENT)))


@compiled
def log_add_exp(left: float, right: float) -> float:
    """Return log(exp(left) + exp(right)) for a finite right and a left that may be minus infinity."""
    if left > right:
        return left + math.log1p(math.exp(right - left))
    return right + math.log1p(math.exp(left - right))


@compiled
def plackett_luce_sums(
    scores: NDArray[np.floating], ranking: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return exp(score - first score) of the shown documents, (k,), and (k + 1,) their sums.

    Sum i covers the documents at position i and below with all that were not shown.

    Args:
        scores: (docs,).
        ranking: (k,) int64 distinct document indices, at least one.
    """
    length = ranking.shape[0]
    which_are_shown(scores.shape[0], ranking)
    of_all = exponentials(scores, np.float64(scores[ranking[0]]))
    chances, left = np.empty(length, np.float64), np.empty(length + 1, np.float64)
    for i in range(length):
        chances[i] = of_all[ranking[i]]
        of_all[ranking[i]] = 0.0
    left[length] = of_all.sum()
    for i in range(length - 1, -1, -1):
        left[i] = left[i + 1] + chances[i]
    return chances, left


@compiled
def are_exact(chances: NDArray[np.float64], left: NDArray[np.float64]) -> bool:
    """Whether results of `plackett_luce_sums` are finite and so large that quotients of them are exact to rounding."""
    return bool(chances.min() > _LEAST_CHANCE and left[0] < 1.0 / _LEAST_CHANCE)


@compiled
def reversal_of_sums(chances: NDArray[np.float64], left: NDArray[np.float64], upper: int, lower: int) -> float:
    """Return rho of two positions, as `reversal_weight` of `reversal_log_odds`, from `plackett_luce_sums`.

    It needs no exponential of a pair.
    """
    # P(R) / P(R*). All factors are on the same side of 1, so it may overflow or vanish, but is never undefined.
    swapped = left[lower + 1] + chances[upper]
    odds = swapped / left[lower]
    for i in range(lower - 1, upper, -1):
        swapped += chances[i]
        odds *= swapped / left[i]
    rho: float = 1.0 / (1.0 + odds)
    return rho


@compiled
def which_are_shown(n_documents: int, ranking: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return (n_documents,) whether each is in the ranking; DataError if that does not fit these documents."""
    is_shown = np.zeros(n_documents, np.bool_)
    for document in ranking:
        # Compiled code checks no bounds: a wrong index must stop here.
        if document < 0 or document >= n_documents:
            raise DataError("a shown document is not among the candidates")
        if is_shown[document]:
            raise DataError("a document is shown twice")
        is_shown[document] = True
    return is_shown
