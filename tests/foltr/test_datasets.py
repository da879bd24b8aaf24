from pathlib import Path

import numpy as np
import pytest

from foltr.datasets import RankingDataset, cache_directory
from foltr.errors import DataError


def arrays() -> dict[str, np.ndarray]:
    return {
        "features": np.arange(10, dtype=np.float32).reshape(5, 2),
        "relevance": np.array([0, 1, 2, 0, 1], np.int16),
        "offsets": np.array([0, 2, 5], np.int64),
        "query_ids": np.array([7, 8], np.int64),
    }


def test_a_query_is_a_view_of_its_rows() -> None:
    """Nothing is copied to look at a query."""
    data = RankingDataset("set", **arrays())
    features, relevance = data.query(1)
    assert (data.n_queries, data.n_features) == (2, 2)
    assert features.tolist() == [[4, 5], [6, 7], [8, 9]]
    assert relevance.tolist() == [2, 0, 1]
    assert np.shares_memory(features, data.features)


@pytest.mark.parametrize(
    ("field", "value", "complaint"),
    [
        ("features", np.zeros((5, 2)), "float32"),
        ("features", np.zeros((2, 5), np.float32).T, "C-ordered"),
        ("relevance", np.zeros(4, np.int16), "5 documents"),
        ("relevance", np.array([0, 0, 0, 0, -1], np.int16), "negative"),
        ("offsets", np.array([0, 5], np.int64), "one entry more"),
        ("offsets", np.array([0, 5, 5], np.int64), "rise"),
        ("offsets", np.array([1, 2, 5], np.int64), "rise"),
        ("query_ids", np.array([7, 8], np.int32), "int64"),
    ],
)
def test_arrays_that_contradict_each_other_are_refused(field: str, value: np.ndarray, complaint: str) -> None:
    """A set that exists is consistent."""
    with pytest.raises(DataError, match=complaint):
        RankingDataset("set", **(arrays() | {field: value}))


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own variable first, then the platform's, then the home directory."""
    monkeypatch.setenv("FOLTR_CACHE", "/a")
    monkeypatch.setenv("XDG_CACHE_HOME", "/b")
    assert cache_directory() == Path("/a")
    monkeypatch.delenv("FOLTR_CACHE")
    assert cache_directory() == Path("/b/foltr")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_directory() == Path.home() / ".cache" / "foltr"
