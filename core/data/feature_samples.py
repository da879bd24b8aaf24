"""A sample of features as an application computes them, read from a file: CSV with a heading, NumPy's npz, or LETOR."""

import csv
import io
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foltr.core.data.letor import load_letor
from foltr.core.errors import DataError
from foltr.core.numerics.array_files import read_arrays_file
from foltr.core.user_files import FileKind, read_text_file

_ARRAY = "features"


@dataclass(frozen=True, eq=False)
class FeatureSample:
    """Features of documents.

    Attributes:
        values: (documents, features) float64, finite also as float32, at least one of each.
        names: of the features, where the file has them.
    """

    values: NDArray[np.float64]
    names: tuple[str, ...] | None = None


def read_feature_sample(path: Path) -> FeatureSample:
    """Read a file by its name's ending: ``.csv``, ``.npz``, and anything else as LETOR lines.

    Raises:
        DataError: it cannot be read, or holds no matrix of finite numbers; the message names the place.
    """
    try:
        match path.suffix.lower():
            case ".csv":
                sample = _read_csv(path)
            case ".npz":
                sample = _read_npz(path)
            case _:
                sample = FeatureSample(load_letor(path, normalise=False).features.astype(np.float64))
    except OSError as error:
        raise DataError(f"{path}: {error.strerror or error}") from error
    if 0 in sample.values.shape or sample.values.ndim != 2:
        raise DataError(f"{path}: a sample has rows of documents and columns of features, not {sample.values.shape}")
    usable = np.abs(sample.values) <= np.finfo(np.float32).max  # written so that NaN fails it too
    if not usable.all():
        row, column = np.argwhere(~usable)[0]
        value = sample.values[row, column]
        raise DataError(f"{path}: column {column} of document {row} is {value}, not a finite number that fits float32")
    return sample


def _read_csv(path: Path) -> FeatureSample:
    file = io.StringIO(read_text_file(path, FileKind.SAMPLE).removeprefix("\ufeff"), newline="")
    try:
        names, *rows = [row for row in csv.reader(file) if row] or [[]]
    except csv.Error as error:
        raise DataError(f"{path}: it is not CSV in UTF-8: {error}") from error
    if all(map(_is_number, names)):
        raise DataError(f"{path}: its first line must name the columns")
    values = [list(_numbers(path, names, number, row)) for number, row in enumerate(rows, start=2)]
    return FeatureSample(np.array(values, np.float64).reshape(-1, len(names)), tuple(name.strip() for name in names))


def _numbers(path: Path, names: list[str], number: int, row: list[str]) -> Iterator[float]:
    if len(row) != len(names):
        raise DataError(f"{path}: row {number} has {len(row)} columns, and the first {len(names)}")
    for name, cell in zip(names, row, strict=True):
        try:
            yield float(cell)
        except ValueError:
            raise DataError(f"{path}: row {number}: {name.strip()!r} is {cell!r:.40}, not a number") from None


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _read_npz(path: Path) -> FeatureSample:
    try:
        named = read_arrays_file(path, FileKind.SAMPLE)  # no pickles: they may run anything
    except (ValueError, EOFError) as error:
        raise DataError(f"{path}: it is not an npz of plain arrays: {error}") from error
    matrix = named.get(_ARRAY, next(iter(named.values())) if len(named) == 1 else None)
    if matrix is None or matrix.dtype.kind not in "fiub":
        raise DataError(f"{path}: expected an array of numbers named {_ARRAY!r}, or a single one; it has {list(named)}")
    names = named.get("names")
    return FeatureSample(matrix.astype(np.float64), None if names is None else tuple(map(str, names.ravel())))
