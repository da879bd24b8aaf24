"""Data sets from arrays of one's own, treated like a folder of LETOR files: the same data gives the same result."""

import hashlib
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foltr.core.data.dataset import RankingDataset, select_queries
from foltr.core.data.letor_lines import normalise_by_query
from foltr.core.data.sources import LoadedData
from foltr.core.errors import DataError

Arrays = tuple[NDArray[Any], ...]
"""Features (documents, d), relevance (documents,) and query ids (documents,); six for training and test."""

_TEST_EVERY = 3


def arrays_of(given: object) -> Arrays:
    """Return the arrays of a triple (features, relevance, query ids), or of a pair of these for training and test.

    Raises:
        DataError: it is neither.
    """
    parts: list[Any] = list(given) if isinstance(given, tuple | list) else [given]
    if len(parts) == 2 and all(isinstance(part, tuple | list) and len(part) == 3 for part in parts):
        parts = [*parts[0], *parts[1]]
    if len(parts) not in (3, 6):
        raise DataError(
            "data: expected (features, relevance, query_ids), or a pair of these for training and test, not "
            f"{len(parts)} of {type(given).__name__}"
        )
    return tuple(np.asarray(part) for part in parts)


def load_own(name: str, given: Any, seed: int) -> LoadedData:
    """Return a training and a test set; of a single triple each third query is for testing.

    Args:
        name: for reports.
        given: what `arrays_of` takes or returns, or a function that returns it, and gets the seed if it takes one.
        seed: of the run.

    Raises:
        DataError: it is none of these, or as `dataset_of`.
    """
    if callable(given):
        given = given(seed) if takes_seed(given) else given()
    arrays = arrays_of(given)
    if len(arrays) == 6:
        train, test = dataset_of(f"{name}, training", arrays[:3]), dataset_of(f"{name}, test", arrays[3:])
    else:
        whole = dataset_of(name, arrays)
        numbers = np.arange(whole.n_queries)
        is_test = numbers % _TEST_EVERY == _TEST_EVERY - 1
        if not is_test.any():
            raise DataError(f"data: {name}: {whole.n_queries} queries cannot be split; give a training and a test set")
        train, test = select_queries(whole, numbers[~is_test]), select_queries(whole, numbers[is_test])
    return LoadedData(train, test, f"{name} (own arrays)")


def takes_seed(function: Callable[..., object]) -> bool:
    """Return whether a function of data gets the run's seed: if it takes an argument, as far as Python can tell."""
    try:
        return bool(inspect.signature(function).parameters)
    except ValueError:  # of some compiled ones
        return False


def dataset_of(name: str, arrays: Sequence[NDArray[Any]]) -> RankingDataset:
    """Return a data set of features, relevance and query ids. Rows of a query may be apart; their order is kept.

    Features are scaled to [0, 1] within each query, like those of a folder.

    Raises:
        DataError: wrong shapes, features that are not finite real numbers, or grades that are not whole from 0.
    """
    features, relevance, queries = arrays
    if features.ndim != 2 or not features.size or not relevance.shape == queries.shape == features.shape[:1]:
        raise DataError(
            f"data: {name}: features {features.shape}, relevance {relevance.shape}, query ids {queries.shape}; "
            "expected a row, a grade and an id for each document"
        )
    for what, values in (("features", features), ("relevance", relevance)):
        if values.dtype.kind not in "fiub" or not np.isfinite(values).all():
            raise DataError(f"data: {name}: {what} must be finite real numbers; they are {values.dtype}")
    grades = relevance.astype(np.int16)
    if (grades != relevance).any() or grades.min() < 0:
        raise DataError(f"data: {name}: relevance must be whole numbers from 0")
    ids, first, query_of_row = np.unique(queries, return_index=True, return_inverse=True)
    # Queries in the order of their first document.
    order = np.argsort(first)
    place = np.empty(len(ids), np.int64)
    place[order] = np.arange(len(ids))
    rows = np.argsort(place[query_of_row], kind="stable")
    offsets = np.concatenate(([0], np.cumsum(np.bincount(place[query_of_row])))).astype(np.int64)
    numbers = np.arange(len(ids), dtype=np.int64)
    if ids.dtype.kind in "iub" or (ids.dtype.kind == "f" and np.isfinite(ids).all() and (ids == np.floor(ids)).all()):
        numbers = ids[order].astype(np.int64)
    return RankingDataset(name, normalise_by_query(features[rows], offsets), grades[rows], offsets, numbers)


def digest_of_arrays(arrays: Arrays) -> str:
    """Return 12 hexadecimal digits of arrays' values, types and shapes."""
    digest = hashlib.sha256()
    for array in arrays:
        array = array.astype(np.str_) if array.dtype == np.object_ else array
        digest.update(f"{array.dtype.str} {array.shape}\n".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()[:12]
