"""Reads LETOR text files: `<grade> qid:<query> <feature>:<value> ... # comment`, one document a line.

Reading text is slow, so the arrays are kept in a cache directory, keyed by the file's path, size and time of change and
by how it was read. The first time, compiled code reads it (`foltr.core.data.letor_kernels`). Without numba, and for a
file in which that code finds anything unusual, the line reader does (`foltr.core.data.letor_lines`), which also names
the wrong line. Both give the same arrays: every numeral becomes the float64 of Python's ``float``.
"""

import contextlib
import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from foltr.core.data.dataset import RankingDataset, cache_directory
from foltr.core.data.letor_lines import HIGHEST_FEATURE, LetorArrays, read_lines
from foltr.core.errors import DataError
from foltr.core.numerics.compiled import COMPILED
from foltr.core.user_files import LONGEST_LINE, open_file, too_long_a_line

# Part of the cache key: raise it when the same text would give different arrays.
_CACHE_FORMAT = 2
_ARRAYS = ("features", "relevance", "offsets", "query_ids")
_CHUNK_BYTES = 1 << 22
_DOCS_A_QUERY = 256  # to begin with
_TOO_LARGE = "{path}: a feature is too large for float32; expected values up to 3e38"


@dataclass(frozen=True, slots=True)
class RankingSplit:
    """A collection as published: a training and a test set, and a validation set if there is one."""

    train: RankingDataset
    test: RankingDataset
    vali: RankingDataset | None = None


def load_split(folder: Path, normalise: bool = True, cache_dir: Path | None = None) -> RankingSplit:
    """Read `train.txt`, `test.txt` and, if present, `vali.txt` from a folder such as `Fold1`.

    A text file omits features that are zero, so the sets may differ in the highest feature they mention; all get the
    highest of the collection.

    Args:
        folder: the published folder.
        normalise: see `load_letor`.
        cache_dir: see `load_letor`.

    Raises:
        DataError: a file is missing or has a bad line.
    """
    folder = Path(folder)
    names = ["train", "test"] + (["vali"] if (folder / "vali.txt").exists() else [])
    sets = {name: load_letor(folder / f"{name}.txt", normalise, cache_dir) for name in names}
    return assemble_split(sets["train"], sets["test"], sets.get("vali"))


def assemble_split(train: RankingDataset, test: RankingDataset, vali: RankingDataset | None) -> RankingSplit:
    """Return the sets as one split, all as wide as the widest."""
    n_features = max(dataset.n_features for dataset in (train, test, vali) if dataset is not None)
    return RankingSplit(
        widen(train, n_features), widen(test, n_features), None if vali is None else widen(vali, n_features)
    )


def load_letor(path: Path, normalise: bool = True, cache_dir: Path | None = None) -> RankingDataset:
    """Read one LETOR file, from the cache if it was read before.

    A query's lines must be contiguous: a query id that comes back later means that the file was shuffled or that two
    were joined, and merging the parts would hide it.

    Args:
        path: the text file.
        normalise: scale each feature within each query to [0, 1] (minimum to 0, maximum to 1, constant to 0).
        cache_dir: where arrays are kept; by default `foltr.core.data.dataset.cache_directory()`. A directory that
            cannot be written only costs time.

    Returns:
        float32 features, as many as the highest feature number; the name is the last two parts of the path.

    Raises:
        DataError: the file cannot be read or a line is wrong; the message names file, line and what was expected.
    """
    path = Path(path)
    try:
        status = path.stat()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}; expected a LETOR text file") from error
    if path.is_dir():
        raise DataError(f"{path}: cannot be read: it is a folder; expected a LETOR text file")
    key = json.dumps(
        [_CACHE_FORMAT, str(path.resolve()), status.st_size, status.st_mtime_ns, normalise], sort_keys=True
    )
    digest = hashlib.sha256(key.encode()).hexdigest()[:32]
    entry = (cache_directory() if cache_dir is None else Path(cache_dir)) / "letor" / digest
    name = "/".join(path.resolve().with_suffix("").parts[-2:])
    arrays = _read_cached(entry) if path.is_file() else None
    if arrays is None:
        arrays = _parse(path, normalise)
        # A full disk or a read-only home costs later readers some seconds, but not this one its data.
        with contextlib.suppress(OSError):
            _write_cached(entry, arrays)
    return RankingDataset(name, **arrays)


def load_raw(path: Path, n_features: int) -> RankingDataset:
    """Read one LETOR file of features in an application's own scale, as wide as its schema.

    Args:
        n_features: of the schema: feature 1 of a line is its first one. Features that no line mentions are 0.

    Raises:
        DataError: as `load_letor`, or the file has more features than that.
    """
    found = load_letor(path, normalise=False)
    if found.n_features > n_features:
        raise DataError(
            f"{path}: a line has feature {found.n_features}; the schema has {n_features}, numbered from 1 in this file"
        )
    return widen(found, n_features)


def _parse(path: Path, normalise: bool) -> LetorArrays:
    arrays = None
    try:
        if COMPILED and path.is_file():  # it reads twice, which a pipe does not allow
            arrays = read_compiled(path, normalise)
        if arrays is None:
            arrays = read_lines(path, normalise)
            if not np.isfinite(arrays["features"]).all():
                raise DataError(_TOO_LARGE.format(path=path))
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}; expected a LETOR text file") from error
    return arrays


def read_compiled(path: Path, normalise: bool) -> LetorArrays | None:
    """Read with the compiled parser; None if it met something that the line reader must judge."""
    from foltr.core.data.letor_kernels import DOCS, QUERIES, TOO_LARGE, finish_query, measure

    n_docs, n_features = 0, 0
    for text, stop in _whole_lines(path):
        docs, highest = measure(text, stop)
        n_docs, n_features = n_docs + docs, max(n_features, highest)
    if n_docs == 0 or n_features > HIGHEST_FEATURE:
        return None
    arrays = LetorArrays(
        features=np.empty((n_docs, n_features), np.float32),
        relevance=np.empty(n_docs, np.int16),
        offsets=np.empty(n_docs + 1, np.int64),
        query_ids=np.empty(n_docs, np.int64),
    )
    block = np.empty((_DOCS_A_QUERY, n_features))
    state = np.zeros(7, np.int64)
    for text, stop in _whole_lines(path):
        grown = _parse_lines(text, stop, normalise, arrays, block, state)
        if grown is None:
            return None
        block = grown
    finish_query(normalise, arrays["features"], block, state)
    if state[TOO_LARGE]:
        raise DataError(_TOO_LARGE.format(path=path))
    n_queries = int(state[QUERIES])
    query_ids = arrays["query_ids"][:n_queries].copy()
    # The file does not match the measured one: it changed in between, or a query comes back.
    if state[DOCS] != n_docs or np.unique(query_ids).shape[0] != n_queries:
        return None
    arrays["offsets"][n_queries] = n_docs
    arrays["offsets"] = arrays["offsets"][: n_queries + 1].copy()
    arrays["query_ids"] = query_ids
    return arrays


def _parse_lines(
    text: NDArray[np.uint8],
    stop: int,
    normalise: bool,
    arrays: LetorArrays,
    block: NDArray[np.float64],
    state: NDArray[np.int64],
) -> NDArray[np.float64] | None:
    """Read one chunk; return the block, larger if a query needed it, or None for text that is not plainly valid."""
    from foltr.core.data.letor_kernels import FULL, LINE, ODD, TOKEN_END, UNDECIDED, parse

    start = 0
    decided: dict[int, float] = {}
    while True:
        status, at = parse(
            text,
            start,
            stop,
            normalise,
            arrays["features"],
            arrays["relevance"],
            arrays["offsets"],
            arrays["query_ids"],
            block,
            state,
            np.array(list(decided), np.int64),
            np.array(list(decided.values()), np.float64),
        )
        if status == ODD:
            return None
        # Decided numerals belong to one line; kept for the next, parsing would never end.
        if state[LINE] != start:
            decided.clear()
        if status == FULL:
            block = np.concatenate((block, np.empty_like(block)))
        elif status == UNDECIDED:
            decided[at] = float(text[at : state[TOKEN_END]].tobytes())
        else:
            return block
        start = int(state[LINE])


def _whole_lines(path: Path) -> Iterator[tuple[NDArray[np.uint8], int]]:
    """Yield the file in pieces that end with a line: a reused buffer, and how much of it counts."""
    buffer = bytearray(_CHUNK_BYTES)
    held = 0
    with open_file(path) as file:
        while True:
            read = file.readinto(memoryview(buffer)[held:])
            stop = held + read if read == 0 else buffer.rfind(b"\n", held, held + read) + 1
            held += read
            if stop > 0:
                yield np.frombuffer(buffer, np.uint8), stop
                buffer[: held - stop] = buffer[stop:held]
                held -= stop
            if read == 0:
                return
            if held == len(buffer):
                # A line longer than the buffer.
                if held >= LONGEST_LINE:
                    raise too_long_a_line(path)
                buffer = buffer + bytes(len(buffer))


def widen(dataset: RankingDataset, n_features: int) -> RankingDataset:
    """Append zero columns to a set: features that none of its documents mention."""
    missing = n_features - dataset.n_features
    return replace(dataset, features=np.pad(dataset.features, ((0, 0), (0, missing)))) if missing else dataset


def _read_cached(entry: Path) -> LetorArrays | None:
    try:
        # Mapped copy-on-write: instant at any size, and a caller that writes cannot change the cache.
        features, relevance, offsets, query_ids = (
            np.asarray(np.load(entry / f"{name}.npy", mmap_mode="c", allow_pickle=False)) for name in _ARRAYS
        )
        return LetorArrays(features=features, relevance=relevance, offsets=offsets, query_ids=query_ids)
    except (OSError, ValueError, EOFError):
        # Missing, or half-written by another program: read the text again.
        return None


def _write_cached(entry: Path, arrays: LetorArrays) -> None:
    """Write beside the entry and move it into place, so that a reader sees all of it or nothing."""
    entry.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".writing-", dir=entry.parent))
    try:
        for name, array in arrays.items():
            np.save(scratch / f"{name}.npy", cast("NDArray[Any]", array), allow_pickle=False)
        if entry.exists() and _read_cached(entry) is None:
            shutil.rmtree(entry)
        # Fails if another process was faster; its entry is as good.
        scratch.rename(entry)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
