"""Reads AOL4FOLTR, the log of 10,000 users of a web search engine, query by query.

Gregoriadis, Kang and Pouwelse, "A Large-Scale Web Search Dataset for Federated Online Learning to Rank" (CIKM 2025,
arXiv 2508.12353): 2.6 million queries of 10,000 users from March to May 2006, with 20 candidate documents of 103
features, one of which was clicked. The data set is Zenodo record 15689455. We had its description and the code that
writes it, not the files: `AOL4FOLTR` has all that is assumed about them.
"""

import csv
import gzip
import io
import itertools
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from foltr.core.data.dataset import RankingDataset
from foltr.core.data.letor_lines import read_query
from foltr.core.errors import DataError
from foltr.core.user_files import lines_of, open_file
from foltr_research.simulation.logged_clicks.logs import LoggedQuery, dataset_of_queries

# Rows of queries that were published without features lie between two with features.
_MOST_ROWS_AHEAD = 100_000


@dataclass(frozen=True)
class LogFormat:
    """The files of a published log, and their columns.

    Both files are in the order of time, with queries of one second in any order, so that they are read side by side. A
    query of the first file may be missing from the second.

    Attributes:
        queries: a CSV file with a head; other columns than these are not read.
        query_id: a whole number that links the two files.
        user: any text.
        time: such as ``2006-03-01 07:17:12``, of UTC unless it names a zone.
        documents: a LETOR file, plain or with ``.gz``; the grade is 1 for a clicked document, and features are raw.
        n_features: of each document.
    """

    queries: str = "metadata.csv"
    query_id: str = "qid"
    user: str = "user_id"
    time: str = "timestamp"
    documents: str = "letor.txt"
    n_features: int = 103


AOL4FOLTR = LogFormat()


class _Row(NamedTuple):
    query_id: int
    user: str
    time: float


class AolLog:
    """A folder with AOL4FOLTR, or with a log of the same form. Features are scaled to [0, 1] within each query.

    The published experiments scale the features that describe the query alone (18 to 32, 75 to 77 and 93 to 95, from
    0) over the whole set. Here they become 0: within a query they are constant, so a linear ranker cannot use them.

    Args:
        folder: with the two files.
        users: replay only these, by name; None: all. See `most_active_users`.
        test_share: of the queries, the last ones by time; the earlier ones are replayed.
        most_test_queries: of the last ones so many are measured on, evenly spread.
        form: of the files.

    Raises:
        DataError: on use, if a file cannot be read or does not have the form; the message names the place.
    """

    def __init__(
        self,
        folder: str | Path,
        users: Collection[str | int] | None = None,
        *,
        test_share: float = 0.2,
        most_test_queries: int = 1_000,
        form: LogFormat = AOL4FOLTR,
    ) -> None:
        self._folder = Path(folder)
        self._users = None if users is None else frozenset(map(str, users))
        self._test_share = test_share
        self._most_test_queries = most_test_queries
        self._form = form

    @property
    def n_features(self) -> int:
        return self._form.n_features

    def __iter__(self) -> Iterator[LoggedQuery]:
        end = self._split_time
        for row, lines in self._queries():
            if row.time >= end:
                return
            if self._is_chosen(row):
                yield self._read(row, lines)

    @cached_property
    def test(self) -> RankingDataset:
        step = max(1, -(-sum(1 for _ in self._last_rows()) // self._most_test_queries))
        chosen = frozenset(row.query_id for row in itertools.islice(self._last_rows(), 0, None, step))
        found = [self._read(row, lines) for row, lines in self._queries() if row.query_id in chosen]
        return dataset_of_queries(f"{self._folder.name}, last queries", found)

    @cached_property
    def _split_time(self) -> float:
        """The time of the first test query; infinite without any."""
        n_replayed = int(sum(map(self._is_chosen, self._rows())) * (1 - self._test_share))
        chosen = (row.time for row in self._rows() if self._is_chosen(row))
        return next(itertools.islice(chosen, n_replayed, None), float("inf"))

    def _last_rows(self) -> Iterator[_Row]:
        return (row for row in self._rows() if row.time >= self._split_time and self._is_chosen(row))

    def _is_chosen(self, row: _Row) -> bool:
        return self._users is None or row.user in self._users

    def _read(self, row: _Row, lines: list[bytes]) -> LoggedQuery:
        where = f"{self._folder / self._form.documents}, query {row.query_id}"
        relevance, features = read_query(lines, where, normalise=True)
        missing = self._form.n_features - features.shape[1]
        if missing < 0:
            raise DataError(f"{where}: it has feature {features.shape[1]}; expected {self._form.n_features}")
        return LoggedQuery(row.time, row.user, row.query_id, np.pad(features, ((0, 0), (0, missing))), relevance)

    def _queries(self) -> Iterator[tuple[_Row, list[bytes]]]:
        """Yield each query that has documents, with their lines."""
        rows, ahead = self._rows(), dict[int, _Row]()
        for query_id, lines in self._blocks():
            while query_id not in ahead:
                row = next(rows, None)
                if row is None or len(ahead) == _MOST_ROWS_AHEAD:
                    raise DataError(
                        f"{self._folder}: query {query_id} of {self._form.documents} is not at its place in "
                        f"{self._form.queries}; expected both in the order of time"
                    )
                ahead[row.query_id] = row
            found = ahead.pop(query_id)
            if ahead:  # those without documents, and some of the same second
                ahead = {number: row for number, row in ahead.items() if row.time >= found.time}
            yield found, lines

    def _rows(self) -> Iterator[_Row]:
        latest = float("-inf")
        for row in read_rows(self._folder, self._form):
            if row.time < latest:
                raise DataError(
                    f"{self._folder / self._form.queries}: query {row.query_id} is earlier than the one before it; "
                    "sort both files by time"
                )
            latest = row.time
            yield row

    def _blocks(self) -> Iterator[tuple[int, list[bytes]]]:
        """Yield the lines of each query, and its id."""
        path = self._folder / self._form.documents
        with _document_lines(path) as lines:
            for token, block in itertools.groupby(lines, _query_token):
                try:
                    yield int(token.removeprefix(b"qid:")), list(block)
                except ValueError as error:
                    raise DataError(f"{path}: {token!r:.40} in place of qid:<integer>") from error


def read_rows(folder: Path, form: LogFormat = AOL4FOLTR) -> Iterator[_Row]:
    """Yield query id, user and time of each query. Raises DataError for a file without this form."""
    path = folder / form.queries
    needed = (form.query_id, form.user, form.time)
    try:
        with lines_of(path) as lines:
            table = csv.DictReader(line.decode("utf-8") for line in lines)
            if missing := set(needed) - set(table.fieldnames or ()):
                raise DataError(f"{path}: no column {', '.join(sorted(missing))}; it has {table.fieldnames}")
            for found in table:
                query_id, user, time = (found[name] for name in needed)
                try:
                    yield _Row(int(query_id), user, _seconds(time))
                except (TypeError, ValueError) as error:
                    raise DataError(
                        f"{path}:{table.line_num}: {query_id!r:.40}, {time!r:.40}; expected a whole number and a time "
                        "such as 2006-03-01 07:17:12"
                    ) from error
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _seconds(time: str) -> float:
    found = datetime.fromisoformat(time)
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def most_active_users(folder: str | Path, n: int, form: LogFormat = AOL4FOLTR) -> list[str]:
    """Return the ``n`` users with most queries, most active first. The published experiments use 100 of them."""
    return [user for user, _ in Counter(row.user for row in read_rows(Path(folder), form)).most_common(n)]


@contextmanager
def _document_lines(path: Path) -> Iterator[Iterator[bytes]]:
    """Open the plain file, or the compressed one if that is here instead. Raises DataError if it cannot be read."""
    packed = path.with_name(f"{path.name}.gz")
    try:
        if path.exists() or not packed.exists():
            with lines_of(path) as lines:
                yield lines
        else:
            with io.BufferedReader(open_file(packed)) as raw, gzip.open(raw) as unpacked:
                yield iter(unpacked)
    except (OSError, EOFError) as error:
        raise DataError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error


def _query_token(line: bytes) -> bytes:
    tokens = line.split(None, 2)
    return tokens[1] if len(tokens) > 1 else b""
