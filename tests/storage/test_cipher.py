"""Updates at rest: readable with the client's key alone, and only in the row they were stored in."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select, text

from foltr.core.errors import DataError, SettingsError
from foltr.storage.bodies import is_body_of
from foltr.storage.body_tables import update_bodies
from foltr.storage.cipher import associated_data, decrypt, encrypt
from foltr.storage.erasure.erasures import unreadable_clients
from foltr.storage.errors import WriterFencedError
from foltr.storage.federations import claim_federation
from foltr.storage.keys import KeyStore
from foltr.storage.queries import list_contributions
from foltr.storage.records import Batch
from foltr.storage.tables import updates

KEY = bytes(range(32))


@given(body=st.binary(max_size=50), position=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_a_changed_bit_does_not_open(body: bytes, position: int, bit: int) -> None:
    """Neither do another key, another row, or a part of it; and nothing is sealed twice the same."""
    sealed = bytearray(encrypt(KEY, body, b"row"))
    assert decrypt(KEY, bytes(sealed), b"row") == body
    assert encrypt(KEY, body, b"row") != bytes(sealed)
    for key, stored, row in ((bytes(32), sealed, b"row"), (KEY, sealed, b"row 2"), (KEY, sealed[:-1], b"row")):
        with pytest.raises(DataError, match="cannot be opened"):
            decrypt(key, bytes(stored), row)
    sealed[position % len(sealed)] ^= 1 << bit
    with pytest.raises(DataError, match="cannot be opened"):
        decrypt(KEY, bytes(sealed), b"row")
    with pytest.raises(DataError, match="cannot be opened"):
        decrypt(KEY, b"", b"row")


def test_what_an_older_foltr_sealed_opens() -> None:
    """Nonce, text, tag; bound to federation, round, client and update, each on a line: backups outlive programs."""
    sealed = bytes(12) + bytes.fromhex("0fbeb6daa9469155bc28dbe9d192c6f150fa834b")
    assert associated_data("web", 3, "device-7", "u1") == b"foltr update 1\nweb\n3\ndevice-7\nu1"
    assert decrypt(KEY, sealed, associated_data("web", 3, "device-7", "u1")) == bytes([1, 2, 3, 4])


async def test_updates_are_stored_sealed_and_read_as_sent(sealed) -> None:
    """The database has no body, and its length only as the count; in doubt it is offered again."""
    bodies = {"a": b"the update of a", "b": b"b's, which is longer"}
    await sealed.join(*bodies)
    await sealed.open(1)
    batch = Batch(updates=[sealed.update(name, body=body) for name, body in bodies.items()])
    for _ in range(2):
        await sealed.commit(batch)
    both = select(updates.c.n_bytes, update_bodies.c.cipher, update_bodies.c.body)
    rows = await sealed.read(both.join_from(updates, update_bodies, is_body_of()).order_by(updates.c.client))
    assert [(n_bytes, cipher, len(body)) for n_bytes, cipher, body in rows] == [
        (15, "aes-256-gcm", 43), (20, "aes-256-gcm", 48),
    ]  # fmt: skip
    assert not any(body in row[2] for row in rows for body in bodies.values())
    assert await sealed.sent(1) == bodies
    assert [row.body for row in await list_contributions(sealed.db, "web")] == ["sealed", "sealed"]


async def test_plain_rows_of_before_are_read_beside_sealed_ones(stored, keys: KeyStore) -> None:
    """A database gets its keys in the middle of a round."""
    await stored.join("a", "b")
    await stored.open(1)
    await stored.send("a", body=b"plain")
    stored.db.keys = keys
    await stored.send("b", body=b"sealed")
    assert await stored.sent(1) == {"a": b"plain", "b": b"sealed"}
    assert [row.body for row in await list_contributions(stored.db, "web")] == ["plain", "sealed"]


async def test_without_its_key_an_update_is_listed_and_not_aggregated(sealed, keys: KeyStore) -> None:
    """Nothing takes its place: its reader learns why it cannot be read."""
    await sealed.join("a")
    await sealed.open(1)
    await sealed.send("a")
    keys.destroy("web", "a")
    (line,) = await list_contributions(sealed.db, "web")
    assert (line.client_id, line.n_bytes, line.body) == ("a", 4, "unreadable")
    with pytest.raises(DataError, match=r"update a1 of round 1.*its data key is not in .*keys"):
        await sealed.sent(1)
    sealed.db.keys = None
    (line,) = await list_contributions(sealed.db, "web")
    assert line.body == "sealed"
    with pytest.raises(DataError, match="name their folder with --keys"):
        await sealed.sent(1)


MOVE = "UPDATE update_bodies SET (body, key_fingerprint) = (SELECT body, key_fingerprint FROM update_bodies "
MOVE += "WHERE client = 1 AND round = 1) WHERE "


@pytest.mark.parametrize(
    ("statement", "number"),
    [
        ("UPDATE updates SET update_id = 'other' WHERE client = 1 AND round = 1", 1),
        (MOVE + "client = 2 AND round = 1", 1),
        (MOVE + "client = 1 AND round = 2", 2),
    ],
    ids=["identity", "client", "round"],
)
async def test_an_update_moved_to_another_row_does_not_open(learned, statement: str, number: int) -> None:
    """A writer of the database cannot pass one client's update off as another's, or as a later one."""
    await learned.write(text(statement))
    with pytest.raises(DataError, match=r"cannot be opened|another data key"):
        await learned.sent(number)


async def test_no_key_is_made_in_the_place_of_one_that_is_lost(sealed, keys: KeyStore, tmp_path) -> None:
    """Nobody would notice that what was sealed with it is lost, too; for who has sealed nothing one is made."""
    await sealed.join("a", "b")
    await sealed.open(1)
    await sealed.send("a")
    moved = tmp_path / "lost"
    keys.folder.rename(moved)
    KeyStore(tmp_path / "other").ensure("web", ["a"])
    other = KeyStore(tmp_path / "other")
    assert other.find("web", "a") is not None
    for there, says in ((KeyStore(keys.folder), "its data key is missing"), (other, "its data key here is another")):
        sealed.db.keys = there
        # What is stored already is offered again, under a process that has not looked for its key yet.
        advice = "foltr erasure request.*restore the backup of the keys"
        async with sealed.refuses(SettingsError, rf"of a client are encrypted, but {says}.*{advice}"):
            await sealed.commit(Batch(updates=[sealed.update("a", "u2")]))
        with pytest.raises(DataError, match="data key"):
            await sealed.sent(1)
        assert await unreadable_clients(sealed.db, "web") == ["a"]
    await sealed.send("b")
    sealed.db.keys = KeyStore(moved)
    assert await unreadable_clients(sealed.db, "web") == ["b"]


async def test_a_folder_that_opens_none_of_the_newest_updates_is_another_ones(sealed, keys: KeyStore, tmp_path) -> None:
    """Where only some do not open their clients were erased: a backup was restored."""
    await sealed.require_keys()
    await sealed.join("a", "b")
    await sealed.open(1)
    await sealed.send("a", "b")
    keys.destroy("web", "a")
    await sealed.require_keys()
    sealed.db.keys = KeyStore(tmp_path / "other")
    with pytest.raises(SettingsError, match=r"keys of another folder.*the leader's data keys with --keys"):
        await sealed.require_keys()
    sealed.db.keys = None
    await sealed.require_keys()


async def test_a_folder_that_opens_older_updates_is_the_right_one(sealed, keys: KeyStore, monkeypatch) -> None:
    """Clients that were erased since a backup may have sent all of the newest."""
    monkeypatch.setattr("foltr.storage.cipher._LOOKED_AT", 1)
    await sealed.join("a", "b")
    await sealed.open(1)
    await sealed.send("a")
    await sealed.send("b")
    for erased in ("a", "b"):
        await sealed.require_keys()
        keys.destroy("web", erased)
    with pytest.raises(SettingsError, match="keys of another folder"):
        await sealed.require_keys()


async def test_who_was_fenced_makes_no_key(stored, tmp_path):
    """Another federator may have destroyed it since: a name that was forgotten would have one again."""
    stored.db.keys = KeyStore(tmp_path / "fenced-keys")
    await stored.join("a")
    await stored.open(1)
    await claim_federation(stored.db, "web", 0.0)
    with pytest.raises(WriterFencedError):
        await stored.send("a")
    assert not (tmp_path / "fenced-keys").exists()
