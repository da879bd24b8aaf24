import numpy as np
import pytest

from foltr.core.data import synthetic
from foltr.core.data.dataset import RankingDataset
from foltr.core.data.synthetic import split_queries, synthetic_dataset
from foltr.core.errors import SettingsError
from foltr.core.evaluation.metrics import mean_ndcg_at_k


def test_equal_seeds_give_equal_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Always those of the demo, too; making a set in pieces changes nothing."""
    first, second = (synthetic_dataset(np.random.default_rng(4), 5, 10, 3) for _ in range(2))
    assert (first.features == second.features).all()
    assert (first.relevance == second.relevance).all()
    assert first.name == "synthetic-linear"
    data = synthetic_dataset(np.random.default_rng(1), n_queries=150, n_features=136)
    assert np.bincount(data.relevance).tolist() == [4125, 1875, 975, 375, 150]
    assert np.flatnonzero(data.relevance == 4)[:5].tolist() == [29, 106, 117, 128, 134]
    assert data.features[0, :3].tolist() == pytest.approx([0.0003561, 0.0867187, 0.3613789], abs=1e-6)
    whole = synthetic_dataset(np.random.default_rng(3), 20, (2, 9), 5)
    monkeypatch.setattr(synthetic, "_CHUNK_VALUES", 90)
    pieces = synthetic_dataset(np.random.default_rng(3), 20, (2, 9), 5)
    assert (whole.features == pieces.features).all()
    assert (whole.relevance == pieces.relevance).all()


def test_splitting_keeps_every_query(rng: np.random.Generator) -> None:
    """Settings that make no set are refused."""
    data = synthetic_dataset(rng, 7, 4, 2)
    first, rest = split_queries(data, 3)
    assert (first.n_queries, rest.n_queries) == (3, 4)
    assert (rest.query(0).features == data.query(3).features).all()
    with pytest.raises(SettingsError, match="cannot split 7 queries"):
        split_queries(data, 7)
    with pytest.raises(SettingsError, match="at least"):
        synthetic_dataset(rng, 0)
    for arguments, complaint in [
        ({"docs_per_query": (5, 4)}, "2 documents"),
        ({"docs_per_query": (1, 4)}, "2 documents"),
        ({"n_grades": 4}, "3 or 5 grades, not 4"),
        ({"relevance": "nonlinear", "n_features": 3}, "at least 4 features"),
    ]:
        with pytest.raises(SettingsError, match=complaint):
            synthetic_dataset(rng, **arguments)


@pytest.mark.parametrize("relevance", ["linear", "nonlinear"])
def test_queries_may_differ_in_size_and_labels_in_scale(rng: np.random.Generator, relevance: str) -> None:
    data = synthetic_dataset(rng, 200, (3, 12), 6, relevance=relevance, n_grades=3)
    assert data.name == f"synthetic-{relevance}"
    sizes = np.diff(data.offsets)
    assert (sizes.min(), sizes.max()) == (3, 12)
    assert set(data.relevance.tolist()) == {0, 1, 2}
    for i in range(10):
        assert data.query(i).features.min(axis=0).tolist() == [0.0] * 6
        assert data.query(i).features.max(axis=0).tolist() == [1.0] * 6


def test_a_nonlinear_set_has_more_than_a_linear_ranker_finds(rng: np.random.Generator) -> None:
    """Least squares on features and their products ranks better than on features alone; not so on the linear set."""
    gain = {}
    for kind in ("linear", "nonlinear"):
        data = synthetic_dataset(rng, 300, 40, 10, label_noise=0.1, relevance=kind)
        first, second = np.triu_indices(10, 1)
        centred = data.features - np.float32(0.5)
        designs = (centred, np.hstack((centred, centred[:, first] * centred[:, second])))
        found = []
        for design in designs:
            wide = RankingDataset(data.name, design, data.relevance, data.offsets, data.query_ids)
            train, test = split_queries(wide, 200)
            weights = np.linalg.lstsq(train.features, train.relevance - train.relevance.mean(), rcond=None)[0]
            found.append(mean_ndcg_at_k(weights, test).mean)
        assert found[0] > mean_ndcg_at_k(np.zeros(designs[0].shape[1]), split_queries(data, 200)[1]).mean + 0.1
        gain[kind] = found[1] - found[0]
    assert gain["nonlinear"] > 0.05
    assert abs(gain["linear"]) < 0.02
