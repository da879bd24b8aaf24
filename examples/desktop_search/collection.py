"""Simulated queries with the candidates of an index, ready for ranking in `simulate.py`."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from documents import Document, read_documents
from features import SCHEMA, Features
from foltr.core.data.dataset import RankingDataset
from index import Index
from queries import Query, devices_of, make_queries


@dataclass(frozen=True, eq=False)
class JudgedQueries:
    """Queries whose document is among the candidates.

    Attributes:
        dataset: with scaled features; one document of each query is relevant, and candidates are in the order of BM25.
        features: (docs, features) float64, not scaled.
        base: (docs,) float64, BM25.
        devices: (queries,) int64, the device that asks.
        n_asked: total number of queries, found or not.
    """

    dataset: RankingDataset
    features: NDArray[np.float64]
    base: NDArray[np.float64]
    devices: NDArray[np.int64]
    n_asked: int

    def query(self, i: int) -> tuple[NDArray[np.float64], NDArray[np.float64], int]:
        """Return the features of a query's candidates, their BM25, and the row of the intended one."""
        rows = slice(*self.dataset.offsets[i : i + 2])
        return self.features[rows], self.base[rows], int(self.dataset.relevance[rows].argmax())


@dataclass(frozen=True, eq=False)
class Collection:
    """Queries for learning and for evaluation."""

    train: JudgedQueries
    validation: JudgedQueries
    test: JudgedQueries
    n_documents: int


def make_collection(folder: Path, seed: int, share: float = 1.0) -> Collection:
    """Read a folder, index it without the first lines, and make queries from those.

    Args:
        share: of the queries, in (0, 1].
    """
    documents = read_documents(folder)
    features = Features(documents, with_summaries=False)
    split = make_queries(documents, seed, share)
    index = Index(documents, with_summaries=False)
    train, validation, test = (
        _ask(name, queries, documents, index, features, seed)
        for name, queries in (("train", split.train), ("validation", split.validation), ("test", split.test))
    )
    index.close()
    return Collection(train, validation, test, len(documents))


def _ask(
    name: str, queries: Sequence[Query], documents: Sequence[Document], index: Index, features: Features, seed: int
) -> JudgedQueries:
    found = list(_found(queries, devices_of(queries, documents, seed), index, features))
    matrices, scores, targets, devices = zip(*found, strict=True)
    offsets = np.concatenate([[0], np.cumsum([len(matrix) for matrix in matrices])])
    relevance = np.zeros(offsets[-1], np.int16)
    relevance[offsets[:-1] + targets] = 1
    scaled = np.concatenate([SCHEMA.normalise(matrix) for matrix in matrices])
    dataset = RankingDataset(name, scaled, relevance, offsets.astype(np.int64), np.arange(len(found), dtype=np.int64))
    return JudgedQueries(
        dataset, np.concatenate(matrices), np.concatenate(scores), np.array(devices, np.int64), len(queries)
    )


def _found(
    queries: Sequence[Query], devices: Sequence[int], index: Index, features: Features
) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64], int, int]]:
    for query, device in zip(queries, devices, strict=True):
        hits = index.search(query.text)
        numbers = [hit.number for hit in hits]
        if query.target in numbers:
            bm25 = np.array([hit.bm25 for hit in hits])
            yield features.of(query.text, hits), bm25, numbers.index(query.target), device
