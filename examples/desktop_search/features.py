"""The features of a candidate: 24 numbers about the document, and about its match with the query.

They are computed unscaled; the schema, `features.json`, names them in this order and scales each to [0, 1].
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from documents import Document, words_of
from foltr.core.protocol.schemas import FeatureSchema
from index import Hit

SCHEMA: Final = FeatureSchema.read(Path(__file__).with_name("features.json"))
_BEGINNING: Final = 4
"""Two words with this many first letters in common may be forms of one word."""


@dataclass(frozen=True)
class _Known:
    """A document's query-independent data. All words are stemmed.

    Attributes:
        name: the words of the last part of its name.
        path: those of the parts before it.
        first_at: each word of its text, with its first position.
        pairs: neighbours in the text.
        file: all words of all documents in its file.
        spelling: trigrams of the last part of its name.
        itself: the query-independent features.
        parent: the number of the document it is part of.
    """

    name: tuple[str, ...]
    path: frozenset[str]
    first_at: dict[str, int]
    pairs: frozenset[tuple[str, str]]
    beginnings: frozenset[str]
    file: set[str]
    spelling: frozenset[str]
    itself: tuple[float, ...]
    parent: int | None


class Features:
    """The features of candidates among the documents of an index."""

    def __init__(self, documents: Sequence[Document], *, with_summaries: bool = True) -> None:
        texts = [_stems(document.text(with_summaries)) for document in documents]
        n_with = Counter(word for text in texts for word in set(text))
        self._rarity = {word: math.log(1 + len(documents) / n) for word, n in n_with.items()}
        self._rarest = math.log(1 + len(documents))
        numbers = {document.name: number for number, document in enumerate(documents)}
        files: dict[str, set[str]] = {}
        for document, text in zip(documents, texts, strict=True):
            files.setdefault(document.file, set()).update(text, _stems(document.name))
        self._known = [
            _known(document, text, files[document.file], numbers)
            for document, text in zip(documents, texts, strict=True)
        ]

    def of(self, query: str, hits: Sequence[Hit]) -> npt.NDArray[np.float64]:
        """Return (hits, features) float64."""
        asked = tuple(dict.fromkeys(_stems(query)))
        rarity = {word: self._rarity.get(word, self._rarest) for word in asked}
        spelling = _spelling(query)
        rows = []
        for hit in hits:
            known = self._known[hit.number]
            around = self._known[known.parent].first_at if known.parent is not None else {}
            rows.append(
                (
                    *(hit.bm25, hit.name_bm25, hit.body_bm25),
                    *_fit_of_name(asked, rarity, spelling, known),
                    *_fit_of_text(asked, rarity, known),
                    sum(word in around for word in asked) / len(asked),
                    *known.itself,
                )
            )
        return np.array(rows).reshape(len(hits), SCHEMA.n_features)


def _fit_of_name(
    asked: tuple[str, ...], rarity: dict[str, float], spelling: frozenset[str], known: _Known
) -> tuple[float, ...]:
    name, n = known.name, len(asked)
    named = [word in name or word in known.path for word in asked]
    return (
        sum(word in name for word in asked) / n,
        sum(named) / n,
        _rare_share(rarity, named),
        sum(word in asked for word in name) / max(1, len(name)),
        float(asked == name),
        float(asked[: len(name)] == name or name[:n] == asked),
        sum(any(part.startswith(word[:_BEGINNING]) for part in name) for word in asked) / n,
        len(spelling & known.spelling) / max(1, len(spelling | known.spelling)),
    )


def _fit_of_text(asked: tuple[str, ...], rarity: dict[str, float], known: _Known) -> tuple[float, ...]:
    first_at = known.first_at
    neighbours = list(pairwise(asked))
    return (
        _rare_share(rarity, [word in first_at for word in asked]),
        _rare_share(rarity, [word in first_at or word in known.name or word in known.path for word in asked]),
        _rare_share(rarity, [word[:_BEGINNING] in known.beginnings for word in asked]),
        min((first_at[word] for word in asked if word in first_at), default=len(first_at)),
        sum(pair in known.pairs for pair in neighbours) / max(1, len(neighbours)),
        _rare_share(rarity, [word in known.file for word in asked]),
    )


def _rare_share(rarity: dict[str, float], there: Sequence[bool]) -> float:
    """Return the share of the query's words that occur; rare ones count more."""
    return sum(weight for weight, is_there in zip(rarity.values(), there, strict=True) if is_there) / sum(
        rarity.values()
    )


def _known(document: Document, text: tuple[str, ...], file: set[str], numbers: dict[str, int]) -> _Known:
    path, _, name = document.name.rpartition(".")
    first_at: dict[str, int] = {}
    for at, word in enumerate(text):
        first_at.setdefault(word, at)
    itself = (
        len(text),
        len(words_of(name)),
        document.name.count("."),
        float(document.kind == "module"),
        float(document.kind == "class"),
        float(document.is_private),
    )
    return _Known(
        _stems(name),
        frozenset(_stems(path)),
        first_at,
        frozenset(pairwise(text)),
        frozenset(word[:_BEGINNING] for word in first_at),
        file,
        _spelling(name),
        itself,
        numbers.get(path),
    )


def _stems(text: str) -> tuple[str, ...]:
    return tuple(map(_stem, words_of(text)))


@lru_cache(maxsize=100_000)
def _stem(word: str) -> str:
    """Return a word without the most common endings: crude, but the same for both sides."""
    for ending in ("ing", "ies", "es", "ed", "s", "y", "e"):
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return _stem(word[: -len(ending)])
    return word


def _spelling(words: str) -> frozenset[str]:
    """Return the trigrams of the joined words: a missing letter leaves most of them intact."""
    padded = f" {''.join(words_of(words))} "
    return frozenset(padded[i : i + 3] for i in range(len(padded) - 2))
