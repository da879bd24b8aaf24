"""Simulated people ask for what is public, by words of its first line, mostly of their own topic."""

import numpy as np
import pytest

from documents import Document
from queries import devices_of, make_queries

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


def test_no_document_is_meant_twice_and_none_that_nobody_would_find(documents):
    """So what is judged by was never learned; the seed decides who asks what."""
    split, again, other = (make_queries(documents, seed) for seed in (1, 1, 2))
    assert split == again != other
    found = [devices_of(split.train, documents, seed) for seed in (1, 1, 2)]
    assert found[0] == found[1] != found[2]
    meant = [query.target for part in (split.train, split.validation, split.test) for query in part]
    assert sorted(meant) == [i for i in range(2000) if i % 5 and i % 7]
    assert len(split.train) == pytest.approx(0.6 * len(meant), abs=1)
    assert len(split.validation) == pytest.approx(0.1 * len(meant), abs=1)
