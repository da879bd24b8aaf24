"""LambdaRank with a linear ranker: the upper reference, which sees the relevance grades instead of clicks.

Burges, "From RankNet to LambdaRank to LambdaMART: An Overview" (MSR-TR-2010-82), Section 4; in FedIPS (Section 4) it is
the reference and, on 1 % of the queries, the policy whose rankings are shown and clicked.

For documents i and j of one query with grade i > grade j, the pair pushes i up and j down by

    lambda_ij = |delta nDCG@k of swapping them| / (1 + exp(s_i - s_j)).

Swapping two documents of which neither is among the first k changes nothing, so a query costs k * docs pairs instead of
docs^2.
"""

import math

import numpy as np
from numpy.typing import NDArray

from foltr.core.data.dataset import RankingDataset
from foltr.core.errors import DataError, SettingsError
from foltr.core.learning.linear import score
from foltr.core.numerics.compiled import compiled

# exp of a larger number overflows float64; a pair so far apart in the right order pushes no further.
_LARGEST_EXPONENT = 700.0

FIRMNESS = 2.0
"""The standard deviation of scores over a query's candidates, as of 8 times one feature in [0, 1]: firm enough to begin
with, and low enough for some hundred interactions to change."""


def fit_lambdarank(
    dataset: RankingDataset,
    rng: np.random.Generator,
    learning_rate: float = 0.003,
    epochs: int = 50,
    k: int = 10,
    weights: NDArray[np.floating] | None = None,
    queries: NDArray[np.int64] | None = None,
) -> NDArray[np.float32]:
    """Fit a linear ranker to the relevance grades: one gradient step per query, in a random order each epoch.

    Args:
        dataset: with features in [0, 1].
        rng: advanced by one permutation of the queries per epoch.
        learning_rate: the step.
        epochs: how often each query is visited.
        k: the cut-off of the nDCG that is improved.
        weights: (d,) to start from; zeros by default.
        queries: indices of the queries to learn from; all by default.

    Returns:
        (d,) float32.

    Raises:
        DataError: no query has documents of different grades, the weights do not fit, or the scores diverged.
        SettingsError: a learning rate, number of epochs or cut-off out of range.
    """
    if not (math.isfinite(learning_rate) and learning_rate > 0.0):
        raise SettingsError(f"a learning rate is a finite number above 0, not {learning_rate}")
    if epochs < 1 or k < 1:
        raise SettingsError(f"LambdaRank needs at least one epoch and one rank, not {epochs} and {k}")
    current = np.zeros(dataset.n_features) if weights is None else weights.astype(np.float64)
    if current.shape != (dataset.n_features,):
        raise DataError(f"{dataset.name} has {dataset.n_features} features, the ranker {current.shape}")
    useful = _with_preferences(dataset)
    if queries is not None:
        useful = np.intersect1d(useful, queries)
    if useful.size == 0:
        raise DataError(f"{dataset.name}: no query has documents of different grades to learn from")
    for _ in range(epochs):
        for i in rng.permutation(useful).tolist():
            query = dataset.query(i)
            current += learning_rate * lambdarank_gradient(current, query.features, query.relevance, k)
    return current.astype(np.float32)


def fit_first_model(dataset: RankingDataset, rng: np.random.Generator, epochs: int = 50) -> NDArray[np.float32]:
    """Fit the first model of a federation: as `fit_lambdarank`, with scores of `FIRMNESS`."""
    fitted = fit_lambdarank(dataset, rng, epochs=epochs).astype(np.float64)
    scores = score(fitted, dataset.features)
    spread = float(np.mean([one.std() for one in np.split(scores, dataset.offsets[1:-1])]))
    return (fitted * (FIRMNESS / spread) if spread > 0.0 else fitted).astype(np.float32)


def logging_policy(dataset: RankingDataset, rng: np.random.Generator, fraction: float = 0.01) -> NDArray[np.float32]:
    """Fit the ranker in production: LambdaRank on a small sample of the queries (FedIPS, Section 4).

    Args:
        dataset: whose queries are sampled.
        rng: draws the sample, then the order of learning.
        fraction: of the queries, in (0, 1]; rounded, but at least one query. If none of them has documents of different
            grades, the next drawn query that has is used instead.

    Returns:
        (d,) float32.

    Raises:
        DataError: no query of the data set has documents of different grades.
        SettingsError: a fraction outside (0, 1].
    """
    if not 0.0 < fraction <= 1.0:
        raise SettingsError(f"the fraction of queries must lie in (0, 1], not {fraction}")
    order = rng.permutation(dataset.n_queries)
    sample = order[: max(1, round(fraction * dataset.n_queries))]
    useful = _with_preferences(dataset)
    if not np.isin(sample, useful).any():
        sample = order[np.isin(order, useful)][:1]
    return fit_lambdarank(dataset, rng, queries=sample)


def lambdarank_gradient(
    weights: NDArray[np.floating], features: NDArray[np.float32], relevance: NDArray[np.integer], k: int = 10
) -> NDArray[np.float64]:
    """Return the direction in which the linear ranker's nDCG@k improves on one query.

    Args:
        weights: (d,).
        features: (docs, d) float32.
        relevance: (docs,) integer grades.
        k: the cut-off.

    Returns:
        (d,) float64, to be added to the weights; zero if all grades are equal.

    Raises:
        DataError: a score is not finite, or grades and documents differ in number.
    """
    lambdas = score_lambdas(score(weights, features), relevance, k)
    gradient: NDArray[np.float64] = (lambdas.astype(features.dtype) @ features).astype(np.float64)
    return gradient


@compiled
def score_lambdas(scores: NDArray[np.floating], relevance: NDArray[np.integer], k: int) -> NDArray[np.float64]:
    """Return the sum of each document's lambdas, positive for a push upwards (Burges 2010, Section 4).

    Args:
        scores: (docs,) finite; equal scores rank in document order.
        relevance: (docs,) integer grades from 0; the gain is 2^grade - 1.
        k: the cut-off of nDCG.

    Returns:
        (docs,) float64; it sums to zero.
    """
    n_docs = scores.shape[0]
    if relevance.shape[0] != n_docs:
        raise DataError("there must be one grade for each document")
    if not np.all(np.isfinite(scores)):
        raise DataError("scores must be finite numbers to learn from")
    lambdas = np.zeros(n_docs, np.float64)
    gains = 2.0 ** relevance.astype(np.float64) - 1.0
    depth = min(k, n_docs)
    discounts = 1.0 / np.log2(np.arange(depth) + 2.0)
    ideal = np.sum(np.sort(gains)[::-1][:depth] * discounts)
    if ideal == 0.0:
        return lambdas
    order = np.argsort(-scores, kind="mergesort")
    for upper in range(depth):
        i = order[upper]
        for lower in range(upper + 1, n_docs):
            j = order[lower]
            if gains[i] == gains[j]:
                continue
            discount = discounts[upper] - (discounts[lower] if lower < depth else 0.0)
            # From the better document's side: far above already, the pair hardly pushes any more.
            lead = float(scores[i]) - float(scores[j]) if gains[i] > gains[j] else float(scores[j]) - float(scores[i])
            push = (gains[i] - gains[j]) * discount / ideal / (1.0 + math.exp(min(lead, _LARGEST_EXPONENT)))
            lambdas[i] += push
            lambdas[j] -= push
    return lambdas


def _with_preferences(dataset: RankingDataset) -> NDArray[np.int64]:
    """The queries that have documents of different grades: only these have pairs to learn from."""
    highest = np.maximum.reduceat(dataset.relevance, dataset.offsets[:-1])
    lowest = np.minimum.reduceat(dataset.relevance, dataset.offsets[:-1])
    return np.flatnonzero(highest > lowest)
