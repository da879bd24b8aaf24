"""The linear ranker: scores, the ranking by score, and a ranking drawn from the scores.

A ranking is an array of document indices, best first. Nothing here changes an argument except the random
generator.
"""

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import DataError
from foltr.core.numerics.compiled import compiled, compiled_instead_of

# Up to here, inserting into a short list is faster than sorting all; measured at 50 to 10,000 documents.
_SELECT_AT_MOST = 24


@compiled
def score(weights: NDArray[np.floating], features: NDArray[np.float32]) -> NDArray[np.float32]:
    """Score documents with a linear ranker, f(x) = w . x.

    A kernel, although it is one call of BLAS, so that a simulator that scores inside a larger kernel uses the same
    library and gets the same bits.

    Args:
        weights: (d,).
        features: (docs, d) float32, C order.

    Returns:
        (docs,) float32. The weights are rounded to the features' type first: casting the features would copy the larger
        array for every query.
    """
    return features @ weights.astype(features.dtype)


def rank_by_score(scores: NDArray[np.floating], k: int) -> NDArray[np.int64]:
    """Return the k best documents by descending score; equal scores keep the document order.

    Args:
        scores: (docs,) finite.
        k: the length wanted; a shorter list of documents gives a shorter ranking.

    Returns:
        (min(k, docs),) int64 document indices.

    Raises:
        DataError: a score is not a number or minus infinity.
    """
    return top_k(scores, min(k, scores.shape[0]))


def sample_plackett_luce(scores: NDArray[np.floating], k: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Draw a ranking without replacement from the Plackett-Luce model of the scores.

    P(d first) = exp(s_d) / sum_d' exp(s_d'), then the same among the rest (Wang et al. 2021, FPDGD, Eq. 1 and 2).
    Adding independent Gumbel noise to the scores and taking the k largest has exactly this law (Yellott 1977), needs no
    normalisation and so no protection against overflow; minus the logarithm of a standard exponential variable is
    Gumbel noise.

    Args:
        scores: (docs,) finite.
        k: the length wanted; a shorter list of documents gives a shorter ranking.
        rng: advanced by one exponential draw per document, for any k.

    Returns:
        (min(k, docs),) int64 document indices, in the order shown.
    """
    log_times = np.log(rng.standard_exponential(scores.shape))
    return exponential_race(scores, log_times, min(k, scores.shape[0]))


@compiled
def exponential_race(scores: NDArray[np.floating], log_times: NDArray[np.float64], k: int) -> NDArray[np.int64]:
    """The kernel of `sample_plackett_luce`: the first k of a race.

    Document d takes the time exp(log_times[d]) / exp(scores[d]); sooner is better. The logarithms are the
    caller's business because NumPy takes them several at a time.

    Args:
        scores: (docs,) finite.
        log_times: (docs,) float64 logarithms of standard exponential variables.
        k: 0 <= k <= docs.

    Returns:
        (k,) int64.
    """
    return top_k(scores - log_times, k)


def _top_k_whole(keys: NDArray[np.floating], k: int) -> NDArray[np.int64]:
    if not np.all(keys > -np.inf):
        raise DataError("scores must be finite numbers to rank by")
    return np.argsort(-keys, kind="stable")[:k]


@compiled_instead_of(_top_k_whole)
def top_k(keys: NDArray[np.floating], k: int) -> NDArray[np.int64]:
    """Return the indices of the k largest keys in descending order, the lower index first among equals.

    Args:
        keys: (n,).
        k: 0 <= k <= n.

    Returns:
        (k,) int64.
    """
    if not np.all(keys > -np.inf):
        raise DataError("scores must be finite numbers to rank by")
    if k > _SELECT_AT_MOST:
        return np.argsort(-keys, kind="mergesort")[:k]
    n = keys.shape[0]
    best_keys, best = keys[:k].astype(np.float64), np.empty(k, np.int64)
    # The largest of each of k groups are k keys, so no smaller one than all of them is among the best.
    for start in range(k, n + 1 - k, max(k, 1)):
        for j in range(k):
            best_keys[j] = max(best_keys[j], keys[start + j])
    candidates, n_candidates = np.empty(n + 1, np.int64), 0
    if k > 0:
        least = best_keys.min()
        for i in range(n):
            candidates[n_candidates] = i
            n_candidates += keys[i] >= least
    # One pass that keeps the best so far in order.
    held = 0
    for i in candidates[:n_candidates]:
        if held == k and keys[i] <= best_keys[k - 1]:
            continue
        at = min(held, k - 1)
        held = at + 1
        while at > 0 and best_keys[at - 1] < keys[i]:
            best_keys[at] = best_keys[at - 1]
            best[at] = best[at - 1]
            at -= 1
        best_keys[at] = keys[i]
        best[at] = i
    return best
