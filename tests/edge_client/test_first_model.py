"""A first model is learned from logged lists, ranks, and begins a federation."""

import numpy as np
import pytest
from structlog.testing import capture_logs

from foltr import FirstModel, SearchRanker
from foltr.core.data.synthetic import synthetic_dataset
from foltr.core.errors import DataError, UsageError
from foltr.core.evaluation.metrics import mean_ndcg_at_k
from foltr.core.learning.lambdarank import fit_first_model
from foltr.core.methods.initial_models import InitialModel
from foltr.core.protocol.schemas import Feature, FeatureSchema
from foltr.core.protocol.trainings import LinearRankerSpec

LOGGED = synthetic_dataset(np.random.default_rng(3), n_queries=60, docs_per_query=12, n_features=4)
QUERIES = np.repeat(np.arange(60), 12)
SHOP = FeatureSchema(
    name="shop",
    version=1,
    features=[
        *(Feature(name=f"f{i}", scaling="min_max", low=0, high=10) for i in range(3)),
        Feature(name="age", scaling="per_query"),
    ],
)
DICTS = [dict(zip(SHOP.names, row, strict=True)) for row in (10.0 * LOGGED.features.astype(np.float64)).tolist()]


def test_what_is_fitted_is_the_learners_model():
    """Bit for bit, with the queries in any order of rows and under any names."""
    first = FirstModel().fit(LOGGED.features, LOGGED.relevance, QUERIES)
    assert (first.weights == fit_first_model(LOGGED, np.random.default_rng(1))).all()
    assert mean_ndcg_at_k(first.weights, LOGGED).mean > mean_ndcg_at_k(np.ones(4), LOGGED).mean + 0.05
    # Query by query in another order of rows: the first row of each, then the second of each, ...
    mixed = np.arange(720).reshape(60, 12).T.ravel()
    named = [f"query {number}" for number in QUERIES[mixed]]
    again = FirstModel().fit(LOGGED.features[mixed], LOGGED.relevance[mixed].tolist(), named)
    assert (again.weights == first.weights).all()


def test_features_are_scaled_by_the_schema_and_each_query_for_itself(tmp_path):
    """As in `rank`: dicts, by name; a scaling per query takes the candidates of one query."""
    first = FirstModel(SHOP).fit(DICTS, LOGGED.relevance > 1, QUERIES)
    scaled = np.concatenate([SHOP.normalise(DICTS[i : i + 12]) for i in range(0, 720, 12)])
    assert (first.weights == FirstModel().fit(scaled, LOGGED.relevance > 1, QUERIES).weights).all()
    scores = first.scores(DICTS[:12])
    assert first.rank(DICTS[:12]).tolist() == np.argsort(-scores, kind="stable").tolist()
    assert first.rank(DICTS[:12], 3).tolist() == first.rank(DICTS[:12]).tolist()[:3]
    assert (first.rank([]).shape, first.scores([]).shape) == ((0,), (0,))
    with SearchRanker(store=tmp_path / "clicks.sqlite", schema=SHOP) as ranker:
        serp = ranker.rank(DICTS[:12], base=scores, exploration="none")
        assert serp.ranking.tolist() == first.rank(DICTS[:12], 10).tolist()


@pytest.mark.parametrize("schema", [None, SHOP])
def test_a_federation_begins_with_it(tmp_path, schema):
    """The file is an initial model, of the schema that it was fitted under."""
    first = FirstModel(schema).fit(LOGGED.features, LOGGED.relevance, QUERIES)
    first.save(tmp_path / "first.json")
    weights = InitialModel.read(tmp_path / "first.json").weights_of(LinearRankerSpec(n_features=4), schema)
    assert (weights == first.weights).all()


def test_what_is_wrong_is_named_by_its_row():
    """Of all rows, not of one query's; and a model that learned nothing neither ranks nor is written."""
    broken = [*DICTS[:30], {**DICTS[30], "age": float("nan")}, *DICTS[31:]]
    for features, relevance, groups, words in [
        (broken, LOGGED.relevance, QUERIES, "'age' of document 30 is nan"),
        (DICTS, LOGGED.relevance[:-1], QUERIES, r"an integer for each of 720 rows, got shape \(719,\)"),
        (DICTS, [*[0] * 719, -1], QUERIES, "relevance: row 719 is -1.0"),
        (DICTS, [0.5, *[0] * 719], QUERIES, "relevance: row 0 is 0.5"),
        (DICTS, [None, *[0] * 719], QUERIES, "relevance: row 0 is nan"),
        (DICTS, ["good"] * 720, QUERIES, "relevance: expected an integer"),
        (DICTS, LOGGED.relevance, [12] * 60, "groups: 60 for 720 rows; give the query of each row"),
        (DICTS, LOGGED.relevance, 12, "groups: expected the query of each of 720 rows"),
        (DICTS, LOGGED.relevance, [[1]] * 720, "groups: expected the query of each of 720 rows"),
        (DICTS, [1] * 720, QUERIES, "no query has documents of different grades"),
        ([], [], [], "no query has documents of different grades"),
    ]:
        first = FirstModel(SHOP)
        with pytest.raises(DataError, match=words):
            first.fit(features, relevance, groups)
        with pytest.raises(UsageError, match="call fit"):
            first.rank(DICTS[:12])
        with pytest.raises(UsageError, match="call fit"):
            first.save("nowhere/first.json")
    with capture_logs() as logs:
        FirstModel().fit(100.0 * LOGGED.features, LOGGED.relevance, QUERIES)
    assert [line["event"] for line in logs] == ["features_out_of_range"]
    fitted = FirstModel().fit(LOGGED.features, LOGGED.relevance, QUERIES)
    with pytest.raises(DataError, match="features: 3 columns"):
        fitted.rank(LOGGED.features[:, 1:])
