"""What is looked for is found, wherever it is; and what is everywhere is not looked for."""

import base64
from datetime import UTC, datetime

import pytest
from support.history_database import made_history
from support.waiting import PATIENCE_S

from foltr.broker.address import BrokerAddress
from foltr.broker.link import MqttLink
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.topics import Topics
from foltr.storage.database import Database
from foltr.storage.federations import create_federation
from foltr_research.cli.demos.residue import (
    at_broker,
    in_database,
    in_files,
    n_bytes,
    sqlite_files,
    stored_updates,
    traces_of,
)

NAME = "leaver-0a1b2c3d"
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def key() -> bytes:
    return SigningKey.generate().public


def test_a_key_is_found_in_each_of_its_spellings(key):
    """As bytes, in hex and in base64; the name and a secret as they are; an update of zeros is in every file."""
    traces = traces_of(NAME, key, (b"s" * 32,), ())
    for text, expected in (
        (key, 32),
        (key.hex().encode(), 64),
        (base64.b64encode(key), 44),
        (f"clients/{NAME}/status".encode(), len(NAME)),
        (b"s" * 32, 32),
        (b"leaver-0a1b2c3e", 0),
    ):
        assert n_bytes(b"before " + text + b" after", traces) == expected
    assert traces_of(NAME, key, (), [bytes(544)]) == traces_of(NAME, key, (), [])


@pytest.mark.parametrize("length", [80, 544, 40_000])
def test_an_update_is_found_though_it_was_broken_up(rng, key, length):
    """Whole, and any half of it, also where another page's bytes lie between two parts."""
    body = rng.bytes(length)
    traces = traces_of(NAME, key, (), [body])
    assert n_bytes(body, traces) > 0
    if length > 512:
        assert n_bytes(body[: length // 2] + rng.bytes(100), traces) > 0
        assert n_bytes(rng.bytes(100) + body[length // 2 :], traces) > 0
    assert n_bytes(rng.bytes(length), traces) == 0


def test_files_are_searched_with_their_names_and_all_below_a_folder(tmp_path, key):
    """A missing file has nothing in it."""
    traces = traces_of(NAME, key, (), ())
    (tmp_path / "aa").mkdir()
    (tmp_path / "aa" / "file").write_bytes(b"\0" + key)
    (tmp_path / f"{NAME}.sqlite-wal").touch()
    assert in_files([tmp_path], traces) == 32 + len(NAME)
    assert in_files(sqlite_files(tmp_path / f"{NAME}.sqlite"), traces) == len(NAME)
    assert in_files([tmp_path / "none"], traces) == 0


async def test_a_database_is_searched_for_texts_and_bytes(migrated_url, rng, key):
    """On SQLite its files, before and after the log is moved into them; on PostgreSQL its rows, each client's own."""
    weights = rng.bytes(400)
    async with await Database.connect(migrated_url) as db:
        traces = traces_of(NAME, key, (), [weights])
        assert await in_database(db, traces) == 0
        await create_federation(db, NAME, 100, "linear", weights, NOW)
        for _ in range(2):
            assert await in_database(db, (NAME.encode(),)) >= len(NAME)
            assert await in_database(db, traces_of("nobody", key, (), [weights])) >= 400
            await db.vacuum()
    await made_history(migrated_url, "web")
    async with await Database.connect(migrated_url) as db:
        assert await stored_updates(db, "web", "a") == [bytes(4)]
        assert await stored_updates(db, "web", "nobody") == []
        assert await stored_updates(db, "other", "a") == []


async def test_retained_messages_are_searched_with_their_topics(mqtt_broker, key):
    """Those of this federation, until they are cleared."""
    address, topics = BrokerAddress.parse(mqtt_broker), Topics("searched")
    traces = traces_of(NAME, key, (), ())
    async with MqttLink(
        address, client_id="writer", subscriptions=[], on_message=lambda _: None, persistent=False
    ) as link:
        await link.wait_connected(PATIENCE_S)
        await link.publish(f"{topics.root}/clients/{NAME}/status", b"online", retain=True)
        await link.publish(f"{topics.root}/roster", b"\0" + key, retain=True)
        await link.publish(f"{Topics('other').root}/roster", key, retain=True)
        assert await at_broker(address, "searched", traces) == len(NAME) + 32
        await link.publish(f"{topics.root}/clients/{NAME}/status", b"", retain=True)
        await link.publish(f"{topics.root}/roster", b"", retain=True)
        assert await at_broker(address, "searched", traces) == 0
