"""LlamaIndex: a node postprocessor, for a query engine's ``node_postprocessors``.

What it returns says in its metadata which list and which position it was, for `SearchRanker.record_clicks`.
"""

import logging
from collections.abc import Callable

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from foltr import SearchRanker
from foltr.core.errors import FoltrError

log = logging.getLogger(__name__)


class LearnedReranker(BaseNodePostprocessor):
    """Orders the nodes of an index; ``features`` says what is known of a node by the schema's names."""

    ranker: SearchRanker
    features: Callable[[str, NodeWithScore], dict[str, float]]

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        query = "" if query_bundle is None else query_bundle.query_str
        rows = [self.features(query, node) for node in nodes]
        try:
            serp = self.ranker.rank(rows, base=[node.score or 0.0 for node in nodes])
        except FoltrError:
            log.exception("nodes in the index's order")
            return nodes
        return [placed(nodes[i], serp.serp_id, position) for position, i in enumerate(serp.ranking)]


def placed(node: NodeWithScore, serp_id: str, position: int) -> NodeWithScore:
    """Return the node with its place, which no prompt contains."""
    place = {"serp_id": serp_id, "position": position}
    changed = {
        "metadata": node.node.metadata | place,
        "excluded_llm_metadata_keys": [*node.node.excluded_llm_metadata_keys, *place],
    }
    return NodeWithScore(node=node.node.model_copy(update=changed), score=node.score)
