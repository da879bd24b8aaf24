"""A SearchRanker with a feature schema: offline, enrolled later, and in a federation with another one."""

import asyncio

import numpy as np
import pytest
from support.federator_by_hand import N_FEATURES, Federator, model
from support.waiting import PATIENCE_S

from foltr import FeatureSchema, SearchRanker
from foltr.core.errors import DataError, SettingsError
from foltr.core.operator.credentials import BrokerAccess, device_identity
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.schemas import Feature
from foltr.core.protocol.signing import SigningKey

SHOP = FeatureSchema(
    name="shop",
    version=1,
    features=[Feature(name=f"f{i}", scaling="min_max", low=0, high=10) for i in range(N_FEATURES)],
)
OPERATOR, FEDERATOR = SigningKey.generate(), SigningKey.generate()
NEWER = SHOP.model_copy(update={"version": 2})
DOCUMENTS = 5.0 * np.eye(5, N_FEATURES)


def identity(url):
    return device_identity(OPERATOR, FEDERATOR.public, "mail", "device-7", 1, BrokerAccess(broker_url=url))


def search(ranker, times=1):
    for _ in range(times):
        ranker.record_clicks(ranker.rank(DOCUMENTS), [1])


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


def test_rows_by_name_are_ranked_as_rows_in_order_are(path):
    """Dicts and data frames; clicks are positions in any sequence, and the base any column of numbers."""
    rows = [dict(zip(reversed(SHOP.names), reversed(row), strict=True)) for row in DOCUMENTS.tolist()]
    with SearchRanker(store=path, schema=SHOP) as ranker:
        serp = ranker.rank(rows, base=(5.0, 4.0, 3.0, 2.0, 1.0), exploration="none")
        assert (serp.features == SHOP.normalise(DOCUMENTS)).all()
        assert serp.ranking.tolist() == [0, 1, 2, 3, 4]
        ranker.record_clicks(serp, np.array([1]))
        assert ranker.scores(rows).shape == (5,)
        del rows[3]["f2"]
        with pytest.raises(DataError, match="row 3 has no 'f2'"):
            ranker.rank(rows)
        with pytest.raises(DataError, match="base: document 2 is 'dear'; expected a number"):
            ranker.rank(DOCUMENTS, base=[1, 2, "dear", 4, 5])
    with (
        SearchRanker(store=":memory:", n_features=N_FEATURES) as ranker,
        pytest.raises(DataError, match="give a schema"),
    ):
        ranker.rank(rows)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_data_frames_and_series_are_taken(path, library):
    """Columns by name, scores as a series, clicked positions as a series."""
    frames = pytest.importorskip(library, reason=f"{library} is not installed")
    columns = {name: DOCUMENTS[:, i] for i, name in reversed(list(enumerate(SHOP.names)))}
    with SearchRanker(store=path, schema=SHOP) as ranker:
        serp = ranker.rank(frames.DataFrame(columns), base=frames.Series([1.0, 2.0, 3.0, 4.0, 5.0]), exploration="none")
        assert (serp.features == SHOP.normalise(DOCUMENTS)).all()
        assert serp.ranking.tolist() == [4, 3, 2, 1, 0]
        ranker.record_clicks(serp, frames.Series([0, 2]))
        assert ranker.n_waiting == 1
        assert ranker.rank(frames.DataFrame([])).ranking.tolist() == []


def test_a_schema_says_how_many_features_there_are(path):
    """Said twice it could be said differently. Nothing is opened for that."""
    with pytest.raises(SettingsError, match="n_features: the schema says"):
        SearchRanker(store=path, schema=SHOP, n_features=N_FEATURES)
    with pytest.raises(SettingsError, match=r"schema: none\.json: No such file"):
        SearchRanker(store=path, schema="none.json")
    assert not path.exists()


async def test_clicks_from_before_the_credentials_are_learned_under_their_schema_alone(mqtt_broker, path):
    """Recorded offline by two versions of an application; the federation learns from the newer one's features."""

    def record_offline():
        for schema, times in ((SHOP, 2), (NEWER, 3)):
            with SearchRanker(store=path, schema=schema) as ranker:
                search(ranker, times)
                assert ranker.n_waiting == times

    await asyncio.to_thread(record_offline)
    async with Federator(mqtt_broker, key=FEDERATOR) as federator:
        await federator.announce(1, newest=model(schema_hash=NEWER.hash), min_interactions=3)
        ranker = await asyncio.to_thread(SearchRanker, identity(mqtt_broker), store=path, schema=NEWER)
        update = await federator.update()
        assert (update.n_interactions, update.after, update.through) == (3, 0, 5)
        await federator.receipt(update, ReceiptCode.ACCEPTED)
        assert await asyncio.to_thread(ranker.wait_settled, PATIENCE_S)
        await asyncio.to_thread(ranker.close)
