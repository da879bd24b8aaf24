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
    """And a document without any of the words is no answer."""
    assert [hit.number for hit in index.search("copy")] == [0, 1]
    best, second = index.search("copy")
    assert best.bm25 > second.bm25
    assert best.name_bm25 > 0.0
    assert second.name_bm25 == 0.0
    assert second.body_bm25 > 0.0


def test_forms_of_a_word_are_one_word(index):
    """By Porter's rules."""
    assert [hit.number for hit in index.search("singing")] == [2]


def test_nothing_asked_or_nothing_there_is_no_hit(index):
    """An empty list, never an error."""
    for query in ("", "  ", "?!", "qwertz"):
        assert index.search(query) == [], query


def test_what_is_typed_is_words_and_never_a_command(index):
    """FTS5 has a language of its own; nobody who searches speaks it."""
    for query in ('copy"', "copy OR", "NEAR(copy", "name:copy", "copy*", "-copy"):
        assert 0 in [hit.number for hit in index.search(query)], query


def test_first_lines_can_be_left_out(index):
    """Then only name and body find a document."""
    assert [hit.number for hit in index.search("whole")] == [0]
    index = Index(DOCUMENTS, with_summaries=False)
    assert index.search("whole") == []
    index.close()


def test_only_the_best_are_candidates():
    """So an application ranks as many as it can compute features of."""
    documents = [Document(f"books.b{i}", "function", "b.py:1", "", "page " * (i + 1)) for i in range(60)]
    index = Index(documents)
    assert len(index.search("page")) == N_CANDIDATES
    index.close()
