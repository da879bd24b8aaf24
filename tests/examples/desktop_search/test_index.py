"""An index answers by BM25, and stays where it was put."""

import pytest

from documents import Document
from index import Index

DOCUMENTS = [
    Document(
        "books.copy_tree", "function", "books.py:1", "Copy a whole folder.", "src dst Everything below it goes along."
    ),
    Document("books.remove", "function", "books.py:9", "Remove a file.", "path A folder is refused; copy it before."),
    Document("birds.sing", "function", "birds.py:1", "Sing.", "loudly"),
]


@pytest.fixture
def index():
    with Index() as index:
        index.fill(DOCUMENTS)
        yield index


def test_a_word_in_the_name_counts_more_than_one_in_the_text(index):
    """And a document without any of the words is no answer."""
    assert [hit.number for hit in index.search("copy")] == [0, 1]
    assert index.search("copy", n=1) == index.search("copy")[:1]
    best, second = index.search("copy")
    assert best.bm25 > second.bm25
    assert best.name_bm25 > 0.0
    assert second.name_bm25 == 0.0
    assert second.body_bm25 > 0.0


def test_forms_of_a_word_are_one_word(index):
    """By Porter's rules."""
    assert [hit.number for hit in index.search("singing")] == [2]


@pytest.mark.parametrize("query", ["", "  ", "?!", "qwertz"])
def test_nothing_asked_or_nothing_there_is_no_hit(index, query):
    """An empty list, never an error."""
    assert index.search(query) == []


@pytest.mark.parametrize("query", ['copy"', "copy OR", "NEAR(copy", "name:copy", "copy*", "-copy"])
def test_what_is_typed_is_words_and_never_a_command(index, query):
    """FTS5 has a language of its own; nobody who searches speaks it."""
    assert 0 in [hit.number for hit in index.search(query)]


def test_first_lines_can_be_left_out(index):
    """Then only name and body find a document."""
    assert [hit.number for hit in index.search("whole")] == [0]
    index.fill(DOCUMENTS, with_summaries=False)
    assert index.search("whole") == []
    assert index.documents() == DOCUMENTS


def test_an_index_on_disk_is_there_again(tmp_path):
    """With documents and words."""
    with Index(tmp_path / "index.sqlite") as index:
        index.fill(DOCUMENTS)
    with Index(tmp_path / "index.sqlite") as index:
        assert index.documents() == DOCUMENTS
        assert [hit.number for hit in index.search("loudly")] == [2]
