"""A first ranker from logged data: better than each feature alone, the same for the same seed."""

import numpy as np
import pytest

from foltr.core.data.synthetic import synthetic_dataset
from foltr.core.errors import DataError, SettingsError
from foltr.core.learning.lambdarank import FIRMNESS
from foltr.core.learning.linear import score
from foltr.core.protocol.schemas import Feature, FeatureSchema
from foltr_research.simulation.fitting import fit_linear, scaled

LOGGED = synthetic_dataset(np.random.default_rng(3), n_queries=80, docs_per_query=20, n_features=20)


def fitted(seed=1, **options):
    return fit_linear(LOGGED, np.random.default_rng(seed), **options)


def test_what_is_fitted_ranks_unseen_queries_better_than_any_feature_alone():
    """Where relevance is a mix of several features; bit for bit by the seed, which holds other queries out."""
    found = fitted()
    assert found.ndcg > found.best_ndcg + 0.05
    assert found.n_held_out <= 16
    assert (fitted().weights == fitted().weights).all()
    assert (fitted().weights != fitted(seed=2).weights).any()


def test_the_scores_of_a_query_are_as_firm_as_promised():
    """For each number of queries and epochs; scaling per query uses only that query's candidates."""
    for epochs in (5, 50):
        scores = np.split(score(fitted(epochs=epochs).weights, LOGGED.features), LOGGED.offsets[1:-1])
        assert np.mean([one.std() for one in scores]) == pytest.approx(FIRMNESS, rel=0.1)
    features = [Feature(name=f"f{i}", scaling="per_query") for i in range(20)]
    schema = FeatureSchema(name="s", version=1, features=features)
    by_query = scaled(LOGGED, schema)
    for i in range(LOGGED.n_queries):
        np.testing.assert_array_equal(by_query.query(i).features, schema.normalise(LOGGED.query(i).features))


def test_the_best_feature_may_be_one_of_which_less_is_better():
    """It is chosen on the queries that are learned from."""
    relevance = LOGGED.relevance
    features = np.zeros((len(relevance), 2), np.float32)
    features[:, 1] = 1.0 - relevance / 4.0
    dataset = type(LOGGED)("turned", features, relevance, LOGGED.offsets, LOGGED.query_ids)
    found = fit_linear(dataset, np.random.default_rng(1))
    assert (found.best_feature, found.rises, found.best_ndcg) == (1, False, 1.0)
    assert found.ndcg == 1.0
    assert found.weights[1] < 0.0 == found.weights[0]


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0, float("nan")])
def test_a_share_that_holds_nothing_or_all_out_is_refused(share):
    """Both parts need at least one query."""
    with pytest.raises(SettingsError, match="held out"):
        fitted(held_out=share)
    one = type(LOGGED)("one", LOGGED.features[:20], LOGGED.relevance[:20], LOGGED.offsets[:2], LOGGED.query_ids[:1])
    with pytest.raises(DataError, match="too few"):
        fit_linear(one, np.random.default_rng(1))
