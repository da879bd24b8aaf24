"""A searchable folder: its documents, their index, and the features of results."""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from documents import Document, read_documents, words_of
from features import Features
from index import Index

_AMBIGUOUS: Final = 4
"""If this many documents share the last part of their name, none of them is an exact match."""


@dataclass(frozen=True, eq=False)
class SearchResult:
    """The results of a query.

    Attributes:
        exact: documents with exactly this name; they are not candidates.
        candidates: all others, in the order of BM25.
        features: (candidates, features) float64, unscaled.
        bm25: (candidates,) float64.
    """

    exact: list[Document]
    candidates: list[Document]
    features: npt.NDArray[np.float64]
    bm25: npt.NDArray[np.float64]


class Folder:
    """The documents below a folder, read once."""

    def __init__(self, path: Path) -> None:
        self.documents = read_documents(path)
        self._features = Features(self.documents)
        self._index = Index(self.documents)
        self._called: dict[tuple[str, ...], list[int]] = defaultdict(list)
        self._called_last: dict[tuple[str, ...], list[int]] = defaultdict(list)
        for number, document in enumerate(self.documents):
            self._called[tuple(words_of(document.name))].append(number)
            self._called_last[tuple(words_of(document.name.rpartition(".")[2]))].append(number)

    def find(self, query: str) -> SearchResult:
        """Return exact matches, and documents with any of the query's words, at most `index.N_CANDIDATES`."""
        exact = self._exact(tuple(words_of(query)))
        hits = [hit for hit in self._index.search(query) if hit.number not in exact]
        return SearchResult(
            [self.documents[number] for number in exact],
            [self.documents[hit.number] for hit in hits],
            self._features.of(query, hits),
            np.array([hit.bm25 for hit in hits]),
        )

    def close(self) -> None:
        self._index.close()

    def _exact(self, asked: tuple[str, ...]) -> list[int]:
        """Return documents with this name, else those with it as the last part of theirs, if they are few."""
        last = self._called_last.get(asked, [])
        return self._called.get(asked) or (last if len(last) < _AMBIGUOUS else [])
