"""PDGD and FPDGD as in their papers, in plain NumPy, for comparison with ours.

Oosterhuis and de Rijke, "Differentiable Unbiased Online Learning to Rank" (CIKM 2018), Algorithm 1 and Equations 5 to
12; Wang et al., "Effective and Privacy-preserving Federated Online Learning to Rank" (ICTIR 2021), Algorithm 1. Each
step is that of the published programs: lists are drawn by ``choice`` without replacement; a list's probability and that
of each exchanged one come from arrays of pairs x positions x documents; the clicks of a list are drawn document by
document; a client takes one interaction after the other. Costs outside the method, such as copies of objects and
look-ups by identifiers, are left out, so this is somewhat faster than the programs.

It uses nothing of foltr's learning. A test compares gradients with `foltr.core.learning.pdgd`.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Places = NDArray[np.int64]


class Query(NamedTuple):
    """A query: (docs, d) features and (docs,) grades."""

    features: NDArray[np.float32]
    grades: NDArray[np.int16]


def drawn_list(scores: Floats, length: int, rng: np.random.Generator) -> Places:
    """Draw ``length`` documents in sequence, each by the softmax over the remaining ones (Eq. 2)."""
    ranking: list[int] = []
    while len(ranking) < length:
        left = np.exp(scores - scores.max())
        left[ranking] = 0.0
        if not left.any():  # the rest underflow: they get a separate softmax
            left = np.exp(scores - np.delete(scores, ranking).max())
            left[ranking] = 0.0
        chances = left / left.sum()
        possible = int(np.count_nonzero(chances > 1e-4 / len(scores)))
        more = rng.choice(len(scores), size=min(possible, length - len(ranking)), replace=False, p=chances)
        ranking.extend(more.tolist())
    return np.array(ranking)


def preferred(clicks: NDArray[np.bool_]) -> tuple[Places, Places]:
    """Return positions that were clicked, and seen ones that were not: up to the one below the last click."""
    (clicked,) = np.nonzero(clicks)
    if not clicked.size:
        return clicked, clicked
    seen = np.arange(min(len(clicks), clicked[-1] + 2))
    return clicked, seen[~clicks[seen]]


def list_probabilities(scores: Floats, lists: Places) -> Floats:
    """(lists, positions): the probability of each document at its place, given those above it (Eq. 2)."""
    n_lists, length = lists.shape
    gone = np.zeros((n_lists, length, len(scores)))
    gone[np.arange(n_lists)[:, None], np.arange(1, length)[None, :], lists[:, :-1]] = 1.0
    left = np.tile(scores, (n_lists, length, 1))
    left[np.cumsum(gone, axis=1) > 0] = -np.inf
    largest = left.max(axis=2)
    return np.exp(scores[lists] - largest) / np.exp(left - largest[:, :, None]).sum(axis=2)


def gradient(query: Query, scores: Floats, ranking: Places, clicks: NDArray[np.bool_]) -> Floats:
    """(d,) the sum over pairs of weight x slope (Eq. 9), each pair weighted by its list's reversal (Eq. 11)."""
    clicked, passed = preferred(clicks)
    if not (clicked.size and passed.size):
        return np.zeros(query.features.shape[1])
    better, worse = np.tile(clicked, len(passed)), np.repeat(passed, len(clicked))
    pairs = np.arange(len(better))
    exchanged = np.tile(ranking, (len(pairs), 1))
    exchanged[pairs, better], exchanged[pairs, worse] = ranking[worse], ranking[better]
    # Above the upper and below the lower document of a pair both lists are equally likely.
    positions = np.arange(len(ranking))
    between = (np.minimum(better, worse)[:, None] <= positions) & (positions <= np.maximum(better, worse)[:, None])
    shown = np.where(between, list_probabilities(scores, ranking[None, :]), 1.0).prod(axis=1)
    other = np.where(between, list_probabilities(scores, exchanged), 1.0).prod(axis=1)
    ahead, behind = scores[ranking[better]], scores[ranking[worse]]
    larger = np.maximum(ahead, behind)
    first, second = np.exp(ahead - larger), np.exp(behind - larger)
    weights = other / (shown + other) * first * second / (first + second) ** 2
    table = weights.reshape(len(passed), len(clicked))
    documents = np.concatenate([ranking[clicked], ranking[passed]])
    factors = np.concatenate([table.sum(axis=0), -table.sum(axis=1)])
    return (query.features[documents] * factors[:, None]).sum(axis=0)


def clicks_on(
    grades: NDArray[np.integer], click: Sequence[float], stop: Sequence[float], rng: np.random.Generator
) -> NDArray[np.bool_]:
    """(k,) clicks of a user who goes down the list, clicks by grade, and after a click stops by grade."""
    clicks = np.zeros(len(grades), np.bool_)
    for position, grade in enumerate(grades.tolist()):
        if rng.random() < click[grade]:
            clicks[position] = True
            if rng.random() < stop[grade]:
                break
    return clicks


def ndcg(grades: NDArray[np.integer], ranking: Places, k: int = 10) -> float:
    """Return the nDCG of one list, 0 without a relevant document."""

    def gain(ordered: list[int]) -> float:
        return sum((2**grade - 1) / np.log2(place + 2) for place, grade in enumerate(ordered[:k]))

    best = gain(sorted(grades.tolist(), reverse=True))
    return gain(grades[ranking].tolist()) / best if best else 0.0


class User:
    """A user and learner, one interaction after the other: a client of FPDGD, or the only learner.

    Args:
        click: probability of a click, by grade.
        stop: probability of stopping after a click, by grade.
    """

    def __init__(
        self, queries: Sequence[Query], click: Sequence[float], stop: Sequence[float], rng: np.random.Generator
    ) -> None:
        self._queries, self._click, self._stop, self._rng = queries, click, stop, rng
        self.online_ndcg: list[float] = []

    def learn(self, weights: Floats, n_interactions: int, learning_rate: float = 0.1, shown: int = 10) -> Floats:
        """(d,) the weights after ``n_interactions``, with a step after each (Algorithm 1 of both papers)."""
        for _ in range(n_interactions):
            query = self._queries[self._rng.integers(len(self._queries))]
            scores = query.features @ weights
            ranking = drawn_list(scores, min(shown, len(scores)), self._rng)
            self.online_ndcg.append(ndcg(query.grades, ranking))
            clicks = clicks_on(query.grades[ranking], self._click, self._stop, self._rng)
            weights = weights + learning_rate * gradient(query, scores, ranking, clicks)
        return weights


def federated_round(users: Sequence[User], weights: Floats, n_interactions: int) -> Floats:
    """(d,) the mean of the weights that all clients learn from the same start (FPDGD, Algorithm 1, without noise)."""
    return np.mean([user.learn(weights, n_interactions) for user in users], axis=0)
