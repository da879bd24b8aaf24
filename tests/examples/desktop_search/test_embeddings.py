"""Dense features are cosines and lengths, and what they add is measured; with the real model if it is installed."""

import zlib

import numpy as np
import pytest

from documents import Document, standard_library
from embeddings import DenseFeatures, compare, frozen_model
from index import Hit

DOCUMENTS = [
    Document("files.remove", "function", "files.py:1", "", "delete a file"),
    Document("bytes.compress", "function", "bytes.py:1", "", "make bytes smaller"),
    Document("empty", "module", "empty.py:1", "", ""),
]
HITS = [Hit(number, 1.0, 1.0, 1.0) for number in (2, 0, 1)]


def counted(texts):
    """A vector of a text's words, each at a place of its own."""
    vectors = np.zeros((len(texts), 64), np.float32)
    for vector, text in zip(vectors, texts, strict=True):
        for word in text.split():
            vector[zlib.crc32(word.encode()) % 64] += 1.0
    return vectors


def test_features_are_cosines_and_lengths_and_what_they_add_is_measured():
    """By hand: of three words in common with a text of three words, and of one with a name of two."""
    found = DenseFeatures(counted, DOCUMENTS).of("delete a file", HITS)
    assert found[:, 1] == pytest.approx([0.5, 1.0, 0.5])
    assert found[:, 2] == pytest.approx([1 / 2**0.5, 1.0, 1.0])
    assert found[:, 3] == pytest.approx([1 / 3**0.5, 1.0, 1.0])
    assert np.isfinite(DenseFeatures(counted, DOCUMENTS).of("", HITS)).all()
    measured = compare(counted, standard_library() / "email", 1)
    assert measured["all features"] > measured["BM25 alone"]


def test_a_small_frozen_model():
    """Synonyms are closer than other words, without a download."""
    pytest.importorskip("wordllama", reason="wordllama is not installed")
    found = DenseFeatures(frozen_model(), DOCUMENTS).of("erase a path", HITS)
    assert found[:, 1].argmax() == 1
