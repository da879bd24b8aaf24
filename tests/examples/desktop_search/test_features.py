"""What a ranker is told of a candidate fits the schema, and says what its name says."""

import numpy as np
import pytest

from documents import Document
from features import SCHEMA, Features
from index import Hit, Index

DOCUMENTS = [
    Document("books", "module", "books.py:1", "Books.", "Shelves of them."),
    Document("books.copyTree", "function", "books.py:3", "Copy.", "src dst A whole tree is copied with all below."),
    Document("books._Shelf", "class", "books.py:9", "A shelf.", "Of wood from a tree."),
]


@pytest.fixture
def told():
    """Named features of every document, for a query that all of them get."""
    features = Features(DOCUMENTS, with_summaries=False)

    def tell(query: str) -> list[dict[str, float]]:
        hits = [Hit(number, 3.0 - number, 2.0, 1.0) for number in range(len(DOCUMENTS))]
        return [dict(zip(SCHEMA.names, row, strict=True)) for row in features.of(query, hits).tolist()]

    return tell


def test_fit_of_the_name(told):
    """Its last part counts apart from the rest."""
    module, tree, shelf = told("copy tree books")
    assert tree["query in the last part of the name"] == pytest.approx(2 / 3)
    assert tree["query in the name"] == 1.0
    assert tree["last part of the name in the query"] == 1.0
    assert tree["query is the name"] == 0.0
    assert tree["query begins like the name"] == 1.0
    assert module["query in the last part of the name"] == pytest.approx(1 / 3)
    assert shelf["query in the name"] == pytest.approx(1 / 3)
    assert told("Copy trees")[1]["query is the name"] == 1.0
    assert told("copying")[1]["query begins like the name"] == 1.0


def test_a_letter_too_few_still_looks_like_the_name(told):
    """Where no word is the same."""
    _, tree, shelf = told("copytre")
    assert tree["query in the name"] == 0.0
    assert tree["spelled like the name"] > 0.6 > shelf["spelled like the name"]


def test_fit_of_the_text(told):
    """Where the words come first, and whether side by side; first lines are left out."""
    _, tree, shelf = told("whole tree")
    assert tree["position of the first match"] == 3.0
    assert tree["query's words side by side in the text"] == 1.0
    assert shelf["position of the first match"] == 4.0
    assert shelf["query's words side by side in the text"] == 0.0
    assert 0.0 < shelf["rare words of the query in the text"] < tree["rare words of the query in the text"] == 1.0
    assert told("books")[0]["rare words of the query in the text"] == 0.0
    assert told("wholesale")[1]["text has words that begin like the query's"] == 1.0


def test_what_is_around_it_counts_too(told):
    """The text of what it is part of, and the whole file."""
    _, tree, _ = told("shelves wood")
    assert tree["query in the text of what it is part of"] == 0.5
    assert tree["rare words of the query in the file"] == 1.0


def test_what_no_query_changes(told):
    """Kind, length, depth."""
    module, tree, shelf = told("anything")
    assert [each["is a module"] for each in (module, tree, shelf)] == [1.0, 0.0, 0.0]
    assert [each["is a class"] for each in (module, tree, shelf)] == [0.0, 0.0, 1.0]
    assert [each["is private"] for each in (module, tree, shelf)] == [0.0, 0.0, 1.0]
    assert [each["depth"] for each in (module, tree, shelf)] == [0.0, 1.0, 1.0]
    assert tree["words in the name"] == 2.0
    assert tree["length of the text"] == 10.0


def test_the_schema_takes_whatever_is_found():
    """Also where nothing is."""
    features = Features(DOCUMENTS)
    index = Index(DOCUMENTS)
    for query in ("tree", "whole shelf of books", "qwertz"):
        hits = index.search(query)
        scaled = SCHEMA.normalise(features.of(query, hits))
        assert scaled.shape == (len(hits), SCHEMA.n_features)
        assert scaled.dtype == np.float32
        assert ((scaled >= 0.0) & (scaled <= 1.0)).all()
    index.close()
