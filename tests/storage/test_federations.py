"""Federations and the fence around their single writer."""

import asyncio

import pytest

from foltr.core.errors import SettingsError
from foltr.storage.federations import (
    claim_federation,
    create_federation,
    fenced_transaction,
    get_federation,
    list_federations,
)
from foltr.storage.models import latest_model

from .conftest import at


async def test_creating_again_changes_nothing(stored) -> None:
    """A federation is created once, with model 0, however often the service starts."""
    async with stored.unchanged():
        await stored.create_federation(3, "linear", stored.weights, at(60))
    (row,) = await list_federations(stored.db)
    assert (row.name, row.n_features, row.ranker) == ("web", 3, "linear")
    model = await stored.latest_model()
    assert (model.version, model.weights, model.base_version, model.published_at) == (0, bytes(12), None, None)
    assert await latest_model(stored.db, "elsewhere") is None


async def test_another_method_or_shape_is_refused_in_words(stored) -> None:
    """The message has both what is stored and what was asked for, and nothing changes."""
    settings = {"n_features": 3, "ranker": "linear", "initial_weights": bytes(12), "now": at(0)}
    neural = {"ranker": "neural", "hidden": 8, "activation": "relu"}
    for asked, told in (
        ({"n_features": 4}, r"n_features = 3, but .* n_features = 4\. Change"),
        (neural, r"'linear', .*hidden = None, .*'neural', n_features = 3, hidden = 8, activation = 'relu'\."),
        ({"method": "foltr-es"}, r"method = 'fpdgd', .*, but the settings have method = 'foltr-es', "),
        ({"schema_hash": b"s" * 32}, rf"schema_hash = None, but .*schema_hash = '{'73' * 32}'\. Change"),
        ({"initial_weights": bytes(28)}, r"values in a model = 3, but the settings have values in a model = 7\. "),
    ):
        async with stored.refuses(SettingsError, told):
            await stored.create_federation(**settings | asked)


async def test_a_schema_is_fixed(stored) -> None:
    """A federation that was created with one goes on with that one alone."""
    first = {"n_features": 3, "ranker": "linear", "initial_weights": bytes(12), "now": at(0)}
    for _ in range(2):
        await create_federation(stored.db, "mail", **first, schema_hash=b"s" * 32)
    assert (await get_federation(stored.db, "mail")).schema_hash == b"s" * 32
    for other in (None, b"t" * 32):
        with pytest.raises(SettingsError, match="schema_hash = '7373"):
            await create_federation(stored.db, "mail", **first, schema_hash=other)


async def test_a_first_model_is_chosen_once(stored) -> None:
    """The same again, or none, changes nothing; another one is refused: all that was learned stands on the first."""
    chosen, zeros = b"\0\0\x80?" * 3, bytes(12)

    async def create(name: str, weights: bytes, is_chosen: bool = True) -> None:
        await create_federation(stored.db, name, 3, "linear", weights, at(0), first_model_is_chosen=is_chosen)

    await create("mail", chosen)
    async with stored.unchanged():
        await create("mail", chosen)
        await create("mail", zeros, is_chosen=False)
    for name, weights in (("mail", b"\0\0\0@" * 3), ("web", chosen)):
        async with stored.refuses(SettingsError, f"initial_model: federation '{name}' began with another model"):
            await create(name, weights)
    assert (await latest_model(stored.db, "mail")).weights == chosen


async def test_a_federation_keeps_its_method_ranker_and_first_model(stored) -> None:
    """A model may have values beside the ranker's; the weights drawn at a later start are not taken."""
    settings = {"method": "fedper", "hidden": 8, "activation": "sigmoid"}
    for weights in (b"\0\0\x80?" * 44, bytes(176)):
        await create_federation(stored.db, "mail", 3, "neural", weights, at(0), **settings)
    found = await get_federation(stored.db, "mail")
    assert (found.method, found.ranker, found.n_features) == ("fedper", "neural", 3)
    assert (found.hidden, found.activation) == (8, "sigmoid")
    with pytest.raises(SettingsError, match=r"activation = 'sigmoid', but .* activation = 'relu'"):
        await create_federation(stored.db, "mail", 3, "neural", weights, at(0), **settings | {"activation": "relu"})
    model = await latest_model(stored.db, "mail")
    assert (model.n_values, model.weights, model.optimizer_state) == (44, b"\0\0\x80?" * 44, None)


async def test_each_claim_gets_a_newer_epoch(stored) -> None:
    """Above all that a database said which was restored since: it is at least the seconds of its claim."""
    assert await claim_federation(stored.db, "web", 0.0) == stored.epoch + 1
    found = await stored.get_federation()
    assert found.writer_epoch == stored.epoch + 1
    assert await get_federation(stored.db, "nowhere") is None
    with pytest.raises(SettingsError, match="nowhere"):
        await claim_federation(stored.db, "nowhere", 0.0)
    # A clock that was set back makes none lower.
    epochs = [await claim_federation(stored.db, "web", seconds) for seconds in (2e9 + 0.9, 2e9 + 0.9, 5.0, 3e9)]
    assert epochs == [2_000_000_000, 2_000_000_001, 2_000_000_002, 3_000_000_000]


async def test_a_claim_waits_for_the_writer_in_the_middle_of_a_transaction(stored) -> None:
    """There is no moment at which two writers both believe they hold the federation."""
    async with fenced_transaction(stored.db, "web", stored.epoch):
        claim = asyncio.create_task(claim_federation(stored.db, "web", 0.0))
        await asyncio.sleep(0.05)
        assert not claim.done()
    assert await claim == stored.epoch + 1
