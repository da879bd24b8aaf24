"""An index answers by BM25: name and text of each document, in words, in SQLite's FTS5."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from documents import Document, words_of

NAME_WEIGHT: Final = 3.0
"""How much more a word counts in a name than in the text; the best for BM25 on queries that judge nothing."""
N_CANDIDATES: Final = 50


@dataclass(frozen=True)
class Hit:
    """A document that answers a query: its number, and BM25 over name and text, over each alone; higher is better."""

    number: int
    bm25: float
    name_bm25: float
    body_bm25: float


class Index:
    """The words that documents are found by.

    Args:
        documents: which are answered by their numbers, from 0.
        with_summaries: False leaves the first lines out, so that a query made of them is no quotation.
    """

    def __init__(self, documents: Sequence[Document], *, with_summaries: bool = True) -> None:
        words = [
            (i, " ".join(words_of(each.name)), " ".join(words_of(each.text(with_summaries))))
            for i, each in enumerate(documents)
        ]
        # In memory, since a folder is read anew at each start; and for any thread, one at a time.
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
