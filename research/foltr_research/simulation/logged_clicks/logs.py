"""A log of queries and clicks in the order of time, and the same log in lockstep."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from foltr.core.data.dataset import RankingDataset
from foltr.core.errors import DataError, SettingsError


class LoggedQuery(NamedTuple):
    """A query that a user issued, and what the user clicked.

    Attributes:
        time: epoch seconds.
        user: name of the user, and of its device in the federation.
        query_id: of this query alone.
        features: (documents, d) float32 of all candidates.
        relevance: (documents,) int16, 1 for a clicked document, else 0.
    """

    time: float
    user: str
    query_id: int
    features: NDArray[np.float32]
    relevance: NDArray[np.int16]


class Log(Protocol):
    """A log to replay. It may be too long for memory: only its test queries are kept."""

    @property
    def n_features(self) -> int: ...

    @property
    def test(self) -> RankingDataset:
        """The queries to measure on, none of which is replayed."""

    def __iter__(self) -> Iterator[LoggedQuery]:
        """Yield the queries to replay by rising time; each call starts again."""


class Lockstep:
    """A log whose users all keep step: the k-th update of every user has time k.

    This is synchronous federated learning: in round k every user that still has queries takes part, however long it
    needed for them (so compared by Gregoriadis et al., arXiv 2508.12353). Queries that do not fill an update are left
    out. The clock is lost, and the whole log is held in memory.

    Args:
        n_interactions: in an update.

    Raises:
        SettingsError: an update without interactions.
    """

    def __init__(self, log: Log, n_interactions: int) -> None:
        if n_interactions < 1:
            raise SettingsError(f"lockstep: n_interactions: {n_interactions}; expected at least 1")
        self._log = log
        self._n_interactions = n_interactions

    @property
    def n_features(self) -> int:
        return self._log.n_features

    @property
    def test(self) -> RankingDataset:
        return self._log.test

    def __iter__(self) -> Iterator[LoggedQuery]:
        seen = Counter[str]()
        queries = []
        for query in self._log:
            queries.append(query._replace(time=float(seen[query.user] // self._n_interactions)))
            seen[query.user] += 1
        complete = {user: count // self._n_interactions for user, count in seen.items()}
        queries.sort(key=lambda query: query.time)  # stable: of each user in their order
        return (query for query in queries if query.time < complete[query.user])


def dataset_of_queries(name: str, queries: Sequence[LoggedQuery]) -> RankingDataset:
    """Return logged queries as a data set. Raises DataError without any."""
    if not queries:
        raise DataError(f"{name}: no queries to measure on")
    sizes = [len(query.relevance) for query in queries]
    return RankingDataset(
        name,
        np.ascontiguousarray(np.concatenate([query.features for query in queries])),
        np.concatenate([query.relevance for query in queries]),
        np.concatenate(([0], np.cumsum(sizes))).astype(np.int64),
        np.array([query.query_id for query in queries], np.int64),
    )
