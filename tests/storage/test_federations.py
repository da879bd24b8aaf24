"""Federations and the fence around their single writer."""

import asyncio
from typing import Any

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


async def test_creating_again_changes_nothing(stored) -> None:
    """A federation is created once, with model 0, however often the service starts."""
    before = await stored.dump()
    await stored.create_federation(3, "linear", stored.weights, stored.at(60))
    assert await stored.dump() == before
    assert [(row.name, row.n_features, row.ranker) for row in await list_federations(stored.db)] == [
        ("web", 3, "linear")
    ]
    model = await stored.latest_model()
    assert (model.version, model.weights, model.base_version, model.published_at) == (0, bytes(12), None, None)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"n_features": 4}, r"n_features = 3, but .* n_features = 4\. Change"),
        (
            {"ranker": "neural", "hidden": 8, "activation": "relu"},
            r"'linear', .*hidden = None, .*'neural', n_features = 3, hidden = 8, activation = 'relu'\.",
        ),
        ({"method": "foltr-es"}, r"method = 'fpdgd', .*, but the settings have method = 'foltr-es', "),
        ({"schema_hash": b"s" * 32}, rf"schema_hash = None, but .*schema_hash = '{'73' * 32}'\. Change"),
        ({"initial_weights": bytes(28)}, r"values in a model = 3, but the settings have values in a model = 7\. "),
    ],
)
async def test_another_method_or_shape_is_refused_in_words(stored, asked: dict[str, Any], told: str) -> None:
    """The message has both what is stored and what was asked for, and nothing changes."""
    before = await stored.dump()
    settings = {"n_features": 3, "ranker": "linear", "initial_weights": bytes(12), "now": stored.at(0)}
    with pytest.raises(SettingsError, match=told):
        await stored.create_federation(**settings | asked)
    assert await stored.dump() == before


async def test_a_schema_is_fixed(stored) -> None:
    """A federation that was created with one goes on with that one alone."""
    first = {"n_features": 3, "ranker": "linear", "initial_weights": bytes(12), "now": stored.at(0)}
    for _ in range(2):
        await create_federation(stored.db, "mail", **first, schema_hash=b"s" * 32)
    found = await get_federation(stored.db, "mail")
    assert found.schema_hash == b"s" * 32
    for other in (None, b"t" * 32):
        with pytest.raises(SettingsError, match="schema_hash = '7373"):
            await create_federation(stored.db, "mail", **first, schema_hash=other)


async def test_a_first_model_is_chosen_once(stored) -> None:
    """The same again, or none, changes nothing; another one is refused: all that was learned stands on the first."""
    at, chosen, zeros = stored.at(0), b"\0\0\x80?" * 3, bytes(12)
    await create_federation(stored.db, "mail", 3, "linear", chosen, at, first_model_is_chosen=True)
    before = await stored.dump()
    await create_federation(stored.db, "mail", 3, "linear", chosen, at, first_model_is_chosen=True)
    await create_federation(stored.db, "mail", 3, "linear", zeros, at)
    for federation, weights in (("mail", b"\0\0\0@" * 3), ("web", chosen)):
        with pytest.raises(SettingsError, match=f"initial_model: federation '{federation}' began with another model"):
            await create_federation(stored.db, federation, 3, "linear", weights, at, first_model_is_chosen=True)
    assert await stored.dump() == before
    model = await latest_model(stored.db, "mail")
    assert model.weights == chosen


async def test_a_federation_keeps_its_method_ranker_and_first_model(stored) -> None:
    """A model may have values beside the ranker's; the weights drawn at a later start are not taken."""
    drawn, units = (stored.at(0), None), {"hidden": 8, "activation": "sigmoid"}
    for weights in (b"\0\0\x80?" * 44, bytes(176)):
        await create_federation(stored.db, "mail", 3, "neural", weights, *drawn, method="fedper", **units)
    found = await get_federation(stored.db, "mail")
    assert (found.method, found.ranker, found.n_features) == ("fedper", "neural", 3)
    assert (found.hidden, found.activation) == (8, "sigmoid")
    with pytest.raises(SettingsError, match=r"activation = 'sigmoid', but .* activation = 'relu'"):
        await create_federation(
            stored.db, "mail", 3, "neural", weights, *drawn, method="fedper", **units | {"activation": "relu"}
        )
    model = await latest_model(stored.db, "mail")
    assert (model.n_values, model.weights, model.optimizer_state) == (44, b"\0\0\x80?" * 44, None)


async def test_each_claim_gets_a_newer_epoch(stored) -> None:
    """Claims are counted, and only an existing federation can be claimed."""
    assert await claim_federation(stored.db, "web", 0.0) == stored.epoch + 1
    found = await stored.get_federation()
    assert found.writer_epoch == stored.epoch + 1
    assert await get_federation(stored.db, "nowhere") is None
    with pytest.raises(SettingsError, match="nowhere"):
        await claim_federation(stored.db, "nowhere", 0.0)


async def test_an_epoch_is_at_least_the_seconds_of_its_claim(stored) -> None:
    """So it is above all that a database said which was restored since; a clock that was set back makes none lower."""
    assert await claim_federation(stored.db, "web", 2_000_000_000.9) == 2_000_000_000
    assert await claim_federation(stored.db, "web", 2_000_000_000.9) == 2_000_000_001
    assert await claim_federation(stored.db, "web", 5.0) == 2_000_000_002
    assert await claim_federation(stored.db, "web", 3_000_000_000.0) == 3_000_000_000


async def test_a_claim_waits_for_the_writer_in_the_middle_of_a_transaction(stored) -> None:
    """There is no moment at which two writers both believe they hold the federation."""
    async with fenced_transaction(stored.db, "web", stored.epoch):
        claim = asyncio.create_task(claim_federation(stored.db, "web", 0.0))
        await asyncio.sleep(0.05)
        assert not claim.done()
    assert await claim == stored.epoch + 1
