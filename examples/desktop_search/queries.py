"""Simulated people who do not know a document's name: they ask with words of its first line, which is not indexed."""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from documents import Document, words_of

N_DEVICES: Final = 8
_TRAIN_SHARE, _VALIDATION_SHARE = 0.6, 0.1
_OWN_TOPIC_SHARE: Final = 0.7
_WRONG_WORD_SHARE: Final = 0.12
_TYPO_SHARE: Final = 0.08
_STOP_WORDS: Final = frozenset(
    words_of(
        "a an and are as at be by can do does for from given has have if in into is it its no not of on or s so such t "
        "that the their them then these this to used was when which while with you"
    )
)


@dataclass(frozen=True)
class Query:
    """A query, and the number of the intended document."""

    text: str
    target: int


@dataclass(frozen=True)
class Split:
    """Queries for learning, tuning and evaluation: no document is intended in two of them."""

    train: tuple[Query, ...]
    validation: tuple[Query, ...]
    test: tuple[Query, ...]


def make_queries(documents: Sequence[Document], seed: int, share: float = 1.0) -> Split:
    """Make queries for public documents with more documentation than the line their query is made from.

    Args:
        share: of these documents, in (0, 1]; each has one query.
    """
    rng = np.random.default_rng([seed, *b"queries"])
    wordings = [_content_words(document) for document in documents]
    vocabulary = sorted({word for words in wordings for word in words})
    meant = rng.permutation(
        [
            i
            for i, document in enumerate(documents)
            if len(wordings[i]) >= 2 and document.body and not document.is_private
        ]
    )
    meant = meant[: math.ceil(share * len(meant))]
    queries = tuple(Query(_wording(wordings[i], vocabulary, rng), i) for i in meant.tolist())
    n_train, n_validation = round(_TRAIN_SHARE * len(queries)), round(_VALIDATION_SHARE * len(queries))
    return Split(queries[:n_train], queries[n_train : n_train + n_validation], queries[n_train + n_validation :])


def topic_of(document: Document) -> int:
    """Return the device whose person asks most about this document's package."""
    return zlib.crc32(document.name.partition(".")[0].encode()) % N_DEVICES


def devices_of(queries: Sequence[Query], documents: Sequence[Document], seed: int) -> list[int]:
    """Return the device of each query: mostly that of its topic, else any."""
    rng = np.random.default_rng([seed, *b"devices"])
    own = rng.random(len(queries)) < _OWN_TOPIC_SHARE
    other = rng.integers(N_DEVICES, size=len(queries))
    return [topic_of(documents[query.target]) if own[i] else int(other[i]) for i, query in enumerate(queries)]


def _content_words(document: Document) -> list[str]:
    return [word for word in dict.fromkeys(words_of(document.summary)) if word not in _STOP_WORDS and len(word) > 1]


def _wording(words: Sequence[str], vocabulary: Sequence[str], rng: np.random.Generator) -> str:
    """Return 2 to 4 of the words in order, some of them wrong or mistyped."""
    n = min(len(words), int(rng.integers(2, 5)))
    chosen = [words[i] for i in np.sort(rng.choice(len(words), n, replace=False))]
    return " ".join(_as_remembered(word, vocabulary, rng) for word in chosen)


def _as_remembered(word: str, vocabulary: Sequence[str], rng: np.random.Generator) -> str:
    chance, at = rng.random(), int(rng.integers(len(word)))
    if chance < _WRONG_WORD_SHARE:
        return vocabulary[int(rng.integers(len(vocabulary)))]
    if chance < _WRONG_WORD_SHARE + _TYPO_SHARE and len(word) > 3:
        return word[:at] + word[at + 1 :]
    return word
