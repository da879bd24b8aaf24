"""tantivy-py: the score of each field is a feature, and the score of all fields is your own order."""

import json

import tantivy

from foltr import SearchRanker
from foltr.edge_client.serp import Serp

WEIGHTS = {"title": 3.0, "body": 1.0}


def search(index: tantivy.Index, ranker: SearchRanker, query: str) -> tuple[Serp, list[tantivy.Document]]:
    """Return the list, for its clicks, and its documents in the order to show."""
    searcher, fields = index.searcher(), list(WEIGHTS)
    hits = searcher.search(index.parse_query(query, fields, field_boosts=WEIGHTS), 50).hits
    by_field = {name: index.parse_query(query, [name]) for name in fields}
    rows = [{name: score_of(one, searcher, address) for name, one in by_field.items()} for _, address in hits]
    serp = ranker.rank(rows, base=[score for score, _ in hits])
    return serp, [searcher.doc(hits[i][1]) for i in serp.ranking]


def score_of(query: tantivy.Query, searcher: tantivy.Searcher, address: tantivy.DocAddress) -> float:
    try:
        return float(json.loads(query.explain(searcher, address).to_json())["value"])
    except ValueError:  # it does not match
        return 0.0
