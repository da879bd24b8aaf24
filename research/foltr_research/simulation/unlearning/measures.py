"""Measures of how well a client was forgotten, and of the cost to the others.

Under-unlearning leaves something of the client in the model; over-unlearning removes what the remaining clients taught
it. One model alone shows neither. The reference is a model retrained without the client; two retrainings from different
interactions show how far apart such models are anyway.

A click list judges a ranker by its loss: the mean of log(1 + exp(s_q - s_p)) over the pairs in which PDGD sees document
p preferred over q (`foltr.core.learning.pdgd.score_gradient`). It needs no relevance grades, which no device has, and
also measures how well the ranker serves remaining clients. Whether a model still knows the leaver is the question of
`foltr_research.attacks.canary`.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import DataError, SettingsError
from foltr.core.learning.interaction import Interaction
from foltr.core.methods.base import checked_scores
from foltr.core.protocol.trainings import LinearRankerSpec, NeuralRankerSpec
from foltr.core.unlearning.measures import in_float64


def distance_gap(before: NDArray[np.floating], after: NDArray[np.floating], retrained: NDArray[np.floating]) -> float:
    """Return how much further than retraining an unlearned model moved from the one before, relative to retraining.

    |after - before| / |retrained - before| - 1: negative if too little was unlearned, positive if too much, as far as a
    length can show it. After the study's distance (Tao et al. 2025), which compares the two lengths.

    Args:
        before, after, retrained: (d,) models.

    Raises:
        DataError: retraining changes nothing, or the shapes differ.
    """
    moved, expected = (float(np.linalg.norm(np.subtract(*in_float64(one, before)))) for one in (after, retrained))
    if expected == 0.0:
        raise DataError("retraining did not move the model, so no distance can be compared with its own")
    return moved / expected - 1.0


def list_overlap(
    scores: NDArray[np.floating], others: NDArray[np.floating], offsets: NDArray[np.int64], k: int = 10, p: float = 0.9
) -> float:
    """Return the similarity of two rankers' lists: the mean rank-biased overlap of their first k documents.

    The sum over depths d of p^(d - 1) * |the first d of both| / d, over the sum of p^(d - 1): 1 for equal lists, 0 for
    lists without a common document (Webber, Moffat and Zobel 2010, cut off at k). Ties stay in the documents' order.

    Args:
        scores, others: (docs,) of all documents of all queries.
        offsets: (queries + 1,) offsets of each query's documents.

    Raises:
        DataError: the shapes differ.
    """
    first, second = in_float64(scores, others)
    found = np.empty(len(offsets) - 1)
    for i, (start, stop) in enumerate(pairwise(offsets.tolist())):
        one, other = (np.argsort(-of[start:stop], kind="stable")[:k] for of in (first, second))
        depths = np.arange(1, len(one) + 1)
        weights = p ** (depths - 1.0)
        common = np.array([len(np.intersect1d(one[:d], other[:d])) for d in depths.tolist()])
        found[i] = (weights * common / depths).sum() / weights.sum()
    return float(found.mean())


def click_losses(
    ranker: LinearRankerSpec | NeuralRankerSpec, weights: NDArray[np.floating], interactions: Sequence[Interaction]
) -> NDArray[np.float64]:
    """(interactions,) the pairwise loss of each list's clicks under a ranker, in nats; NaN without preferences.

    Every clicked document is preferred over every unclicked one above the last click, and over the first one after it.

    Args:
        weights: (n_weights,) of the ranker.

    Raises:
        DataError: scores are not finite.
    """
    losses = np.full(len(interactions), np.nan)
    for i, one in enumerate(interactions):
        clicked = np.flatnonzero(one.clicks)
        if not len(clicked):
            continue
        seen = np.arange(min(int(clicked[-1]) + 2, len(one.clicks)))
        skipped = seen[~one.clicks[seen]]
        if len(skipped):
            scores = checked_scores(ranker, weights, one.features).astype(np.float64)[one.ranking]
            losses[i] = np.logaddexp(0.0, scores[skipped][None, :] - scores[clicked][:, None]).mean()
    return losses


def steps_saved(interactions: int, local_interactions: int, interval: int) -> float:
    """Return how many times fewer local updates a client makes than by retraining: n / n' * delta t (Section 6.1.3).

    Args:
        interactions: the thesis' n, learned from per client and round of the federation.
        local_interactions: the thesis' n', learned from in a calibration round.
        interval: the thesis' delta t.

    Raises:
        SettingsError: one of them is below 1.
    """
    if min(interactions, local_interactions, interval) < 1:
        raise SettingsError(
            "interactions, local_interactions and interval must be at least 1, not "
            f"{interactions}, {local_interactions} and {interval}"
        )
    return interactions / local_interactions * interval
