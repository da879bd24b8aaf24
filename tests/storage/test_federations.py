"""Federations and the fence around their single writer."""

import asyncio

import pytest

from foltr.core.errors import SettingsError
from foltr.core.protocol.states import Privacy
from foltr.storage.federations import claim_federation, create_federation, fenced_transaction, get_federation
from foltr.storage.models import latest_model

from .conftest import at


async def test_another_method_or_shape_is_refused_in_words(stored) -> None:
    """The message has both what is stored and what was asked for, and nothing changes."""
    settings = {"n_features": 3, "ranker": "linear", "initial_weights": bytes(12), "now": at(0)}
    neural = {"ranker": "neural", "hidden": 8, "activation": "relu"}
    for asked, told in (
        ({"n_features": 4}, r"n_features = 3, but .* n_features = 4\. Change"),
        (neural, r"'linear', .*hidden = None, .*'neural', n_features = 3, hidden = 8, activation = 'relu'\."),
        ({"method": "foltr-es"}, r"method = 'fpdgd', .*, but the settings have method = 'foltr-es', "),
        ({"privacy": Privacy.SECURE}, "privacy = 'trusted', .* have .*privacy = 'secure'"),
        ({"schema_hash": b"s" * 32}, rf"schema_hash = None, but .*schema_hash = '{'73' * 32}'\. Change"),
        ({"initial_weights": bytes(28)}, r"values in a model = 3, but the settings have values in a model = 7\. "),
    ):
        async with stored.refuses(SettingsError, told):
            await stored.create_federation(**settings | asked)


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


async def test_a_federation_keeps_what_it_was_created_with(stored) -> None:
    """A model may have values beside the ranker's; the weights drawn at a later start are not taken."""
    settings = {"method": "fedper", "hidden": 8, "activation": "sigmoid"}
    settings |= {"privacy": Privacy.SECURE, "schema_hash": b"s" * 32}
    for weights in (b"\0\0\x80?" * 44, bytes(176)):
        await create_federation(stored.db, "mail", 3, "neural", weights, at(0), **settings)
    found = await get_federation(stored.db, "mail")
    assert (found.method, found.ranker, found.n_features) == ("fedper", "neural", 3)
    assert (found.hidden, found.activation) == (8, "sigmoid")
    assert (found.privacy, found.schema_hash) == (Privacy.SECURE, b"s" * 32)
    for other, told in (
        ({"activation": "relu"}, r"activation = 'sigmoid', .* have .*activation = 'relu'"),
        ({"privacy": Privacy.TRUSTED}, r"privacy = 'secure', .* have .*privacy = 'trusted'"),
        ({"schema_hash": None}, "schema_hash = '7373"),
    ):
        with pytest.raises(SettingsError, match=told):
            await create_federation(stored.db, "mail", 3, "neural", weights, at(0), **settings | other)
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
