"""A generated log in the shape of AOL4FOLTR, for runs without the data.

Report it as such: figures on it say nothing about real search. Taken from the publication (arXiv 2508.12353, and the
figures ``user_queries`` and ``query_bursts`` stored with its code, github.com/mg98/aol4foltr):

* 10,000 users, 92 days from 1 March 2006, whole seconds; 20 documents of 103 features, one of them clicked;
* queries of a user: at least 145, half of all users have 204 and more, a tenth 392, one in a hundred 827, one in a
  thousand 2,033, the second of all 3,628. The first has about 76,000; the published experiments leave it out, and so
  does this log. Together they are 2.5 million, with the first one 2.6 million as published;
* the most active users search on most days (the first one shown on 80 of 92), on some days forty times as often.

Assumed, since the publication gives no figures: everything else. Sessions have 3 queries on average, a minute apart in
the median. Sessions of a user cluster (gaps are shares of a Dirichlet distribution with parameter 0.3). One user in
five leaves early. Features are uniform. Users click by a linear score that they have in common, plus one of their own,
plus noise; no time of day, no query is repeated, and a shown list does not change what is clicked.
"""

import heapq
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from foltr.core.data.dataset import RankingDataset
from foltr.core.data.letor_lines import normalise_by_query
from foltr.core.errors import SettingsError
from foltr_research.simulation.logged_clicks.aol4foltr import AOL4FOLTR
from foltr_research.simulation.logged_clicks.logs import LoggedQuery, dataset_of_queries

USERS: Final = 10_000
QUERIES_BY_SHARE: Final = ((1.0, 145), (0.5, 204), (0.1, 392), (0.01, 827), (0.001, 2_033), (0.0002, 3_628))
"""Shares of the users, and how many queries each of these has at least."""
DOCUMENTS: Final = 20
BEGIN: Final = datetime(2006, 3, 1, tzinfo=UTC).timestamp()
DAYS: Final = 92

QUERIES_IN_SESSION: Final = 3
GAP_S: Final = 60.0
_GAP_SPREAD = 1.2
_CLUSTERING = 0.3
SHARE_LEAVING: Final = 0.2
_NOISE = 0.5

# Each thing is drawn from a stream of its own, so that none depends on how much of another is read.
_HABITS, _QUERY, _TASTE, _COMMON, _TEST = range(5)


class SyntheticLog:
    """A generated log. It is made while it is read: each user is a few numbers, and one query at a time has features.

    Args:
        users: how many; 10,000 as published.
        share: of the queries that a user would have, so that a log can be small; each has at least one.
        seed: of the log, not of the run.
        test_queries: to measure on, of the same users; none is replayed.
        variety: the standard deviation of a user's own weights; those in common have 1.

    Raises:
        SettingsError: an argument is out of its range.
    """

    def __init__(
        self,
        users: int = USERS,
        share: float = 1.0,
        *,
        seed: int = 1,
        test_queries: int = 500,
        variety: float = 0.5,
    ) -> None:
        if users < 1 or test_queries < 1 or not 0.0 < share <= 1.0 or not variety >= 0.0 or seed < 0:
            raise SettingsError(
                f"synthetic log: users {users}, test_queries {test_queries}, share {share}, variety {variety}, seed "
                f"{seed}; expected at least 1, at least 1, above 0 to 1, from 0, from 0"
            )
        self._users = users
        self._share = share
        self._seed = seed
        self._test_queries = test_queries
        self._variety = variety
        self._common = self._rng(_COMMON).normal(size=self.n_features)

    @property
    def n_features(self) -> int:
        return AOL4FOLTR.n_features

    def __iter__(self) -> Iterator[LoggedQuery]:
        times = heapq.merge(*(self._times_of(user) for user in range(self._users)))
        for query_id, (time, user, number) in enumerate(times):
            yield LoggedQuery(time, _name(user), query_id, *self._documents(user, self._rng(_QUERY, user, number)))

    @cached_property
    def test(self) -> RankingDataset:
        drawn = []
        for query_id in range(self._test_queries):
            user = query_id % self._users
            documents = self._documents(user, self._rng(_TEST, query_id))
            drawn.append(LoggedQuery(BEGIN, _name(user), query_id, *documents))
        return dataset_of_queries("synthetic log, test queries", drawn)

    def _rng(self, *stream: int) -> np.random.Generator:
        return np.random.default_rng([self._seed, *stream])

    def _times_of(self, user: int) -> Iterator[tuple[float, int, int]]:
        """Yield time, user and number of each of a user's queries, by rising time."""
        rng = self._rng(_HABITS, user)
        n_queries = max(1, round(self._share * queries_of(rng.random())))
        stays = rng.uniform(0.1, 1.0) if rng.random() < SHARE_LEAVING else 1.0
        last = BEGIN + 86_400 * DAYS - 1
        left = math.ceil(n_queries / QUERIES_IN_SESSION)
        begins, ends, time, number = BEGIN, BEGIN + stays * (last - BEGIN), BEGIN, 0
        while number < n_queries:
            # One gap after the other of a Dirichlet distribution: the next is a share of what is left.
            begins += (ends - begins) * rng.beta(_CLUSTERING, _CLUSTERING * max(left, 1))
            left -= 1
            time = max(time, begins)
            for _ in range(min(int(rng.geometric(1 / QUERIES_IN_SESSION)), n_queries - number)):
                yield float(math.floor(min(time, last))), user, number
                number += 1
                time += rng.lognormal(math.log(GAP_S), _GAP_SPREAD)

    def _documents(self, user: int, rng: np.random.Generator) -> tuple[NDArray[np.float32], NDArray[np.int16]]:
        """Return (20, 103) features and (20,) grades: 1 for the document that the user clicks."""
        raw = rng.random((DOCUMENTS, self.n_features))
        weights = self._common + self._variety * self._rng(_TASTE, user).normal(size=self.n_features)
        scores = raw @ weights * math.sqrt(12 / (weights @ weights))  # standard deviation 1
        clicked = int(np.argmax(scores + _NOISE * rng.gumbel(size=DOCUMENTS)))
        relevance = np.zeros(DOCUMENTS, np.int16)
        relevance[clicked] = 1
        return normalise_by_query(raw, np.array([0, DOCUMENTS])), relevance


def queries_of(share: float) -> float:
    """Return how many queries a user has that ``share`` of all users equal or surpass, 0 < share <= 1.

    Between the published points the tail follows a power law.
    """
    (before, more), *points = QUERIES_BY_SHARE
    for at, queries in points:
        if share >= at:
            return float(more * (queries / more) ** (math.log(share / before) / math.log(at / before)))
        before, more = at, queries
    return float(more)


def _name(user: int) -> str:
    return f"user-{user:05d}"
