"""Reads LETOR text line by line in plain Python: defines what a line must be, and reports a line that is not.

This reader decides what is valid. The compiled one (`foltr.core.data.letor_kernels`) is only a faster way to the same
result, and leaves everything it does not know to this one; a device without numba uses it too.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import DataError
from foltr.core.user_files import lines_of

HIGHEST_GRADE = 62
# A dense row of more features than any collection has is a typing error, and would fill the memory.
HIGHEST_FEATURE = 100_000
LINE_FORM = "expected '<grade> qid:<integer> <feature>:<value> ...'"
_INTEGER_DIGITS = 20


class LetorArrays(TypedDict):
    """The fields of a RankingDataset, as read."""

    features: NDArray[np.float32]
    relevance: NDArray[np.int16]
    offsets: NDArray[np.int64]
    query_ids: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Line:
    grade: int
    query_id: int
    features: list[int]
    values: list[float]


def read_lines(path: Path, normalise: bool) -> LetorArrays:
    """Read a LETOR file with Python's own numbers.

    Args:
        path: the file.
        normalise: scale each feature within each query to [0, 1].

    Returns:
        arrays as `foltr.core.data.letor.load_letor` describes them; raw values beyond float32 become infinite.

    Raises:
        DataError: a line is wrong: file, line number, what was expected; or the file has no document.
        OSError: the file cannot be read.
    """
    relevance: list[int] = []
    offsets: list[int] = [0]
    query_ids: list[int] = []
    blocks: list[NDArray[np.float32]] = []
    query: list[_Line] = []
    finished: set[int] = set()
    with lines_of(path) as lines:
        for number, raw in enumerate(lines, start=1):
            tokens = raw.split(b"#", 1)[0].decode("ascii", errors="replace").split()
            if not tokens:
                continue
            line = _line(tokens)
            if isinstance(line, str):
                raise DataError(f"{path}:{number}: {line}")
            if query and line.query_id != query[0].query_id:
                blocks.append(_dense(query, normalise))
                finished.add(query[0].query_id)
                offsets.append(len(relevance))
                query = []
            if not query:
                if line.query_id in finished:
                    raise DataError(
                        f"{path}:{number}: query {line.query_id} comes back; expected all lines of a query together"
                    )
                query_ids.append(line.query_id)
            query.append(line)
            relevance.append(line.grade)
    if not query:
        raise DataError(f"{path}: no document was found; {LINE_FORM}")
    blocks.append(_dense(query, normalise))
    offsets.append(len(relevance))
    features = np.zeros((len(relevance), max(block.shape[1] for block in blocks)), np.float32)
    for start, block in zip(offsets, blocks, strict=False):
        features[start : start + block.shape[0], : block.shape[1]] = block
    return LetorArrays(
        features=features,
        relevance=np.array(relevance, np.int16),
        offsets=np.array(offsets, np.int64),
        query_ids=np.array(query_ids, np.int64),
    )


def read_query(lines: Sequence[bytes], where: str, *, normalise: bool) -> tuple[NDArray[np.int16], NDArray[np.float32]]:
    """Read the lines of one query, for a file that is too long for memory.

    Args:
        lines: at least one, of documents of the same query.
        where: the place that an error names.
        normalise: as in `read_lines`.

    Returns:
        (docs,) grades, and (docs, d) features up to the highest one mentioned.

    Raises:
        DataError: a line is wrong, or of another query.
    """
    query: list[_Line] = []
    for raw in lines:
        line = _line(raw.split(b"#", 1)[0].decode("ascii", errors="replace").split() or [""])
        if isinstance(line, str):
            raise DataError(f"{where}: {line}")
        query.append(line)
    if len({line.query_id for line in query}) != 1:
        raise DataError(f"{where}: expected the lines of one query")
    return np.array([line.grade for line in query], np.int16), _dense(query, normalise)


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
        with np.errstate(over="ignore", invalid="ignore"):
            span = block.max(axis=0) - low
            np.subtract(block, low, out=block)
            np.divide(block, span, out=block, where=span > 0.0)
            scaled[start:end] = block
    return scaled


def _dense(query: list[_Line], normalise: bool) -> NDArray[np.float32]:
    """One query's rows, as wide as its highest feature."""
    width = max((line.features[-1] for line in query if line.features), default=0)
    block = np.zeros((len(query), width))
    for row, line in zip(block, query, strict=True):
        row[np.array(line.features, np.int64) - 1] = line.values
    if normalise:
        return normalise_by_query(block, np.array([0, len(query)], np.int64))
    with np.errstate(over="ignore"):
        return block.astype(np.float32)


def _line(tokens: list[str]) -> _Line | str:
    """Return the content of a line, or what is wrong with it."""
    grade = _number(tokens[0])
    if not (0 <= grade <= HIGHEST_GRADE and grade == int(grade)):
        return f"grade {tokens[0]!r}; expected a whole number from 0 to {HIGHEST_GRADE}"
    prefix, _, qid = tokens[1].partition(":") if len(tokens) > 1 else ("", "", "")
    if prefix != "qid" or not _is_integer(qid.removeprefix("-")) or not -(2**63) <= int(qid) < 2**63:
        return f"no query id after the grade; {LINE_FORM}"
    features: list[int] = []
    values: list[float] = []
    previous = 0
    for token in tokens[2:]:
        text, separator, value = token.partition(":")
        if not separator or not text.isdecimal():
            return f"{token!r} is not <feature>:<value>"
        if not _is_integer(text) or not 1 <= (feature := int(text)) <= HIGHEST_FEATURE:
            return f"feature {text[:20]}; expected feature numbers from 1 to {HIGHEST_FEATURE}"
        if feature <= previous:
            return f"feature {feature} after {previous}; expected rising feature numbers, each once"
        number = _number(value)
        if not math.isfinite(number):
            return f"feature {feature} has value {value!r}; expected a finite number"
        features.append(feature)
        values.append(number)
        previous = feature
    return _Line(int(grade), int(qid), features, values)


def _is_integer(text: str) -> bool:
    # Python itself refuses to convert thousands of digits.
    return text.isdecimal() and len(text) <= _INTEGER_DIGITS


def _number(text: str) -> float:
    """The number in a text, NaN if it is invalid. `1_000` is Python's notation, not this format's."""
    try:
        return math.nan if "_" in text else float(text)
    except ValueError:
        return math.nan
