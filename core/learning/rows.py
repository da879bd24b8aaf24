"""Rows as applications have them, as numbers: arrays, data frames of pandas or polars, lists of dicts.

Columns with names are matched by the schema's names. Neither library is imported.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foltr.core.errors import DataError

Rows = ArrayLike | Sequence[Mapping[str, float]]
"""(documents, features): an array or nested lists in the schema's order, a data frame, or a dict for each document."""


def as_numbers(features: Rows, names: Sequence[str] | None = None) -> NDArray[np.floating]:
    """Return an application's features as an array of float32, or else of float64.

    Args:
        names: of the schema's features. None: a data frame's columns are taken in their order.

    Raises:
        DataError: a column is missing or extra, a value is no number, or rows differ in length; the message names the
            row and the column.
    """
    given: Any = _in_order(features, names)
    try:
        exact = np.asarray(given)
        if exact.dtype.kind in "mM":
            raise TypeError(f"{exact.dtype} is a time")
        # NumPy only warns when complex numbers lose their imaginary part.
        casting: Literal["same_kind", "unsafe"] = "same_kind" if exact.dtype.kind == "c" else "unsafe"
        return exact if exact.dtype == np.float32 else exact.astype(np.float64, casting=casting, copy=False)
    except (TypeError, ValueError, OverflowError) as error:
        reason = _first_fault(given, names) or f"expected numbers, (documents, features): {error}"
        raise DataError(f"features: {reason}") from error


def cell(row: int, column: int, names: Sequence[str] | None) -> str:
    """Return how messages call a value."""
    return f"row {row}, column {column}" if names is None else f"{names[column]!r} of document {row}"


def first_no_number(values: Iterable[Any]) -> int | None:
    """Return the position of the first value that is no number; None, which NumPy reads as NaN, is one."""
    for i, value in enumerate(values):
        try:
            float(0.0 if value is None else value)
        except (TypeError, ValueError, OverflowError):
            return i
    return None


def _in_order(features: Rows, names: Sequence[str] | None) -> object:
    """Return the values alone, in the order of the names, if the features have names themselves."""
    rows: Any = features
    if hasattr(rows, "columns") and hasattr(rows, "to_numpy"):
        if names is None or len(rows) == 0:  # a frame of no hits has no columns
            return rows.to_numpy()
        _check_names("the data frame", list(rows.columns), names)
        return rows[list(names)].to_numpy()
    if isinstance(rows, Mapping):
        raise DataError(
            "features: got a dict of columns; give rows: a dict for each document, a data frame, or a matrix"
        )
    if isinstance(rows, list | tuple) and rows and isinstance(rows[0], Mapping):
        if names is None:
            raise DataError("features: rows are dicts; give a schema, whose names say which value is which feature")
        wanted = set(names)
        for number, row in enumerate(rows):
            if not isinstance(row, Mapping):
                raise DataError(f"features: row {number} is no dict, and row 0 is one")
            if row.keys() != wanted:
                _check_names(f"row {number}", row, names)
        return [[row[name] for name in names] for row in rows]
    return rows


def _check_names(whose: str, given: Iterable[object], names: Sequence[str]) -> None:
    """Raise DataError unless these are the names, each once, in any order."""
    given = list(given)
    missing = next((name for name in names if name not in given), None)
    extra = next((name for name in given if name not in names), None)
    if missing is not None:
        instead = "" if extra is None else f"; {extra!r:.80} is none"
        raise DataError(f"features: {whose} has no {missing!r}, which is a feature of the schema{instead}")
    if extra is not None:
        raise DataError(f"features: {whose} has {extra!r:.80}, which is no feature of the schema; leave it out")
    if len(given) > len(names):
        twice = next(name for name in given if given.count(name) > 1)
        raise DataError(f"features: {whose} has {twice!r} twice")


def _first_fault(rows: Any, names: Sequence[str] | None) -> str | None:
    """Describe the first row of another length, else the first value that is no number; None if these are no rows."""
    try:
        lengths = [len(row) for row in rows]
    except TypeError:
        return None
    ragged = next((i for i, length in enumerate(lengths) if length != lengths[0]), None)
    if ragged is not None:
        return f"row {ragged} has {lengths[ragged]} columns, and row 0 has {lengths[0]}"
    named = names if names is not None and len(names) == lengths[0] else None
    for i, row in enumerate(rows):
        column = None if isinstance(row, str) else first_no_number(row)
        if column is not None:
            return f"{cell(i, column, named)} is {row[column]!r:.80}; expected numbers"
    return None
