"""Small logs for the tests of replays, in memory and as files."""

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np

from foltr.core.data.dataset import RankingDataset
from foltr_research.simulation.logged_clicks.logs import LoggedQuery, dataset_of_queries

BEGIN = datetime(2006, 3, 1, tzinfo=UTC).timestamp()
WIDTH = 6


def query(time: float, user: str, number: int, n_documents: int = 8) -> LoggedQuery:
    """A query whose user clicks the document with the highest first feature."""
    features = np.random.default_rng(number).random((n_documents, WIDTH), np.float32)
    relevance = np.zeros(n_documents, np.int16)
    relevance[features[:, 0].argmax()] = 1
    return LoggedQuery(time, user, number, features, relevance)


class MadeLog:
    """A log in memory, given as (time, user) of each query, or as queries."""

    def __init__(self, queries: Sequence[tuple[float, str] | LoggedQuery], test: RankingDataset | None = None) -> None:
        self.queries = [
            one if isinstance(one, LoggedQuery) else query(one[0], one[1], number) for number, one in enumerate(queries)
        ]
        self.n_features = self.queries[0].features.shape[1] if self.queries else WIDTH
        self.test = test or dataset_of_queries("test", [query(0.0, "nobody", 10_000 + i) for i in range(20)])

    def __iter__(self):
        return iter(self.queries)


def searches(user: str, *times: float) -> list[tuple[float, str]]:
    return [(time, user) for time in times]


def in_order(*of_users: list[tuple[float, str]]) -> list[tuple[float, str]]:
    return sorted(one for searches in of_users for one in searches)


def write_published(folder, queries: Sequence[LoggedQuery], *, without: Sequence[int] = ()) -> None:
    """Write the two files as the published code does: features as they are, candidates as a set in text."""
    head = "qid,user_id,timestamp,query,target_doc_id,candidate_doc_ids\n"
    rows = (
        f"{one.query_id},{one.user},{datetime.fromtimestamp(one.time, UTC):%Y-%m-%d %H:%M:%S},"
        f'"what, a ""query""",d1,"{{\'d1\', \'d2\'}}"\n'
        for one in queries
    )
    lines = (
        f"{grade} qid:{one.query_id} {' '.join(f'{i}:{value}' for i, value in enumerate(row.tolist(), 1))}\n"
        for one in queries
        if one.query_id not in without
        for row, grade in zip(one.features, one.relevance.tolist(), strict=True)
    )
    (folder / "metadata.csv").write_text(head + "".join(rows))
    (folder / "letor.txt").write_text("".join(lines))
