"""How a list to be shown is drawn, and with which probability, which learning from its clicks needs.

Every function here returns a `DrawnList`. Learners use only its reversals as weights, independent of how the list was
drawn, so that a federation can explore as much as its users accept. Under any exploration, documents that users like
equally neither gain nor lose in expectation: a list and the same list with the two exchanged are weighted by each
other's probability (Oosterhuis and de Rijke, CIKM 2018, Section 4.3, for any distribution of lists).
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foltr.core.learning.linear import rank_by_score, sample_plackett_luce
from foltr.core.learning.plackett_luce import (
    are_exact,
    log_add_exp,
    plackett_luce_denominators,
    plackett_luce_sums,
    reversal_log_odds,
    reversal_of_sums,
    reversal_weight,
)
from foltr.core.numerics.compiled import compiled

MOST_COMPARED = 50
"""Pairs cover only the first so many positions: each pair of n takes up to n steps, and 8 bytes on the device."""


class DrawnList(NamedTuple):
    """A list that was drawn to be shown.

    Attributes:
        ranking: (k,) int64 distinct document indices, best first.
        log_probability: the natural logarithm of P(R), R being this ranking.
        reversals: (n (n - 1) / 2,) float64 in [0, 1], n being k or `MOST_COMPARED` if that is less: of each pair of
            positions i < j below n, row by row over i, P(R*) / (P(R) + P(R*)), R* being R with i and j exchanged.
    """

    ranking: NDArray[np.int64]
    log_probability: float
    reversals: NDArray[np.float64]


def best_list(scores: NDArray[np.floating], k: int) -> DrawnList:
    """Return the k best, with certainty: PDGD can learn nothing from clicks on them.

    Args:
        scores: (docs,) finite; of equal ones the lower index is shown first.
        k: the length wanted; fewer documents give a shorter list.
    """
    return _certain(rank_by_score(scores, k))


def sampled_list(
    scores: NDArray[np.floating], k: int, rng: np.random.Generator, temperature: float | None = None
) -> DrawnList:
    """Draw a list from the Plackett-Luce model of the scores.

    Args:
        scores: (docs,) finite.
        k: the length wanted.
        temperature: None: use the unscaled scores, so a larger learning rate or scale of features makes lists more
            certain. A number: use `standardised` scores divided by it.
    """
    if temperature is not None:
        scores = standardised(scores) / temperature
    ranking = sample_plackett_luce(scores, k, rng)
    return DrawnList(ranking, _log_probability(scores, ranking), plackett_luce_reversals(scores, ranking))


def sometimes_sampled_list(
    scores: NDArray[np.floating], k: int, rng: np.random.Generator, share: float, temperature: float
) -> DrawnList:
    """Draw a list from the Plackett-Luce model with probability ``share``, else show the k best.

    P(R) = (1 - share) [R is the best] + share P_PL(R), also for a best list that was drawn as a sample.

    Args:
        scores: (docs,) finite.
        k: the length wanted.
        share: in (0, 1].
        temperature: of a sample, as in `sampled_list`.
    """
    best = rank_by_score(scores, k)
    tempered = standardised(scores) / temperature
    ranking = sample_plackett_luce(tempered, k, rng) if rng.random() < share else best
    log_sampled, log_odds = plackett_luce_log_odds(tempered, ranking)
    log_best = math.log1p(-share) if share < 1.0 else -math.inf
    return DrawnList(ranking, *_mixture(log_sampled + math.log(share), log_odds, log_best, ranking, best))


def swapped_list(best: NDArray[np.int64], rng: np.random.Generator, probability: float) -> DrawnList:
    """Exchange neighbours: positions are paired (0, 1), (2, 3), ... or (1, 2), (3, 4), ... by a fair coin.

    Each pair is exchanged with its own probability (`exchange_probabilities`), so a document moves by at most one
    position. After Li et al., "BubbleRank: Safe Online Learning to Re-Rank via Implicit Click Feedback" (UAI 2019),
    whose probability is one half everywhere.

    Args:
        best: (k,) the order to show, best first.
        probability: in (0, 0.5], that the first two are exchanged if they are a pair.
    """
    first = int(rng.integers(2))
    likely = exchange_probabilities(len(best), probability)
    of_pairs = likely[first::2]
    swapped = first + 2 * (rng.random(len(of_pairs)) < of_pairs).nonzero()[0]
    ranking = best.copy()
    ranking[swapped], ranking[swapped + 1] = best[swapped + 1], best[swapped]
    return DrawnList(ranking, *_swap_reversals(len(best), swapped, likely))


@lru_cache(maxsize=64)
def exchange_probabilities(k: int, probability: float) -> NDArray[np.float64]:
    """Return (k - 1,), read-only: the probability of exchanging each pair of neighbours; at most 1/2.

    A user who wants the upper document of positions i and i + 1 (from 1) loses 1 / (i (i + 1)) of reciprocal rank by
    the exchange. So the probability rises by i (i + 1) / 2: cheaper exchanges leave more to learn from.

    This makes the price of exploration known before any list is shown. If the user wants the document at position i
    with probability p_i, and none is limited by 1/2, a list loses on average the sum over i of
    (p_i - p_(i + 1)) * probability / 4. That is (p_1 - p_k) * probability / 4, so at most a quarter of the probability.

    Args:
        probability: of the first pair, if they are a pair.
    """
    upper = np.arange(1.0, k)
    return np.minimum(0.5, probability * upper * (upper + 1.0) / 2.0)


def interleaved_list(
    model: NDArray[np.int64], base: NDArray[np.int64], rng: np.random.Generator
) -> tuple[DrawnList, NDArray[np.bool_]]:
    """Interleave two lists by team draft: two by two, a coin decides which first adds its best remaining document.

    Radlinski, Kurup and Joachims, "How Does Clickthrough Data Reflect Retrieval Quality?" (CIKM 2008), Algorithm 2.

    Args:
        model: (k,) distinct document indices, best first.
        base: (k,) likewise, of the same candidates.

    Returns:
        the list, and (k,) whether the document at each position was added by the model's turn.
    """
    n_documents = int(max(model.max(initial=-1), base.max(initial=-1))) + 1
    model_first = rng.random((len(model) + 1) // 2) < 0.5
    by_model = np.repeat(model_first, 2)[: len(model)] == (np.arange(len(model)) % 2 == 0)
    ranking = _draft(model, base, by_model, n_documents)
    return DrawnList(ranking, *_draft_reversals(model, base, ranking, n_documents)), by_model


def standardised(scores: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return (docs,) scores of mean 0 and standard deviation 1 over the candidates.

    If all are equal, the given order of the documents replaces them.
    """
    exact = scores.astype(np.float64)
    n = len(exact)
    if n == 0:
        return exact
    # Squares and even the sum of two of float32's largest overflow float32, but not float64. NumPy's means take longer
    # than the sum of a hundred scores.
    centred: NDArray[np.float64] = exact - np.add.reduce(exact) / n
    deviation = math.sqrt(np.add.reduce(centred * centred) / n)
    if deviation == 0.0:
        return standardised(-np.arange(n, dtype=np.float64)) if n > 1 else centred
    return centred / deviation


@compiled
def pair_index(upper: int, lower: int, n: int) -> int:
    """Return the index in `DrawnList.reversals` of n positions of the pair upper < lower."""
    return upper * (2 * n - upper - 1) // 2 + lower - upper - 1


@compiled
def plackett_luce_log_odds(
    scores: NDArray[np.floating], ranking: NDArray[np.int64]
) -> tuple[float, NDArray[np.float64]]:
    """Return log P(R) by the Plackett-Luce model, and log(P(R) / P(R*)) of each pair, ordered as `DrawnList.reversals`.

    Args:
        scores: (docs,) finite.
        ranking: (k,) int64 distinct document indices.
    """
    shown_scores, log_denominators = plackett_luce_denominators(scores, ranking)
    length = ranking.shape[0]
    n = min(length, MOST_COMPARED)
    log_odds = np.empty(n * (n - 1) // 2, np.float64)
    for upper in range(n):
        for lower in range(upper + 1, n):
            log_odds[pair_index(upper, lower, n)] = reversal_log_odds(shown_scores, log_denominators, upper, lower)
    return np.sum(shown_scores - log_denominators[:length]), log_odds


@compiled
def _log_probability(scores: NDArray[np.floating], ranking: NDArray[np.int64]) -> float:
    shown_scores, log_denominators = plackett_luce_denominators(scores, ranking)
    return float(np.sum(shown_scores - log_denominators[: ranking.shape[0]]))


@compiled
def plackett_luce_reversals(scores: NDArray[np.floating], ranking: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return `DrawnList.reversals` of a list drawn by the Plackett-Luce model; see `plackett_luce_log_odds`."""
    n = min(ranking.shape[0], MOST_COMPARED)
    reversals = np.empty(n * (n - 1) // 2, np.float64)
    if n < 2:
        return reversals
    chances, left = plackett_luce_sums(scores, ranking)
    if not are_exact(chances, left):
        return reversal_weights(plackett_luce_log_odds(scores, ranking)[1])
    for upper in range(n):
        for lower in range(upper + 1, n):
            reversals[pair_index(upper, lower, n)] = reversal_of_sums(chances, left, upper, lower)
    return reversals


@compiled
def reversal_weights(log_odds: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return rho of each pair from log(P(R) / P(R*))."""
    reversals = np.empty(log_odds.shape[0], np.float64)
    for i in range(log_odds.shape[0]):
        reversals[i] = reversal_weight(log_odds[i])
    return reversals


def _certain(ranking: NDArray[np.int64]) -> DrawnList:
    n = min(len(ranking), MOST_COMPARED)
    return DrawnList(ranking, 0.0, np.zeros(n * (n - 1) // 2))


@compiled
def _mixture(
    log_sampled: float,
    log_odds: NDArray[np.float64],
    log_best: float,
    ranking: NDArray[np.int64],
    best: NDArray[np.int64],
) -> tuple[float, NDArray[np.float64]]:
    """Return log P(R) and the reversals of a list that is either the best one or a sample.

    Args:
        log_sampled: the logarithm of the probability that a sample is shown and is this list.
        log_odds: of its pairs if sampled.
        log_best: the logarithm of the probability that the best list is shown without sampling.
        ranking: (k,) the list.
        best: (k,) the best list.
    """
    n = min(ranking.shape[0], MOST_COMPARED)
    n_different = np.sum(ranking != best)
    log_probability = log_add_exp(log_best, log_sampled) if n_different == 0 else log_sampled
    reversals = np.empty(log_odds.shape[0], np.float64)
    for upper in range(n):
        for lower in range(upper + 1, n):
            pair = pair_index(upper, lower, n)
            log_reversed = log_sampled - log_odds[pair]
            if n_different == 2 and ranking[upper] == best[lower] and ranking[lower] == best[upper]:
                log_reversed = log_add_exp(log_best, log_reversed)
            reversals[pair] = reversal_weight(log_probability - log_reversed)
    return log_probability, reversals


def _swap_reversals(
    k: int, swapped: NDArray[np.int64], likely: NDArray[np.float64]
) -> tuple[float, NDArray[np.float64]]:
    """Return log P(R) and the reversals of a list of k with these pairs of neighbours exchanged.

    Only neighbours can be exchanged again, and only if that leaves exchanges of one pairing; else R* is impossible. No
    kernel is called, so that a device's first list need not wait for a compiler.

    Args:
        likely: (k - 1,) probability of each pair to be exchanged, see `exchange_probabilities`.
    """
    log_unlikely = np.log1p(-likely)
    of_each = np.log(likely) - log_unlikely
    unchanged = [math.log(0.5) + float(np.add.reduce(log_unlikely[parity::2])) for parity in (0, 1)]
    either = float(np.logaddexp(unchanged[0], unchanged[1]))  # both pairings can leave the order as it is
    n_swapped = len(swapped)
    shown = unchanged[swapped[0] % 2] + float(np.add.reduce(of_each[swapped])) if n_swapped else either
    # Python's numbers from here on: reading one from an array takes as long as adding ten of these.
    log_odds, exchanged_ones = of_each.tolist(), swapped.tolist()
    n = min(k, MOST_COMPARED)
    of_pairs = np.zeros(n * (n - 1) // 2)
    at = 0  # pairs are row by row: a document with the documents below it
    for upper in range(n - 1):
        neighbours, at = at, at + n - 1 - upper
        if n_swapped and upper % 2 != exchanged_ones[0] % 2:
            continue
        if n_swapped == 0:
            exchanged = unchanged[upper % 2] + log_odds[upper]
        elif n_swapped == 1 and upper == exchanged_ones[0]:
            exchanged = either
        else:
            exchanged = shown - log_odds[upper] if upper in exchanged_ones else shown + log_odds[upper]
        of_pairs[neighbours] = 1.0 / (1.0 + math.exp(shown - exchanged))
    return shown, of_pairs


@compiled
def _draft(
    model: NDArray[np.int64], base: NDArray[np.int64], by_model: NDArray[np.bool_], n_documents: int
) -> NDArray[np.int64]:
    """Return (k,) the list drawn by the coins, which decide whose turn each position is."""
    length = model.shape[0]
    ranking = np.empty(length, np.int64)
    taken = np.zeros(n_documents, np.bool_)
    at_model = at_base = 0
    for i in range(length):
        at_model, at_base = _next_left(model, taken, at_model), _next_left(base, taken, at_base)
        ranking[i] = model[at_model] if by_model[i] else base[at_base]
        taken[ranking[i]] = True
    return ranking


@compiled
def _draft_reversals(
    model: NDArray[np.int64], base: NDArray[np.int64], ranking: NDArray[np.int64], n_documents: int
) -> tuple[float, NDArray[np.float64]]:
    """Return log P(R) and the reversals of a list made by team draft."""
    length = ranking.shape[0]
    n = min(length, MOST_COMPARED)
    reversals = np.zeros(n * (n - 1) // 2, np.float64)
    shown = _log_draft_probability(model, base, ranking, 0, length, np.zeros(n_documents, np.bool_))
    taken = np.zeros(n_documents, np.bool_)
    for upper in range(n):
        # A coin decides two positions. Outside the coins of the two documents, and those in between, the exchanged list
        # is the same and as probable, so only this part counts.
        start = upper - upper % 2
        for lower in range(upper + 1, n):
            end = min(lower - lower % 2 + 2, length)
            exchanged = ranking.copy()
            exchanged[upper], exchanged[lower] = ranking[lower], ranking[upper]
            reversed_part = _log_draft_probability(model, base, exchanged, start, end, taken.copy())
            if reversed_part > -np.inf:
                part = _log_draft_probability(model, base, ranking, start, end, taken.copy())
                reversals[pair_index(upper, lower, n)] = reversal_weight(part - reversed_part)
        if upper % 2:
            taken[ranking[start]] = taken[ranking[upper]] = True
    return shown, reversals


@compiled
def _log_draft_probability(
    model: NDArray[np.int64],
    base: NDArray[np.int64],
    ranking: NDArray[np.int64],
    start: int,
    end: int,
    taken: NDArray[np.bool_],
) -> float:
    """Return log P of a part of the list, given the documents above it; minus infinity if it is impossible.

    Each two positions depend on one coin: its two sides make one list each, which may be equal.

    Args:
        start, end: even, the part's first position and the one after it; the end may be the list's too.
        taken: (documents,) whether each is above ``start``; written to.
    """
    length = ranking.shape[0]
    log_probability = 0.0
    at_model = at_base = 0
    for i in range(start, end, 2):
        at_model, at_base = _next_left(model, taken, at_model), _next_left(base, taken, at_base)
        n_sides = 0
        for first, at_first, second, at_second in ((model, at_model, base, at_base), (base, at_base, model, at_model)):
            fits = ranking[i] == first[at_first]
            if fits and i + 1 < length:
                taken[ranking[i]] = True
                fits = ranking[i + 1] == second[_next_left(second, taken, at_second)]
                taken[ranking[i]] = False
            n_sides += fits
        if n_sides == 0:
            return -np.inf
        log_probability += math.log(0.5 * n_sides)
        taken[ranking[i : i + 2]] = True
    return log_probability


@compiled
def _next_left(order: NDArray[np.int64], taken: NDArray[np.bool_], at: int) -> int:
    """Return the first index from ``at`` on of a remaining document; one exists while a position is left."""
    while taken[order[at]]:
        at += 1
    return at
