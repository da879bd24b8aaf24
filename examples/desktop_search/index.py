"""An index answers by BM25, from one SQLite file: name and text of each document, in words (FTS5)."""

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from documents import Document, words_of

NAME_WEIGHT: Final = 3.0
"""How much more a word counts in a name than in the text; tuned for BM25 on queries that judge nothing."""
N_CANDIDATES: Final = 50


@dataclass(frozen=True)
class Hit:
    """A document that answers a query: its number, and BM25 over name and text, over each alone; higher is better."""

    number: int
    bm25: float
    name_bm25: float
    body_bm25: float


class Index:
    """Documents by their numbers, and the words they are found by.

    Args:
        path: of the SQLite file; ``":memory:"`` for one that need not stay.
    """

    def __init__(self, path: Path | str = ":memory:") -> None:
        self._database = sqlite3.connect(path)
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS documents (number INTEGER PRIMARY KEY, name TEXT, kind TEXT, place TEXT, "
            "summary TEXT, body TEXT)"
        )
        self._database.execute("CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(name, body, tokenize='porter')")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def fill(self, documents: Sequence[Document], *, with_summaries: bool = True) -> None:
        """Replace what is indexed.

        Args:
            with_summaries: False leaves the first lines out, so that a query made of them is no quotation.
        """
        rows = [(i, d.name, d.kind, d.place, d.summary, d.body) for i, d in enumerate(documents)]
        words = [
            (i, " ".join(words_of(d.name)), " ".join(words_of(d.text(with_summaries)))) for i, d in enumerate(documents)
        ]
        with self._database as database:
            database.execute("DELETE FROM documents")
            database.execute("DELETE FROM words")
            database.executemany("INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?)", rows)
            database.executemany("INSERT INTO words (rowid, name, body) VALUES (?, ?, ?)", words)

    def documents(self) -> list[Document]:
        """Return all documents, each at its number."""
        rows = self._database.execute("SELECT name, kind, place, summary, body FROM documents ORDER BY number")
        return [Document(*row) for row in rows]

    def search(self, query: str, n: int = N_CANDIDATES, name_weight: float = NAME_WEIGHT) -> list[Hit]:
        """Return the best ``n`` documents with any of the query's words, best first."""
        words = dict.fromkeys(words_of(query))
        if not words:
            return []
        rows = self._database.execute(
            "SELECT rowid, -bm25(words, ?, 1) AS score, -bm25(words, 1, 0), -bm25(words, 0, 1) FROM words "
            "WHERE words MATCH ? ORDER BY score DESC, rowid LIMIT ?",
            (name_weight, " OR ".join(f'"{word}"' for word in words), n),
        )
        return [Hit(*row) for row in rows]
