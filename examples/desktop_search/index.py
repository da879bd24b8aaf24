"""A BM25 index of the names and texts of documents, in SQLite's FTS5."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from documents import Document, words_of

NAME_WEIGHT: Final = 3.0
"""Weight of a word in a name relative to the text: the best for BM25 on queries not used for evaluation."""
N_CANDIDATES: Final = 50


@dataclass(frozen=True)
class Hit:
    """A matching document: its number, and BM25 over name and text, and over each alone; higher is better."""

    number: int
    bm25: float
    name_bm25: float
    body_bm25: float


class Index:
    """The full-text index of documents.

    Args:
        documents: referred to by their numbers, from 0.
        with_summaries: False leaves the first lines out, so that a query made from them is not a quotation.
    """

    def __init__(self, documents: Sequence[Document], *, with_summaries: bool = True) -> None:
        words = [
            (i, " ".join(words_of(each.name)), " ".join(words_of(each.text(with_summaries))))
            for i, each in enumerate(documents)
        ]
        # In memory, since the folder is read again at each start; usable from any thread, one at a time.
        self._database = sqlite3.connect(":memory:", check_same_thread=False)
        self._database.execute("CREATE VIRTUAL TABLE words USING fts5(name, body, tokenize='porter')")
        self._database.executemany("INSERT INTO words (rowid, name, body) VALUES (?, ?, ?)", words)

    def close(self) -> None:
        self._database.close()

    def search(self, query: str) -> list[Hit]:
        """Return the best `N_CANDIDATES` documents with any of the query's words, best first."""
        words = dict.fromkeys(words_of(query))
        if not words:
            return []
        rows = self._database.execute(
            "SELECT rowid, -bm25(words, ?, 1) AS score, -bm25(words, 1, 0), -bm25(words, 0, 1) FROM words "
            "WHERE words MATCH ? ORDER BY score DESC, rowid LIMIT ?",
            (NAME_WEIGHT, " OR ".join(f'"{word}"' for word in words), N_CANDIDATES),
        )
        return [Hit(*row) for row in rows]
