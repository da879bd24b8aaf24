"""An index answers by BM25, whatever is typed."""

import pytest

from documents import Document
from index import N_CANDIDATES, Index

DOCUMENTS = [
    Document(
        "books.copy_tree", "function", "books.py:1", "Copy a whole folder.", "src dst Everything below it goes along."
    ),
    Document("books.remove", "function", "books.py:9", "Remove a file.", "path A folder is refused; copy it before."),
    Document("birds.sing", "function", "birds.py:1", "Sing.", "loudly"),
]


@pytest.fixture
def index():
    index = Index(DOCUMENTS)
    yield index
    index.close()


def test_a_word_in_the_name_counts_more_than_one_in_the_text(index):
    """A document without any of the words is no answer; forms of a word are one word, and nothing found is no error."""
    assert [hit.number for hit in index.search("copy")] == [0, 1]
    best, second = index.search("copy")
    assert best.bm25 > second.bm25
    assert best.name_bm25 > 0.0
    assert second.name_bm25 == 0.0
    assert second.body_bm25 > 0.0
    assert [hit.number for hit in index.search("singing")] == [2]
    for query in ("", "  ", "?!", "qwertz"):
        assert index.search(query) == [], query


def test_what_is_typed_is_words_and_never_a_command(index):
    """FTS5 has a language of its own; nobody who searches speaks it."""
    for query in ('copy"', "copy OR", "NEAR(copy", "name:copy", "copy*", "-copy"):
        assert 0 in [hit.number for hit in index.search(query)], query


def test_first_lines_can_be_left_out_and_only_the_best_are_candidates(index):
    """So an application ranks as many as it can compute features of."""
    assert [hit.number for hit in index.search("whole")] == [0]
    bare = Index(DOCUMENTS, with_summaries=False)
    assert bare.search("whole") == []
    bare.close()
    many = Index([Document(f"books.b{i}", "function", "b.py:1", "", "page " * (i + 1)) for i in range(60)])
    assert len(many.search("page")) == N_CANDIDATES
    many.close()
