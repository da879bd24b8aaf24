"""Model versions and the outbox."""

from datetime import timedelta

from foltr.storage.models import get_model, latest_model, list_models
from foltr.storage.records import Batch, NewModel


async def test_a_model_is_unpublished_until_it_is_marked(stored) -> None:
    """The first mark stays; models are listed newest last."""
    await stored.open(1)
    now = stored.at(60)
    await stored.begin_aggregation(1)
    await stored.complete_round(1, NewModel(1, stored.weights), now)
    assert [model.published_at for model in await list_models(stored.db, "web")] == [None, None]
    for seconds in (0, 5):
        await stored.commit(Batch(published=(1, now + timedelta(seconds=seconds))))
    assert [model.published_at for model in await list_models(stored.db, "web")] == [None, now]
    newest = await stored.latest_model()
    assert (newest.version, newest.published_at) == (1, now)
    assert [model.version for model in await list_models(stored.db, "web")] == [0, 1]
    assert [model.version for model in await list_models(stored.db, "web", limit=1)] == [1]
    assert await get_model(stored.db, "web", 2) is None
    assert await latest_model(stored.db, "elsewhere") is None
