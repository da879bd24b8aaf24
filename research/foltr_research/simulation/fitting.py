"""Fits a first ranker to logged data, and compares it with the best single feature on held-out queries."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foltr.core.data.dataset import RankingDataset, select_queries
from foltr.core.errors import DataError, SettingsError
from foltr.core.evaluation.metrics import mean_ndcg_at_k
from foltr.core.learning.lambdarank import fit_first_model
from foltr.core.protocol.schemas import FeatureSchema


@dataclass(frozen=True, eq=False)
class Fit:
    """A fitted ranker and its quality on held-out queries.

    Attributes:
        weights: (d,) float32.
        ndcg: mean nDCG@10 over the held-out queries with a relevant document.
        best_feature: the column that alone ranks the other queries best.
        rises: whether more of it is better.
        best_ndcg: its nDCG on the held-out queries.
        n_held_out: number of these queries that count.
    """

    weights: NDArray[np.float32]
    ndcg: float
    best_feature: int
    rises: bool
    best_ndcg: float
    n_held_out: int


def fit_linear(dataset: RankingDataset, rng: np.random.Generator, *, held_out: float = 0.2, epochs: int = 50) -> Fit:
    """Fit a linear ranker by LambdaRank.

    Args:
        dataset: with features in [0, 1].
        rng: draws the held-out queries, then the order of learning.
        held_out: the share of the queries to compare on.
        epochs: as `fit_lambdarank`.

    Raises:
        DataError: on either side no query has documents of different grades.
        SettingsError: a share that is not between 0 and 1.
    """
    if not 0.0 < held_out < 1.0:
        raise SettingsError(f"the share of queries held out must lie between 0 and 1, not {held_out:g}")
    n_held_out = max(1, round(held_out * dataset.n_queries))
    if n_held_out >= dataset.n_queries:
        raise DataError(f"{dataset.name}: {dataset.n_queries} queries are too few to hold {n_held_out} out")
    order = rng.permutation(dataset.n_queries)
    unseen, seen = (select_queries(dataset, np.sort(part)) for part in np.split(order, [n_held_out]))
    weights = fit_first_model(seen, rng, epochs)
    best, rises = _best_feature(seen)
    reached = mean_ndcg_at_k(weights, unseen)
    alone = mean_ndcg_at_k(_single(dataset.n_features, best, rises), unseen)
    return Fit(weights, reached.mean, best, rises, alone.mean, reached.n_evaluated)


def scaled(dataset: RankingDataset, schema: FeatureSchema) -> RankingDataset:
    """Return the same queries with features as a schema scales them.

    Raises:
        DataError: as `FeatureSchema.normalise`.
    """
    features = np.concatenate([schema.normalise(dataset.query(i).features) for i in range(dataset.n_queries)])
    return RankingDataset(dataset.name, features, dataset.relevance, dataset.offsets, dataset.query_ids)


def _best_feature(dataset: RankingDataset) -> tuple[int, bool]:
    d = dataset.n_features
    reached = {(i, up): mean_ndcg_at_k(_single(d, i, up), dataset).mean for i in range(d) for up in (True, False)}
    return max(reached, key=reached.__getitem__)


def _single(n_features: int, feature: int, rises: bool) -> NDArray[np.float64]:
    weights = np.zeros(n_features)
    weights[feature] = 1.0 if rises else -1.0
    return weights
