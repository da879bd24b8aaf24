"""Simulated queries come with what the index finds, and only those whose document is found are asked."""

import numpy as np
import pytest

from collection import Collection, make_collection
from documents import standard_library
from features import SCHEMA
from index import N_CANDIDATES
from queries import N_DEVICES


@pytest.fixture(scope="module")
def collection() -> Collection:
    """Of one package, which is soon read."""
    return make_collection(standard_library() / "email", seed=2)


def test_a_query_has_its_candidates_in_the_order_of_bm25_and_the_one_that_is_meant(collection):
    """Scaled by the schema, and not more of them than an application would rank."""
    asked = collection.train
    assert 0 < asked.dataset.n_queries < asked.n_asked
    for i in range(asked.dataset.n_queries):
        features, base, meant = asked.query(i)
        assert features.shape == (len(base), SCHEMA.n_features)
        assert 0 <= meant < len(base) <= N_CANDIDATES
        assert (np.diff(base) <= 0.0).all()
        assert (SCHEMA.normalise(features) == asked.dataset.query(i).features).all()
    assert asked.dataset.relevance.sum() == asked.dataset.n_queries == len(asked.devices)
    assert set(asked.devices.tolist()) <= set(range(N_DEVICES))


def test_the_seed_decides_and_of_a_share_the_rest_is_not_asked(collection):
    """To the last bit; the share is of all three parts."""
    again, few = (make_collection(standard_library() / "email", seed=2, share=share) for share in (1.0, 0.5))
    for part in ("train", "validation", "test"):
        one, other = getattr(collection, part), getattr(again, part)
        assert (one.dataset.features == other.dataset.features).all()
        assert (one.dataset.relevance == other.dataset.relevance).all()
        assert (one.devices == other.devices).all()
        assert getattr(few, part).n_asked == pytest.approx(one.n_asked / 2, abs=1)
