"""SQLite FTS5: BM25 of each column is a feature, and BM25 of all columns is your own order."""

import sqlite3

from foltr import SearchRanker
from foltr.edge_client.serp import Serp

# A weight for each column, in the order of the table; SQLite's BM25 is negative, the best hit the lowest.
FIND = """
    SELECT title, -bm25(pages, 3, 1) AS score, -bm25(pages, 1, 0) AS title_score, -bm25(pages, 0, 1) AS body_score
    FROM pages WHERE pages MATCH ? ORDER BY score DESC LIMIT 50
"""


def search(database: sqlite3.Connection, ranker: SearchRanker, match: str) -> tuple[Serp, list[sqlite3.Row]]:
    """Return the list, for its clicks, and its hits in the order to show."""
    hits = database.execute(FIND, (match,)).fetchall()  # with database.row_factory = sqlite3.Row
    rows = [{"title": hit["title_score"], "body": hit["body_score"]} for hit in hits]
    serp = ranker.rank(rows, base=[hit["score"] for hit in hits])
    return serp, [hits[i] for i in serp.ranking]
