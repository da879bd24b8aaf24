"""Queries with their documents in memory, in the form that the learners and metrics read."""

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import DataError


class Query(NamedTuple):
    """One query's documents: features (docs, d) float32 and relevance (docs,) int16. Views, not copies."""

    features: NDArray[np.float32]
    relevance: NDArray[np.int16]


@dataclass(frozen=True, slots=True, eq=False)
class RankingDataset:
    """All documents of all queries in one array; a query is a run of rows.

    Attributes:
        name: what reports call it.
        features: (docs, d) float32, C order.
        relevance: (docs,) int16 grades, 0 for not relevant.
        offsets: (queries + 1,) int64; query i has rows offsets[i] to offsets[i + 1].
        query_ids: (queries,) int64, as named by the source.
    """

    name: str
    features: NDArray[np.float32]
    relevance: NDArray[np.int16]
    offsets: NDArray[np.int64]
    query_ids: NDArray[np.int64]

    def __post_init__(self) -> None:
        n_docs = self.features.shape[0]
        for field, dtype in (
            ("features", np.float32),
            ("relevance", np.int16),
            ("offsets", np.int64),
            ("query_ids", np.int64),
        ):
            actual = getattr(self, field).dtype
            if actual != dtype:
                raise DataError(f"{self.name}: {field} must be {np.dtype(dtype)}, not {actual}")
        if self.features.ndim != 2 or not self.features.flags.c_contiguous:
            raise DataError(f"{self.name}: features must be a C-ordered array of documents by features")
        if self.relevance.shape != (n_docs,):
            raise DataError(f"{self.name}: {n_docs} documents but relevance of shape {self.relevance.shape}")
        if self.offsets.shape != (self.query_ids.shape[0] + 1,):
            raise DataError(f"{self.name}: offsets must have one entry more than there are queries")
        if self.offsets[0] != 0 or self.offsets[-1] != n_docs or (np.diff(self.offsets) <= 0).any():
            raise DataError(f"{self.name}: offsets must rise from 0 to the {n_docs} documents")
        if n_docs and self.relevance.min() < 0:
            raise DataError(f"{self.name}: relevance grades must not be negative")

    @property
    def n_queries(self) -> int:
        """The number of queries, with or without a relevant document."""
        return len(self.query_ids)

    @property
    def n_features(self) -> int:
        """The number of features of a document."""
        return int(self.features.shape[1])

    def query(self, i: int) -> Query:
        """Return the i-th query's documents, 0 <= i < n_queries."""
        rows = slice(self.offsets[i], self.offsets[i + 1])
        return Query(self.features[rows], self.relevance[rows])


def label_scale(*datasets: RankingDataset) -> int:
    """Return how many grades the sets' published label scale has: 3 (0 to 2) or 5 (0 to 4).

    Raises:
        DataError: there is a grade above 4.
    """
    highest = max(int(dataset.relevance.max()) for dataset in datasets)
    if highest > 4:
        raise DataError(f"{datasets[0].name}: grade {highest}; expected grades 0 to 2 or 0 to 4")
    return 3 if highest <= 2 else 5


def relabel(dataset: RankingDataset, relevance: NDArray[np.int16], name: str) -> RankingDataset:
    """Return the same documents under other grades (docs,) int16; everything else is shared."""
    return replace(dataset, name=name, relevance=relevance)


def select_queries(dataset: RankingDataset, queries: NDArray[np.int64]) -> RankingDataset:
    """Return a copy of some queries, in the order given.

    Args:
        dataset: any set.
        queries: (n,) int64 indices, at least one.

    Raises:
        DataError: an index that the set does not have, or none at all.
    """
    if len(queries) == 0 or queries.min() < 0 or queries.max() >= dataset.n_queries:
        raise DataError(f"{dataset.name}: expected queries between 0 and {dataset.n_queries - 1}, at least one")
    sizes = np.diff(dataset.offsets)[queries]
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    rows = np.arange(offsets[-1]) + np.repeat(dataset.offsets[queries] - offsets[:-1], sizes)
    return RankingDataset(
        dataset.name, dataset.features[rows], dataset.relevance[rows], offsets, dataset.query_ids[queries]
    )


def concatenate(first: RankingDataset, second: RankingDataset, name: str) -> RankingDataset:
    """Return a copy of both sets' queries, those of ``first`` first.

    Raises:
        DataError: the sets differ in the number of features.
    """
    if first.n_features != second.n_features:
        raise DataError(f"{first.name} has {first.n_features} features, {second.name} has {second.n_features}")
    return RankingDataset(
        name,
        np.concatenate((first.features, second.features)),
        np.concatenate((first.relevance, second.relevance)),
        np.concatenate((first.offsets, second.offsets[1:] + first.offsets[-1])),
        np.concatenate((first.query_ids, second.query_ids)),
    )


def cache_directory() -> Path:
    """Return where parsed and fetched data is kept: $FOLTR_CACHE, else the user's cache directory."""
    if explicit := os.environ.get("FOLTR_CACHE"):
        return Path(explicit)
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "foltr"
    return Path.home() / ".cache" / "foltr"
