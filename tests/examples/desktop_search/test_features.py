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


@pytest.mark.parametrize(
    ("query", "document", "feature", "value"),
    [
        # Of a name its last part counts apart from the rest.
        ("copy tree books", 1, "query in the last part of the name", 2 / 3),
        ("copy tree books", 0, "query in the last part of the name", 1 / 3),
        ("copy tree books", 1, "query in the name", 1.0),
        ("copy tree books", 2, "query in the name", 1 / 3),
        ("copy tree books", 1, "last part of the name in the query", 1.0),
        ("copy tree books", 1, "query is the name", 0.0),
        ("Copy trees", 1, "query is the name", 1.0),
        ("copying", 1, "query begins like the name", 1.0),
        ("copytre", 1, "query in the name", 0.0),
        # Where the words come first in the text, and whether side by side; first lines are left out.
        ("whole tree", 1, "position of the first match", 3.0),
        ("whole tree", 2, "position of the first match", 4.0),
        ("whole tree", 1, "query's words side by side in the text", 1.0),
        ("whole tree", 2, "query's words side by side in the text", 0.0),
        ("whole tree", 1, "rare words of the query in the text", 1.0),
        ("books", 0, "rare words of the query in the text", 0.0),
        ("wholesale", 1, "text has words that begin like the query's", 1.0),
        # The text of what it is part of, and the whole file.
        ("shelves wood", 1, "query in the text of what it is part of", 0.5),
        ("shelves wood", 1, "rare words of the query in the file", 1.0),
        # What no query changes.
        *(("anything", number, "is a module", is_module) for number, is_module in enumerate((1.0, 0.0, 0.0))),
        *(("anything", number, "is a class", is_class) for number, is_class in enumerate((0.0, 0.0, 1.0))),
        *(("anything", number, "is private", is_private) for number, is_private in enumerate((0.0, 0.0, 1.0))),
        *(("anything", number, "depth", depth) for number, depth in enumerate((0.0, 1.0, 1.0))),
        ("anything", 1, "words in the name", 2.0),
        ("anything", 1, "length of the text", 10.0),
    ],
)
def test_a_feature_says_what_its_name_says(told, query, document, feature, value):
    """Of the name, of the text, of what is around it, and of what no query changes."""
    assert told(query)[document][feature] == pytest.approx(value)


def test_a_letter_too_few_still_looks_like_the_name(told):
    """Where no word is the same; and a word that is rarer counts for more."""
    _, tree, shelf = told("copytre")
    assert tree["spelled like the name"] > 0.6 > shelf["spelled like the name"]
    _, tree, shelf = told("whole tree")
    assert 0.0 < shelf["rare words of the query in the text"] < tree["rare words of the query in the text"]


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
