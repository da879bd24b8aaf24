"""Dense embeddings as features, and what they add here: ``pip install wordllama`` brings a small frozen model (16 MB).

It is run from the checkout: python examples/desktop_search/embeddings.py
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from documents import Document, read_documents, standard_library, words_of
from features import SCHEMA, Features
from foltr import FirstModel
from index import Hit, Index
from queries import Query, make_queries

Embed = Callable[[list[str]], npt.NDArray[np.float32]]
"""Returns (texts, dimensions)."""
_N_SHOWN: Final = 10
_N_BM25: Final = 3
"""The first features of the schema."""


def frozen_model() -> Embed:
    """Return the model of wordllama's package; nothing is downloaded."""
    import wordllama

    model = wordllama.WordLlama.load(cache_dir=Path(wordllama.__file__).parent, disable_download=True)
    embed: Embed = model.embed
    return embed


class DenseFeatures:
    """The cosines of a query with a document's name and text, and the lengths of both vectors.

    All documents are embedded once; a search embeds the query.
    """

    def __init__(self, embed: Embed, documents: Sequence[Document]) -> None:
        self._embed = embed
        names = [" ".join(words_of(each.name)) for each in documents]
        texts = [" ".join(words_of(each.text(False))) for each in documents]
        vectors = embed(names), embed([text or name for text, name in zip(texts, names, strict=True)])
        self._lengths = np.stack([np.linalg.norm(each, axis=1) for each in vectors], axis=1)
        self._units = [each / np.linalg.norm(each, axis=1, keepdims=True) for each in vectors]

    def of(self, query: str, hits: Sequence[Hit]) -> npt.NDArray[np.float64]:
        """Return (hits, 4): two cosines, as (1 + cosine) / 2, and two lengths, as shares of the longest."""
        numbers = [hit.number for hit in hits]
        (vector,) = self._embed([query])
        unit = vector / max(float(np.linalg.norm(vector)), 1e-9)
        cosines = np.stack([units[numbers] @ unit for units in self._units], axis=1)
        lengths = self._lengths[numbers] / self._lengths.max(axis=0)
        found: npt.NDArray[np.float64] = np.clip(np.hstack([(1.0 + cosines) / 2.0, lengths]), 0.0, 1.0)
        return found


@dataclass(frozen=True, eq=False)
class Asked:
    """What queries found: a matrix for each, and the row of the intended document."""

    matrices: list[npt.NDArray[np.float64]]
    meant: list[int]


def ask(queries: Sequence[Query], index: Index, features: Features, dense: DenseFeatures) -> Asked:
    """Ask those queries whose document is found; the schema's features come first, then the dense ones."""
    asked = Asked([], [])
    for query in queries:
        hits = index.search(query.text)
        numbers = [hit.number for hit in hits]
        if query.target in numbers:
            scaled = SCHEMA.normalise(features.of(query.text, hits))
            asked.matrices.append(np.hstack([scaled, dense.of(query.text, hits)]))
            asked.meant.append(numbers.index(query.target))
    return asked


def reciprocal_rank(train: Asked, test: Asked, columns: Sequence[int]) -> float:
    """Return MRR@10 of test queries, ranked by what is fitted to the train queries by these columns."""
    sizes = [len(matrix) for matrix in train.matrices]
    relevance = np.concatenate([np.arange(n) == row for n, row in zip(sizes, train.meant, strict=True)])
    rows = np.concatenate(train.matrices)[:, columns]
    model = FirstModel().fit(rows, relevance, np.repeat(np.arange(len(sizes)), sizes))
    ranks = [
        model.rank(matrix[:, columns]).tolist().index(row) + 1
        for matrix, row in zip(test.matrices, test.meant, strict=True)
    ]
    return float(np.mean([1.0 / rank if rank <= _N_SHOWN else 0.0 for rank in ranks]))


def compare(embed: Embed, folder: Path, seeds: int) -> dict[str, float]:
    """Return the mean MRR@10 with and without dense features, by name."""
    documents = read_documents(folder)
    features, dense = Features(documents, with_summaries=False), DenseFeatures(embed, documents)
    index = Index(documents, with_summaries=False)
    n = SCHEMA.n_features
    sets = {
        "BM25 alone": range(_N_BM25),
        "BM25 and cosines": [*range(_N_BM25), n, n + 1],
        "all features": range(n),
        "all and cosines": range(n + 2),
        "all, cosines and lengths": range(n + 4),
    }
    found: dict[str, list[float]] = {name: [] for name in sets}
    for seed in range(1, seeds + 1):
        split = make_queries(documents, seed)
        train, test = (ask(queries, index, features, dense) for queries in (split.train, split.test))
        for name, columns in sets.items():
            found[name].append(reciprocal_rank(train, test, list(columns)))
    index.close()
    return {name: float(np.mean(each)) for name, each in found.items()}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=standard_library())
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    for name, mean in compare(frozen_model(), options.folder, options.seeds).items():
        print(f"{name:26} {mean:.3f}")
