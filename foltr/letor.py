"""Reading LETOR text files: `<grade> qid:<query> <feature>:<value> ... # comment`, one document a line.

Reading text is slow, so what was read is kept as arrays in a cache directory, keyed by the file's path, size
and time of change and by how it was read. Parsing is scikit-learn's (extra `simulation`); it does not say
which line is wrong, so a file that fails is read again, line by line, only to find out.
"""

import contextlib
import hashlib
import json
import math
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foltr.datasets import RankingDataset, cache_directory
from foltr.errors import DataError, UnavailableError

# Part of the cache key: raise it when the same text would give different arrays.
_CACHE_FORMAT = 1
_ARRAYS = ("features", "relevance", "offsets", "query_ids")
_HIGHEST_GRADE = 62
_LINE_FORM = "expected '<grade> qid:<integer> <feature>:<value> ...'"


@dataclass(frozen=True, slots=True)
class RankingSplit:
    """A collection as published: a training and a test set, and a validation set if there is one."""

    train: RankingDataset
    test: RankingDataset
    vali: RankingDataset | None = None


def load_split(folder: Path, normalise: bool = True, cache_dir: Path | None = None) -> RankingSplit:
    """Read `train.txt`, `test.txt` and, if present, `vali.txt` from a folder such as `Fold1`.

    A text file leaves out features that are zero, so the sets may differ in the highest feature they mention;
    all get the highest of the collection.

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
    n_features = max(dataset.n_features for dataset in sets.values())
    widened = {name: _widen(dataset, n_features) for name, dataset in sets.items()}
    return RankingSplit(widened["train"], widened["test"], widened.get("vali"))


def load_letor(path: Path, normalise: bool = True, cache_dir: Path | None = None) -> RankingDataset:
    """Read one LETOR file, from the cache if it was read before.

    A query's lines must stand together: a query id that comes back later means that the file was shuffled or
    that two were joined, and merging the parts would hide it.

    Args:
        path: the text file.
        normalise: scale each feature within each query to [0, 1] (minimum to 0, maximum to 1, constant to 0).
        cache_dir: where arrays are kept; by default `foltr.datasets.cache_directory()`. A directory that
            cannot be written is no error, only slow.

    Returns:
        float32 features, as many as the highest feature number; the name is the last two parts of the path.

    Raises:
        DataError: the file cannot be read or a line is wrong; the message names file, line and what was
            expected.
        UnavailableError: the extra `simulation` is not installed and the file is not in the cache.
    """
    path = Path(path)
    try:
        status = path.stat()
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}; expected a LETOR text file") from error
    key = json.dumps(
        [_CACHE_FORMAT, str(path.resolve()), status.st_size, status.st_mtime_ns, normalise], sort_keys=True
    )
    digest = hashlib.sha256(key.encode()).hexdigest()[:32]
    entry = (cache_directory() if cache_dir is None else Path(cache_dir)) / "letor" / digest
    name = "/".join(path.resolve().with_suffix("").parts[-2:])
    arrays = _read_cached(entry)
    if arrays is None:
        arrays = _parse(path, normalise)
        # A full disk or a read-only home costs the next reader some seconds, not this one its data.
        with contextlib.suppress(OSError):
            _write_cached(entry, arrays)
    return RankingDataset(name, **arrays)


def normalise_by_query(features: NDArray[np.floating], offsets: NDArray[np.int64]) -> NDArray[np.float32]:
    """Scale each feature within each query to [0, 1]; a feature that is constant within a query becomes 0.

    Args:
        features: (docs, d) finite.
        offsets: (queries + 1,) int64 row ranges.

    Returns:
        (docs, d) float32, C order. The arithmetic is done in float64: raw features reach 1e8, where float32
        would round neighbours together before they are scaled apart.
    """
    scaled = np.empty(features.shape, np.float32)
    for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        block = features[start:end].astype(np.float64)
        low = block.min(axis=0)
        span = block.max(axis=0) - low
        np.subtract(block, low, out=block)
        np.divide(block, span, out=block, where=span > 0.0)
        scaled[start:end] = block
    return scaled


def _parse(path: Path, normalise: bool) -> dict[str, NDArray[Any]]:
    try:
        from sklearn.datasets import load_svmlight_file
    except ModuleNotFoundError as error:
        raise UnavailableError("reading LETOR text needs scikit-learn: pip install 'foltr[simulation]'") from error
    try:
        with path.open("rb") as file:
            sparse, grades, qids = load_svmlight_file(file, query_id=True, zero_based=False)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}; expected a LETOR text file") from error
    except (ValueError, OverflowError, TypeError) as error:
        _raise_for_bad_line(path)
        raise DataError(f"{path}: {error}; {_LINE_FORM}") from error
    if not _plausible(sparse.data, grades, qids):
        _raise_for_bad_line(path)
        raise DataError(f"{path}: no document was found; {_LINE_FORM}")
    starts = np.flatnonzero(np.diff(qids)) + 1
    offsets = np.concatenate(([0], starts, [qids.shape[0]])).astype(np.int64)
    query_ids = qids[offsets[:-1]].astype(np.int64)
    if np.unique(query_ids).shape[0] != query_ids.shape[0]:
        _raise_for_bad_line(path)
    dense = sparse.toarray()
    with np.errstate(over="ignore"):
        features = normalise_by_query(dense, offsets) if normalise else dense.astype(np.float32)
    if not np.isfinite(features).all():
        raise DataError(f"{path}: a feature is too large for float32; expected values up to 3e38")
    return {
        "features": features,
        "relevance": grades.astype(np.int16),
        "offsets": offsets,
        "query_ids": query_ids,
    }


def _plausible(values: NDArray[np.float64], grades: NDArray[np.float64], qids: NDArray[np.int64]) -> bool:
    """Whether the whole file obeys the rules that scikit-learn does not check."""
    return bool(
        0 < grades.shape[0] == qids.shape[0]
        and np.isfinite(values).all()
        and (grades >= 0).all()
        and (grades <= _HIGHEST_GRADE).all()
        and (grades == np.floor(grades)).all()
    )


def _raise_for_bad_line(path: Path) -> None:
    """Raise DataError for the first wrong line; return if every line is right."""
    finished: set[int] = set()
    current: int | None = None
    with path.open("rb") as file:
        for number, raw in enumerate(file, start=1):
            tokens = raw.split(b"#", 1)[0].decode("utf-8", errors="replace").split()
            if not tokens:
                continue
            complaint, qid = _check_line(tokens)
            if not complaint and qid != current:
                if qid in finished:
                    complaint = f"query {qid} comes back; expected all lines of a query together"
                if current is not None:
                    finished.add(current)
                current = qid
            if complaint:
                raise DataError(f"{path}:{number}: {complaint}")


def _check_line(tokens: list[str]) -> tuple[str, int]:
    """Return what is wrong with a line, empty if nothing, and its query id."""
    grade = _number(tokens[0])
    if not (0 <= grade <= _HIGHEST_GRADE and grade == int(grade)):
        return f"grade {tokens[0]!r}; expected a whole number from 0 to {_HIGHEST_GRADE}", -1
    prefix, _, qid = tokens[1].partition(":") if len(tokens) > 1 else ("", "", "")
    if prefix != "qid" or not qid.removeprefix("-").isdecimal() or not -(2**63) <= int(qid) < 2**63:
        return f"no query id after the grade; {_LINE_FORM}", -1
    previous = 0
    for token in tokens[2:]:
        feature, separator, value = token.partition(":")
        if not separator or not feature.isdecimal():
            return f"{token!r} is not <feature>:<value>", -1
        if int(feature) < 1:
            return f"feature {feature}; expected feature numbers from 1", -1
        if int(feature) <= previous:
            return f"feature {feature} after {previous}; expected rising feature numbers, each once", -1
        if not math.isfinite(_number(value)):
            return f"feature {feature} has value {value!r}; expected a finite number", -1
        previous = int(feature)
    return "", int(qid)


def _number(text: str) -> float:
    """The number a text stands for, NaN if it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _widen(dataset: RankingDataset, n_features: int) -> RankingDataset:
    """The same set with zero columns appended: features that none of its documents mention."""
    missing = n_features - dataset.n_features
    if missing == 0:
        return dataset
    return RankingDataset(
        dataset.name,
        np.pad(dataset.features, ((0, 0), (0, missing))),
        dataset.relevance,
        dataset.offsets,
        dataset.query_ids,
    )


def _read_cached(entry: Path) -> dict[str, NDArray[Any]] | None:
    try:
        # Mapped copy-on-write: instant whatever the size, and a caller that writes cannot change the cache.
        return {name: np.asarray(np.load(entry / f"{name}.npy", mmap_mode="c", allow_pickle=False)) for name in _ARRAYS}
    except (OSError, ValueError, EOFError):
        # Not there, or left half-written by something else than us: read the text again.
        return None


def _write_cached(entry: Path, arrays: dict[str, NDArray[Any]]) -> None:
    """Write beside the entry and move it into place, so that a reader sees all of it or nothing."""
    entry.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=".writing-", dir=entry.parent))
    try:
        for name in _ARRAYS:
            np.save(scratch / f"{name}.npy", arrays[name], allow_pickle=False)
        if entry.exists() and _read_cached(entry) is None:
            shutil.rmtree(entry)
        # Fails if another process was faster; its entry is as good.
        scratch.rename(entry)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
