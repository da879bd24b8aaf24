"""One query, several intents: relevance depends on the user (Type 1 of non-IID data in FOLTR).

The intent-change collection of Zhuang and Zuccon (2021) judges the documents of TREC Web Track queries once for each of
four intents. The thesis (Section 4.3.1) renumbers a query's intents at random, since some have many more relevant
documents than others, and calls a document relevant in general if it is for at least one intent.

Only the collection's judgements are available, without features. Features here are drawn, and the sets' names say that
they are synthetic. How well one ranker can serve all intents is then a choice, `agreement`: intent i shows in the
features along the direction ``sqrt(agreement) * common + sqrt(1 - agreement) * own_i`` with all directions orthonormal,
so that the cosine between two intents' best directions is `agreement`. At 1 features show only general relevance. The
same happens to real data when the intents' numbers are shuffled.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foltr.core.data.dataset import RankingDataset, relabel
from foltr.core.data.letor_lines import normalise_by_query
from foltr.core.errors import DataError, SettingsError
from foltr.core.user_files import FileKind, read_text_file

_FILES = ("1.txt", "2.txt", "3.txt", "4.txt")
# Shares of relevant documents by intent, similar to the collection's four.
_MOST_RELEVANT, _LEAST_RELEVANT = 0.14, 0.05
_CHUNK_VALUES = 1_000_000


@dataclass(frozen=True, slots=True, eq=False)
class IntentJudgements:
    """Judgements of the same documents under several intents.

    Attributes:
        relevance: (intents, docs) int16, 0 or 1.
        offsets: (queries + 1,) int64; query i has documents offsets[i] to offsets[i + 1].
        query_ids: (queries,) int64.
    """

    relevance: NDArray[np.int16]
    offsets: NDArray[np.int64]
    query_ids: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class IntentCollection:
    """The same documents as one set for each intent, and a merged set.

    Attributes:
        merged: a document is relevant if it is for at least one intent.
        intents: one set for each; all share the features array of ``merged``.
    """

    merged: RankingDataset
    intents: tuple[RankingDataset, ...]


def read_intents(folder: Path) -> IntentJudgements:
    """Read `1.txt` to `4.txt`, one intent each, with a line `query intent document label` for each document.

    The collection's `0.txt` merges all intents and is not read: it includes intents beyond the four, while the thesis
    merges the four.

    Raises:
        DataError: a file is missing, a line is wrong, or the files differ in queries or documents.
    """
    paths = [Path(folder) / name for name in _FILES]
    read = [_read_judgements(path, intent) for intent, path in enumerate(paths, start=1)]
    keys, labels = read[0]
    for path, (others, more) in zip(paths[1:], read[1:], strict=True):
        if others != keys:
            raise DataError(
                f"{path}: other documents or another order than in {paths[0].name}; expected the same lines"
            )
        labels = [*labels, *more]
    queries = np.array([query for query, _ in keys], np.int64)
    starts = np.concatenate(([0], np.flatnonzero(np.diff(queries)) + 1)).astype(np.int64)
    query_ids = queries[starts]
    if np.unique(query_ids).shape[0] != query_ids.shape[0]:
        raise DataError(f"{paths[0]}: a query comes back; expected all lines of a query together")
    relevance = np.array(labels, np.int16).reshape(len(_FILES), -1)
    return IntentJudgements(relevance, np.append(starts, len(keys)), query_ids)


def shuffle_intents(judgements: IntentJudgements, rng: np.random.Generator) -> IntentJudgements:
    """Renumber each query's intents at random, independently of other queries.

    Returns:
        judgements whose intents have about equally many relevant documents; the merger is unchanged.
    """
    n_intents = judgements.relevance.shape[0]
    numbers = rng.permuted(np.tile(np.arange(n_intents), (len(judgements.query_ids), 1)), axis=1)
    by_document = np.repeat(numbers.T, np.diff(judgements.offsets), axis=1)
    return replace(judgements, relevance=np.take_along_axis(judgements.relevance, by_document, axis=0))


def with_synthetic_features(
    judgements: IntentJudgements,
    rng: np.random.Generator,
    n_features: int = 40,
    agreement: float = 1.0,
    signal: float = 2.0,
) -> IntentCollection:
    """Draw features that reflect real judgements.

    A document's features are standard normal noise, plus ``signal * sqrt(agreement)`` along a common direction if it is
    relevant at all, plus ``signal * sqrt(1 - agreement)`` along an intent's direction for each intent it is relevant
    for; then normalised by query.

    Args:
        judgements: as read, and shuffled for experiments as in the thesis.
        rng: the source of noise and directions.
        n_features: more than the number of intents.
        agreement: in [0, 1]; see above.
        signal: shift of relevant documents, in standard deviations of the noise.

    Returns:
        sets named ``intent-change-synthetic-features``, an intent's with ``/intent-1`` and so on added.

    Raises:
        SettingsError: an argument is out of its range.
    """
    n_intents, n_docs = judgements.relevance.shape
    _check(n_intents, n_features, agreement)
    directions = _orthonormal(rng, n_intents + 1, n_features) * signal
    merged = judgements.relevance.max(axis=0)
    shown = np.vstack((np.sqrt(agreement) * merged, np.sqrt(1.0 - agreement) * judgements.relevance)).T
    features = np.empty((n_docs, n_features), np.float32)
    for queries in _chunks(judgements.offsets, n_features):
        first, last = queries[0], queries[-1]
        raw = rng.normal(size=(last - first, n_features)) + shown[first:last] @ directions
        features[first:last] = normalise_by_query(raw, queries - first)
    return _collection("intent-change-synthetic-features", features, judgements)


def synthetic_intents(
    rng: np.random.Generator,
    n_queries: int = 200,
    docs_per_query: int = 100,
    n_features: int = 40,
    n_intents: int = 4,
    agreement: float = 0.5,
    label_noise: float = 0.25,
) -> IntentCollection:
    """Draw both documents and judgements, for use without real judgements by intent.

    Features are standard normal and then normalised by query. A document's hidden score under an intent is the sum of
    its features along that intent's direction, plus noise. The highest 5 to 14 % of an intent's scores are relevant;
    the share differs by intent until the intents' numbers are shuffled.

    Args:
        rng: the source of everything.
        n_queries: at least 1.
        docs_per_query: at least 2.
        n_features: more than the number of intents.
        n_intents: at least 2.
        agreement: in [0, 1]; see above. At 1 intents differ only by noise.
        label_noise: standard deviation of the noise, in standard deviations of the hidden score.

    Returns:
        sets named ``synthetic-intents``, an intent's with ``/intent-1`` and so on added. With ``agreement`` below 1 do
        not shuffle the intents: it would destroy their consistency.

    Raises:
        SettingsError: an argument is out of its range.
    """
    if n_queries < 1 or docs_per_query < 2 or n_intents < 2:
        raise SettingsError("synthetic intents need at least 1 query, 2 documents a query and 2 intents")
    _check(n_intents, n_features, agreement)
    directions = _orthonormal(rng, n_intents + 1, n_features)
    weights = np.sqrt(agreement) * directions[:1] + np.sqrt(1.0 - agreement) * directions[1:]
    offsets = np.arange(n_queries + 1, dtype=np.int64) * docs_per_query
    features = np.empty((int(offsets[-1]), n_features), np.float32)
    scores = np.empty((n_intents, int(offsets[-1])))
    for queries in _chunks(offsets, n_features):
        first, last = queries[0], queries[-1]
        raw = rng.normal(size=(last - first, n_features))
        scores[:, first:last] = weights @ raw.T
        features[first:last] = normalise_by_query(raw, queries - first)
    scores += label_noise * rng.normal(size=scores.shape)
    shares = np.linspace(_MOST_RELEVANT, _LEAST_RELEVANT, n_intents)
    cuts = [np.quantile(row, 1.0 - share) for row, share in zip(scores, shares, strict=True)]
    relevance = (scores > np.array(cuts)[:, None]).astype(np.int16)
    query_ids = np.arange(1, n_queries + 1, dtype=np.int64)
    return _collection("synthetic-intents", features, IntentJudgements(relevance, offsets, query_ids))


def _read_judgements(path: Path, intent: int) -> tuple[list[tuple[int, str]], list[int]]:
    """Return the (query, document) and the label of each line."""
    keys: list[tuple[int, str]] = []
    labels: list[int] = []
    try:
        lines = read_text_file(path, FileKind.SAMPLE).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read: {error}; expected judgements of intent {intent}") from error
    for number, line in enumerate(lines, start=1):
        match line.split():
            case [query, named, document, ("0" | "1") as label] if query.isdecimal() and named == str(intent):
                keys.append((int(query), document))
                labels.append(int(label))
            case []:
                continue
            case _:
                raise DataError(f"{path}:{number}: expected '<query> {intent} <document> <0 or 1>', not {line[:60]!r}")
    if not keys:
        raise DataError(f"{path}: no judgement was found")
    return keys, labels


def _check(n_intents: int, n_features: int, agreement: float) -> None:
    if not 0.0 <= agreement <= 1.0:
        raise SettingsError(f"agreement between intents must be from 0 to 1, not {agreement}")
    if n_features <= n_intents:
        raise SettingsError(f"{n_intents} intents need more than {n_intents} features, not {n_features}")


def _orthonormal(rng: np.random.Generator, n_directions: int, n_features: int) -> NDArray[np.float64]:
    """(directions, d) orthonormal rows in random directions."""
    basis, _ = np.linalg.qr(rng.normal(size=(n_features, n_directions)))
    return np.ascontiguousarray(basis.T)


def _chunks(offsets: NDArray[np.int64], n_features: int) -> list[NDArray[np.int64]]:
    """Return the offsets in runs of whole queries of a bounded size; each run begins at the end of the one before."""
    largest = int(np.diff(offsets).max())
    step = max(1, _CHUNK_VALUES // (largest * n_features))
    return [offsets[first : first + step + 1] for first in range(0, len(offsets) - 1, step)]


def _collection(name: str, features: NDArray[np.float32], judgements: IntentJudgements) -> IntentCollection:
    merged = RankingDataset(name, features, judgements.relevance.max(axis=0), judgements.offsets, judgements.query_ids)
    return IntentCollection(
        merged,
        tuple(relabel(merged, row, f"{name}/intent-{i}") for i, row in enumerate(judgements.relevance, start=1)),
    )
