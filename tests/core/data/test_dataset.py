from pathlib import Path

import numpy as np
import pytest

from foltr.core.data.dataset import RankingDataset, cache_directory, concatenate, label_scale, relabel, select_queries
from foltr.core.errors import DataError


def arrays() -> dict[str, np.ndarray]:
    return {
        "features": np.arange(10, dtype=np.float32).reshape(5, 2),
        "relevance": np.array([0, 1, 2, 0, 1], np.int16),
        "offsets": np.array([0, 2, 5], np.int64),
        "query_ids": np.array([7, 8], np.int64),
    }


def test_a_query_is_a_view_of_its_rows() -> None:
    """3 or 5 grades, over all sets together; a grade above 4 belongs to no scale."""
    data = RankingDataset("set", **arrays())
    features, relevance = data.query(1)
    assert (data.n_queries, data.n_features) == (2, 2)
    assert features.tolist() == [[4, 5], [6, 7], [8, 9]]
    assert relevance.tolist() == [2, 0, 1]
    assert np.shares_memory(features, data.features)
    low = RankingDataset("low", **arrays())
    high = RankingDataset("high", **(arrays() | {"relevance": np.array([0, 3, 0, 0, 0], np.int16)}))
    assert (label_scale(low), label_scale(low, high)) == (3, 5)
    with pytest.raises(DataError, match="grade 5; expected grades 0 to 2 or 0 to 4"):
        label_scale(RankingDataset("off", **(arrays() | {"relevance": np.array([0, 5, 0, 0, 0], np.int16)})))


def test_arrays_that_contradict_each_other_are_refused() -> None:
    for field, value, complaint in [
        ("features", np.zeros((5, 2)), "float32"),
        ("features", np.zeros((2, 5), np.float32).T, "C-ordered"),
        ("relevance", np.zeros(4, np.int16), "5 documents"),
        ("relevance", np.array([0, 0, 0, 0, -1], np.int16), "negative"),
        ("offsets", np.array([0, 5], np.int64), "one entry more"),
        ("offsets", np.array([0, 5, 5], np.int64), "rise"),
        ("offsets", np.array([1, 2, 5], np.int64), "rise"),
        ("query_ids", np.array([7, 8], np.int32), "int64"),
    ]:
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


def test_relabelling_shares_and_selecting_copies() -> None:
    """Relabelling shares the features, selecting copies; sets put together keep their queries."""
    data = RankingDataset("set", **arrays())
    other = relabel(data, np.ones(5, np.int16), "ones")
    assert other.name == "ones"
    assert other.features is data.features
    assert other.relevance.tolist() == [1] * 5
    chosen = select_queries(data, np.array([1, 0]))
    assert chosen.features.tolist() == [[4, 5], [6, 7], [8, 9], [0, 1], [2, 3]]
    assert (chosen.relevance.tolist(), chosen.query_ids.tolist()) == ([2, 0, 1, 0, 1], [8, 7])
    assert not np.shares_memory(chosen.features, data.features)
    for queries in ([], [2], [-1]):
        with pytest.raises(DataError, match="queries between 0 and 1"):
            select_queries(data, np.array(queries, np.int64))
    both = concatenate(data, data, "both")
    assert both.offsets.tolist() == [0, 2, 5, 7, 10]
    assert both.query(3).features.tolist() == data.query(1).features.tolist()
    with pytest.raises(DataError, match="set has 2 features, wide has 5"):
        concatenate(data, RankingDataset("wide", **(arrays() | {"features": np.zeros((5, 5), np.float32)})), "both")
