"""A SearchRanker with a feature schema: offline, enrolled later, and in a federation with another one."""

import numpy as np
import pytest
from support.federator_by_hand import N_FEATURES

from foltr import FeatureSchema, SearchRanker
from foltr.core.errors import DataError, SettingsError
from foltr.core.protocol.schemas import Feature

SHOP = FeatureSchema(
    name="shop",
    version=1,
    features=[Feature(name=f"f{i}", scaling="min_max", low=0, high=10) for i in range(N_FEATURES)],
)
NEWER = SHOP.model_copy(update={"version": 2})
DOCUMENTS = 5.0 * np.eye(5, N_FEATURES)


def test_features_are_scaled_and_named_without_credentials_and_after_the_end(path):
    """As they would be in a federation: what is recorded now is learned there."""
    with SearchRanker(store=path, schema=SHOP) as ranker:
        assert ranker.rank(DOCUMENTS).features[0, 0] == 0.5
        assert ranker.scores(DOCUMENTS).tolist() == [0.0] * 5
        with pytest.raises(DataError, match="schema shop 1 has"):
            ranker.rank(DOCUMENTS[:, 1:])
        with pytest.raises(DataError, match="'f1' of document 0 is nan"):
            ranker.rank([[0.0, float("nan"), *[0.0] * (N_FEATURES - 2)]])
        assert ranker.schema_difference is None
    assert ranker.rank(DOCUMENTS).features[0, 0] == 0.5


@pytest.mark.parametrize("library", [None, "pandas", "polars"])
def test_rows_by_name_are_ranked_as_rows_in_order_are(path, library):
    """Dicts and data frames; clicks are positions in any sequence, and the base any column of numbers."""
    rows = [dict(zip(reversed(SHOP.names), reversed(row), strict=True)) for row in DOCUMENTS.tolist()]
    base, clicked = (1.0, 2.0, 3.0, 4.0, 5.0), [0, 2]
    if library is not None:
        frames = pytest.importorskip(library, reason=f"{library} is not installed")
        rows, base, clicked = frames.DataFrame(rows), frames.Series(base), frames.Series(clicked)
    with SearchRanker(store=path, schema=SHOP) as ranker:
        serp = ranker.rank(rows, base=base, exploration="none")
        assert (serp.features == SHOP.normalise(DOCUMENTS)).all()
        assert serp.ranking.tolist() == [4, 3, 2, 1, 0]
        ranker.record_clicks(serp, clicked)
        assert (ranker.n_waiting, ranker.scores(rows).shape) == (1, (5,))
    with (
        SearchRanker(store=":memory:", n_features=N_FEATURES) as ranker,
        pytest.raises(DataError, match="give a schema"),
    ):
        ranker.rank([dict(zip(SHOP.names, row, strict=True)) for row in DOCUMENTS.tolist()])


def test_a_schema_says_how_many_features_there_are(path):
    """Said twice it could be said differently. Nothing is opened for that."""
    with pytest.raises(SettingsError, match="n_features: the schema says"):
        SearchRanker(store=path, schema=SHOP, n_features=N_FEATURES)
    with pytest.raises(SettingsError, match=r"schema: none\.json: No such file"):
        SearchRanker(store=path, schema="none.json")
    assert not path.exists()
