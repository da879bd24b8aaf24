"""Synthetic sets with a planted ranker, linear or not, for demos, tests and figures that need no download.

Report them as such; their names say so. Figures on them say nothing about real search.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from foltr.core.data.dataset import RankingDataset
from foltr.core.data.letor_lines import normalise_by_query
from foltr.core.errors import SettingsError

# Share of documents below each grade from 1 up, by the quantiles of the planted score: most are not relevant, as in
# real data.
_GRADE_QUANTILES = {5: (0.55, 0.80, 0.93, 0.98), 3: (0.80, 0.94)}
_CHUNK_VALUES = 1_000_000
# A nonlinear score is made of products of a few features: a ranker of 64 units can learn them from clicks.
_CROSSED_FEATURES = 8


def synthetic_dataset(
    rng: np.random.Generator,
    n_queries: int = 100,
    docs_per_query: int | tuple[int, int] = 50,
    n_features: int = 20,
    label_noise: float = 0.25,
    relevance: Literal["linear", "nonlinear"] = "linear",
    n_grades: int = 5,
) -> RankingDataset:
    """Draw queries whose relevance is a noisy, coarse reading of one hidden score.

    Features are uniform in [0, 1] and normalised by query as loaders deliver real data. Half of the hidden weights are
    zero, so some features carry nothing. A nonlinear score has as much variance again from products of pairs of
    features, in which each alone says nothing: a linear ranker sees only the other half. Scores are shifted by query
    and grades cut at fixed quantiles over the whole set: queries differ in how many relevant documents they have.

    To get a training and a test set with the same hidden ranker, draw one set and use `split_queries`.

    Args:
        rng: the source of everything; equal generators give equal sets.
        n_queries: at least 1.
        docs_per_query: at least 2; two numbers are the least and the most, every number between as likely.
        n_features: at least 2; at least 4 for a nonlinear score.
        label_noise: standard deviation of the noise, in standard deviations of the hidden score.
        relevance: the form of the hidden score.
        n_grades: 3 or 5.

    Returns:
        a set named ``synthetic-linear`` or ``synthetic-nonlinear``. Making it takes some tens of megabytes beside it.

    Raises:
        SettingsError: an argument is out of its range.
    """
    fewest, most = (docs_per_query, docs_per_query) if isinstance(docs_per_query, int) else docs_per_query
    if n_queries < 1 or not 2 <= fewest <= most or n_features < 2:
        raise SettingsError("synthetic data needs at least 1 query, 2 documents a query and 2 features")
    if relevance == "nonlinear" and n_features < 4:
        raise SettingsError(f"synthetic-nonlinear data needs at least 4 features, not {n_features}")
    if n_grades not in _GRADE_QUANTILES:
        raise SettingsError(f"synthetic data has 3 or 5 grades, not {n_grades}")
    # Drawn only on request: a fixed number of documents must give the same set as ever.
    sizes = np.full(n_queries, fewest) if fewest == most else rng.integers(fewest, most + 1, size=n_queries)
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int64)
    hidden = rng.normal(size=n_features)
    hidden[rng.permutation(n_features)[: n_features // 2]] = 0.0
    crossed = None
    if relevance == "nonlinear":
        crossed = rng.permutation(n_features)[: min(_CROSSED_FEATURES, n_features // 2 * 2)].reshape(2, -1)
    features = np.empty((offsets[-1], n_features), np.float32)
    score = np.empty(offsets[-1])
    step = max(1, _CHUNK_VALUES // (most * n_features))
    for first in range(0, n_queries, step):
        runs = offsets[first : first + step + 1]
        raw = rng.random((runs[-1] - runs[0], n_features))
        score[runs[0] : runs[-1]] = _hidden_score(raw, hidden, crossed)
        features[runs[0] : runs[-1]] = normalise_by_query(raw, runs - runs[0])
    score += np.repeat(0.5 * score.std() * rng.normal(size=n_queries), sizes)
    score += label_noise * score.std() * rng.normal(size=score.shape)
    grades = np.searchsorted(np.quantile(score, _GRADE_QUANTILES[n_grades]), score, side="right")
    return RankingDataset(
        name=f"synthetic-{relevance}",
        features=features,
        relevance=grades.astype(np.int16),
        offsets=offsets,
        query_ids=np.arange(1, n_queries + 1, dtype=np.int64),
    )


def _hidden_score(
    raw: NDArray[np.float64], hidden: NDArray[np.float64], crossed: NDArray[np.int64] | None
) -> NDArray[np.float64]:
    """(docs,) linear score, plus products of the ``crossed`` (2, pairs) features with as much variance."""
    linear: NDArray[np.float64] = raw @ hidden
    if crossed is None:
        return linear
    # Uniform on [0, 1] has variance 1/12, and a product of two such about their mean 1/144.
    products = ((raw[:, crossed[0]] - 0.5) * (raw[:, crossed[1]] - 0.5)).sum(axis=1)
    scale = np.sqrt((hidden**2).sum() / 12 / (crossed.shape[1] / 144))
    return np.asarray(linear + scale * products)


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
    return _run(dataset, 0, n_first), _run(dataset, n_first, dataset.n_queries)


def _run(dataset: RankingDataset, first: int, stop: int) -> RankingDataset:
    rows = slice(dataset.offsets[first], dataset.offsets[stop])
    return RankingDataset(
        dataset.name,
        dataset.features[rows],
        dataset.relevance[rows],
        dataset.offsets[first : stop + 1] - rows.start,
        dataset.query_ids[first:stop],
    )
