"""A synthetic data set with a planted linear ranker, for demos and tests that must run without any download.

It is made up and is to be reported as such: its name says so. Figures on it say nothing about real search.
"""

import numpy as np

from foltr.datasets import RankingDataset
from foltr.errors import SettingsError

# Share of documents per grade 0 to 4, by the quantiles of the planted score: most are not relevant, as in
# real data.
_GRADE_QUANTILES = (0.55, 0.80, 0.93, 0.98)


def synthetic_dataset(
    rng: np.random.Generator,
    n_queries: int = 100,
    docs_per_query: int = 50,
    n_features: int = 20,
    label_noise: float = 0.25,
) -> RankingDataset:
    """Draw queries whose relevance is a noisy, coarse reading of one hidden linear score.

    Features are uniform in [0, 1] and shifted per query before query-level min-max normalisation, as loaders
    deliver real data. Half of the hidden weights are zero, so some features carry nothing. Grades 0 to 4 are
    cut at fixed quantiles of the noisy hidden score over the whole set: queries differ in how many relevant
    documents they have.

    To get a training and a test set with the same hidden ranker, draw one set and use `split_queries`.

    Args:
        rng: the source of everything; equal generators give equal sets.
        n_queries: at least 1.
        docs_per_query: at least 2.
        n_features: at least 2.
        label_noise: standard deviation of the noise, in standard deviations of the hidden score.

    Returns:
        a set named ``synthetic-linear``.
    """
    if n_queries < 1 or docs_per_query < 2 or n_features < 2:
        raise SettingsError("synthetic data needs at least 1 query, 2 documents a query and 2 features")
    hidden = rng.normal(size=n_features)
    hidden[rng.permutation(n_features)[: n_features // 2]] = 0.0
    features = rng.random((n_queries, docs_per_query, n_features))
    score = features @ hidden
    score += 0.5 * score.std() * rng.normal(size=(n_queries, 1))
    score += label_noise * score.std() * rng.normal(size=score.shape)
    relevance = np.searchsorted(np.quantile(score, _GRADE_QUANTILES), score, side="right")
    low = features.min(axis=1, keepdims=True)
    high = features.max(axis=1, keepdims=True)
    features = (features - low) / (high - low)
    return RankingDataset(
        name="synthetic-linear",
        features=np.ascontiguousarray(features.reshape(-1, n_features), dtype=np.float32),
        relevance=relevance.reshape(-1).astype(np.int16),
        offsets=np.arange(n_queries + 1, dtype=np.int64) * docs_per_query,
        query_ids=np.arange(1, n_queries + 1, dtype=np.int64),
    )


def split_queries(dataset: RankingDataset, n_first: int) -> tuple[RankingDataset, RankingDataset]:
    """Cut a set into its first queries and the rest; both are views of the same arrays.

    Args:
        dataset: any set.
        n_first: 1 to n_queries - 1.

    Returns:
        the first `n_first` queries and the others, both under the same name.
    """
    if not 1 <= n_first < dataset.n_queries:
        raise SettingsError(f"cannot split {dataset.n_queries} queries after {n_first}")
    row = dataset.offsets[n_first]
    return (
        RankingDataset(
            dataset.name,
            dataset.features[:row],
            dataset.relevance[:row],
            dataset.offsets[: n_first + 1],
            dataset.query_ids[:n_first],
        ),
        RankingDataset(
            dataset.name,
            dataset.features[row:],
            dataset.relevance[row:],
            dataset.offsets[n_first:] - row,
            dataset.query_ids[n_first:],
        ),
    )
