"""Encryption of stored updates: AES-256-GCM with the client's data key, bound to the row."""

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import ColumnElement, select
from sqlalchemy.ext.asyncio import AsyncConnection

from foltr.core.errors import DataError
from foltr.storage.bodies import is_body_of, part_of
from foltr.storage.body_tables import update_bodies
from foltr.storage.database import Database
from foltr.storage.errors import DataKeysError, MissingKeyError
from foltr.storage.keys import KeyStore, fingerprint
from foltr.storage.records import NewUpdate, UpdateRow
from foltr.storage.tables import clients, updates

PLAIN: Final = ""
AES_256_GCM: Final = "aes-256-gcm"
_NONCE_BYTES: Final = 12
_LOOKED_AT: Final = 20
# One key is good for 2^32 random nonces; a client with one update a second reaches that after 136 years.


def encrypt(key: bytes, body: bytes, associated: bytes) -> bytes:
    """Encrypt ``body`` and authenticate it together with ``associated``: nonce (12 bytes), text, tag (16 bytes)."""
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, body, associated)


def decrypt(key: bytes, encrypted: bytes, associated: bytes) -> bytes:
    """Reverse `encrypt`.

    Raises:
        DataError: the bytes, the key or ``associated`` are not those of `encrypt`.
    """
    try:
        return AESGCM(key).decrypt(encrypted[:_NONCE_BYTES], encrypted[_NONCE_BYTES:], associated)
    except (InvalidTag, ValueError) as error:
        raise DataError(
            f"a sealed update of {len(encrypted)} bytes cannot be opened: it was changed or moved, or its key is "
            "another one. Check that the folder of keys and the database belong together"
        ) from error


def associated_data(federation: str, number: int, client_id: str, update_id: str) -> bytes:
    """Return bytes that name an encrypted update's row: moved to another row, it does not decrypt."""
    return f"foltr update 1\n{federation}\n{number}\n{client_id}\n{update_id}".encode()


@dataclass(frozen=True, slots=True)
class StoredBody:
    """An update's body as it is stored: its cipher, and the fingerprint of its key."""

    body: bytes
    cipher: str = PLAIN
    key_fingerprint: bytes | None = None


async def encrypt_bodies(
    connection: AsyncConnection, keys: KeyStore | None, name: str, new: Sequence[NewUpdate]
) -> list[StoredBody]:
    """Encrypt a federation's updates for storage, within a transaction, in the order given.

    Raises:
        DataKeysError: a client has encrypted updates whose key is missing.
    """
    if keys is None:
        return [StoredBody(item.body) for item in new]
    if missing := keys.missing(name, {item.client_id for item in new}):
        sealed_with = await fingerprints(connection, name, clients.c.client_id.in_(missing))
        # Each client's first update waits for the disk. SQLite's thread, which has no event loop, may wait as well.
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            keys.ensure(name, missing, sealed_with)
        else:
            await asyncio.to_thread(keys.ensure, name, missing, sealed_with)
    return [_sealed(keys.key(name, item.client_id), name, item) for item in new]


def _sealed(key: bytes, name: str, item: NewUpdate) -> StoredBody:
    associated = associated_data(name, item.round, item.client_id, item.update_id)
    return StoredBody(encrypt(key, item.body, associated), AES_256_GCM, fingerprint(key))


async def fingerprints(connection: AsyncConnection, name: str, *whose: ColumnElement[bool]) -> dict[str, bytes]:
    """Find the fingerprint of the key of each client's encrypted updates; clients without any are left out."""
    sealed_with = (
        select(update_bodies.c.key_fingerprint)
        .where(is_body_of(), update_bodies.c.part == part_of(updates.c.federation, updates.c.round).correlate(updates))
        .scalar_subquery()
    )
    # Backwards through an index, since the oldest bodies are gone; one by one, since a join would sort all that a
    # client sent.
    sent = (
        select(sealed_with.label("sealed_with"))
        .where(updates.c.client == clients.c.id)
        .order_by(updates.c.covers_after.desc())
        .correlate(clients)
        .subquery()
    )
    newest = select(sent.c.sealed_with).where(sent.c.sealed_with.is_not(None)).limit(1).scalar_subquery()
    answer = await connection.execute(select(clients.c.client_id, newest).where(clients.c.federation == name, *whose))
    return {client_id: stored for client_id, stored in answer if stored is not None}


async def require_keys(db: Database, name: str) -> None:
    """Check that the folder of data keys belongs to a federation's updates.

    Raises:
        DataKeysError: it has none of their keys. Some may be missing: a backup has updates of clients erased since.
    """
    keys = db.keys
    if keys is None:
        return
    newest = (
        select(clients.c.client_id, update_bodies.c.key_fingerprint)
        .join_from(update_bodies, clients, clients.c.id == update_bodies.c.client)
        .where(update_bodies.c.federation == name, update_bodies.c.key_fingerprint.is_not(None))
        .order_by(update_bodies.c.round.desc())
        .limit(_LOOKED_AT)
    )
    async with db.reading() as connection:
        found = (await connection.execute(newest)).all()
        if not found or any(keys.has(name, row.client_id, row.key_fingerprint) for row in found):
            return
        # Clients that were erased since a backup may have sent all of these.
        of_all = await fingerprints(connection, name)
    if not any(keys.has(name, *each) for each in of_all.items()):
        raise DataKeysError(
            f"keys = {str(keys.folder)!r}: the updates of federation {name!r} are encrypted with keys of another "
            "folder. Name the folder of the leader's data keys with --keys. If they are lost, or all these clients "
            "were forgotten since a backup, docs/backup.md#the-data-keys says what to do"
        )


def decrypt_row(keys: KeyStore | None, stored: dict[str, Any]) -> UpdateRow:
    """Make a record of an update from stored columns by name, with its decrypted body.

    Also puts the decrypted body into ``stored``.

    Raises:
        DataError: the body was deleted with its round, its key is destroyed or missing, or it does not decrypt.
    """
    # Before the record exists: replacing one field of a record takes longer than decrypting it.
    stored["body"] = _opened(keys, stored)
    return UpdateRow(**stored)


def _opened(keys: KeyStore | None, stored: Mapping[str, Any]) -> bytes:
    body: bytes | None = stored["body"]
    if body is None:
        raise DataError(f"{_which(stored)} was deleted when its round was thinned; take a round whose updates are kept")
    if stored["cipher"] == PLAIN:
        return body
    if keys is None:
        raise DataError(f"{_which(stored)} is sealed, and no data keys are at hand: name their folder with --keys")
    federation, client_id = stored["federation"], stored["client_id"]
    key = keys.find(federation, client_id)
    if key is None:
        raise MissingKeyError(
            f"{_which(stored)} is sealed and its data key is not in {keys.folder}: the client was erased, or this "
            "folder is not that of this database's keys (--keys)"
        )
    if stored["key_fingerprint"] != fingerprint(key):
        key = keys.find_opening(federation, client_id, stored["key_fingerprint"])
    if key is None:
        raise DataError(
            f"{_which(stored)} is sealed with another data key than the one in {keys.folder}: name their folder "
            "(--keys)"
        )
    return decrypt(key, body, associated_data(federation, stored["round"], client_id, stored["update_id"]))


def _which(stored: Mapping[str, Any]) -> str:
    """Name an update without its client: erasure does not search stored texts, such as why an aggregation stopped."""
    return f"update {stored['update_id']} of round {stored['round']} in federation {stored['federation']!r}"
