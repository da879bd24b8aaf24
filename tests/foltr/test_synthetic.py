import numpy as np
import pytest

from foltr.errors import SettingsError
from foltr.metrics import mean_ndcg_at_k
from foltr.synthetic import split_queries, synthetic_dataset


def test_equal_seeds_give_equal_sets() -> None:
    """The generator is the only source."""
    first, second = (synthetic_dataset(np.random.default_rng(4), 5, 10, 3) for _ in range(2))
    assert (first.features == second.features).all()
    assert (first.relevance == second.relevance).all()
    assert first.name == "synthetic-linear"


def test_the_set_looks_like_normalised_five_grade_data(rng: np.random.Generator) -> None:
    """Five grades, mostly 0; each query's features span [0, 1]."""
    data = synthetic_dataset(rng, 50, 40, 12)
    assert set(data.relevance.tolist()) == {0, 1, 2, 3, 4}
    assert (data.relevance == 0).mean() == pytest.approx(0.55, abs=0.01)
    features, _ = data.query(3)
    assert features.min(axis=0).tolist() == [0.0] * 12
    assert features.max(axis=0).tolist() == [1.0] * 12


def test_a_linear_ranker_can_learn_it(rng: np.random.Generator) -> None:
    """Least squares on one part ranks the other far better than no ranker."""
    train, test = split_queries(synthetic_dataset(rng, 100, 50, 20), 60)
    design = train.features - train.features.mean(axis=0)
    weights = np.linalg.lstsq(design, train.relevance - train.relevance.mean(), rcond=None)[0]
    assert mean_ndcg_at_k(weights, test).mean > mean_ndcg_at_k(np.zeros(20), test).mean + 0.3


def test_splitting_keeps_every_query(rng: np.random.Generator) -> None:
    """The parts are consistent sets of their own."""
    data = synthetic_dataset(rng, 7, 4, 2)
    first, rest = split_queries(data, 3)
    assert (first.n_queries, rest.n_queries) == (3, 4)
    assert (rest.query(0).features == data.query(3).features).all()
    with pytest.raises(SettingsError, match="cannot split 7 queries"):
        split_queries(data, 7)
    with pytest.raises(SettingsError, match="at least"):
        synthetic_dataset(rng, 0)
