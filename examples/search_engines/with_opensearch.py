"""OpenSearch and Elasticsearch: the score of each named clause is a feature, and `_score` is your own order.

Elasticsearch returns them since 8.8, OpenSearch since 2.13; older ones return the clauses' names alone.
"""

from typing import Any

from foltr import SearchRanker
from foltr.edge_client.serp import Serp

NAMES = ("title", "body")
WEIGHTS = {"title": 3.0, "body": 1.0}


def search(client: Any, ranker: SearchRanker, query: str) -> tuple[Serp, list[dict[str, Any]]]:
    """Return the list, for its clicks, and its hits in the order to show. The client is either library's."""
    clauses = [{"match": {name: {"query": query, "boost": WEIGHTS[name], "_name": name}}} for name in NAMES]
    body = {"size": 50, "query": {"bool": {"should": clauses}}}
    found = client.search(index="pages", body=body, include_named_queries_score=True)
    hits = found["hits"]["hits"]
    # Only clauses that match are named.
    rows = [{name: hit.get("matched_queries", {}).get(name, 0.0) for name in NAMES} for hit in hits]
    serp = ranker.rank(rows, base=[hit["_score"] for hit in hits])
    return serp, [hits[i] for i in serp.ranking]
