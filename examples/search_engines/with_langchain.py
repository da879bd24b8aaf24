"""LangChain: a document compressor, for a `ContextualCompressionRetriever` or behind any retriever.

What it returns says in its metadata which list and which position it was, for `SearchRanker.record_clicks`.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from langchain_core.documents import BaseDocumentCompressor, Document
from pydantic import ConfigDict

from foltr import SearchRanker
from foltr.core.errors import FoltrError

log = logging.getLogger(__name__)


class LearnedReranker(BaseDocumentCompressor):
    """Orders what a retriever found; ``features`` says what is known of a document by the schema's names."""

    model_config = ConfigDict(arbitrary_types_allowed=True)
    ranker: SearchRanker
    features: Callable[[str, Document], dict[str, float]]

    def compress_documents(
        self,
        documents: Sequence[Document],
        query: str,
        callbacks: Any = None,  # noqa: ARG002
    ) -> list[Document]:
        rows = [self.features(query, document) for document in documents]
        try:
            serp = self.ranker.rank(rows)
        except FoltrError:
            log.exception("documents in the retriever's order")
            return list(documents)
        places = [{"serp_id": serp.serp_id, "position": position} for position in range(len(serp.ranking))]
        return [
            documents[i].model_copy(update={"metadata": documents[i].metadata | place})
            for i, place in zip(serp.ranking, places, strict=True)
        ]
