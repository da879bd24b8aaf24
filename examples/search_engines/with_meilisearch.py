"""Meilisearch: the score of each ranking rule is a feature, and its own order is yours."""

from typing import Any

import meilisearch

from foltr import SearchRanker
from foltr.edge_client.serp import Serp

# Those of the index; newer versions have attributeRank and wordPosition in place of attribute by default.
RULES = ("words", "typo", "proximity", "attribute", "exactness")


def search(client: meilisearch.Client, ranker: SearchRanker, query: str) -> tuple[Serp, list[dict[str, Any]]]:
    """Return the list, for its clicks, and its hits in the order to show."""
    hits = client.index("pages").search(query, {"limit": 50, "showRankingScoreDetails": True})["hits"]
    # Rules that were skipped have no score.
    rows = [{rule: hit["_rankingScoreDetails"].get(rule, {}).get("score", 0.0) for rule in RULES} for hit in hits]
    serp = ranker.rank(rows)
    return serp, [hits[i] for i in serp.ranking]
