"""Simulated people ask for what is public, by words of its first line, mostly of their own topic."""

import numpy as np
import pytest

from documents import Document, words_of
from queries import N_DEVICES, devices_of, make_queries, topic_of

WORDS = "amber basalt cedar dolomite ebony feldspar granite hazel iris jasper kauri larch maple nettle onyx poplar"


@pytest.fixture(scope="module")
def documents():
    """Each with a first line of eight words; every fifth is private, every seventh has no more to say."""
    rng = np.random.default_rng(0)
    return [
        Document(
            f"{'_' if i % 5 == 0 else ''}p{i % 31}.f{i}",
            "function",
            "f.py:1",
            " ".join(rng.permutation(WORDS.split())[:8].tolist()),
            "" if i % 7 == 0 else "more",
        )
        for i in range(2000)
    ]


def test_the_seed_decides(documents):
    """The same queries of the same people, and others with another."""
    assert make_queries(documents, 3) == make_queries(documents, 3) != make_queries(documents, 4)
    queries = make_queries(documents, 3).train
    assert devices_of(queries, documents, 3) == devices_of(queries, documents, 3) != devices_of(queries, documents, 4)


def test_no_document_is_meant_twice_and_none_that_nobody_would_find(documents):
    """So what is judged by was never learned."""
    split = make_queries(documents, 1)
    meant = [query.target for part in (split.train, split.validation, split.test) for query in part]
    assert sorted(meant) == [i for i in range(2000) if i % 5 and i % 7]
    assert len(split.train) == pytest.approx(0.6 * len(meant), abs=1)
    assert len(split.validation) == pytest.approx(0.1 * len(meant), abs=1)


def test_a_query_is_some_of_the_words_in_their_order_now_and_then_wrong(documents):
    """About 12 % are other words, and about 8 % lack a letter."""
    right, mistyped, wrong = 0, 0, 0
    for query in make_queries(documents, 2).train:
        said, asked = words_of(documents[query.target].summary), words_of(query.text)
        assert 2 <= len(asked) <= 4
        places = [said.index(word) for word in asked if word in said]
        right += len(places)
        typos = [word for word in asked if word not in WORDS.split()]
        mistyped += len(typos)
        wrong += len(asked) - len(places) - len(typos)
    n = right + mistyped + wrong
    # Of 16 words a wrong one is by chance one of the eight that were said, or none.
    assert wrong / n == pytest.approx(0.12 / 2, abs=0.02)
    assert mistyped / n == pytest.approx(0.08, abs=0.02)


def test_most_queries_of_a_device_are_of_its_topic(documents):
    """Seven of ten, and of the others every eighth by chance."""
    queries = make_queries(documents, 1).train
    devices = devices_of(queries, documents, 1)
    assert set(devices) == set(range(N_DEVICES))
    own = [topic_of(documents[query.target]) == device for query, device in zip(queries, devices, strict=True)]
    assert np.mean(own) == pytest.approx(0.7 + 0.3 / N_DEVICES, abs=0.05)
