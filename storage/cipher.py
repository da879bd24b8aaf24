"""Updates at rest: AES-256-GCM with the client's data key, bound to the row they are stored in."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from foltr.errors import DataError
from storage.keys import KeyStore
from storage.records import NewUpdate, UpdateRow

PLAIN: Final = ""
AES_256_GCM: Final = "aes-256-gcm"
_NONCE_BYTES: Final = 12
# A client at one update a second reaches the 2^32 random nonces that one key is good for after 136 years.


def encrypt(key: bytes, body: bytes, associated: bytes) -> bytes:
    """Encrypt ``body`` and authenticate it together with ``associated``: nonce (12 bytes), text, tag (16 bytes)."""
    nonce = os.urandom(_NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, body, associated)


def decrypt(key: bytes, encrypted: bytes, associated: bytes) -> bytes:
    """Give back what `encrypt` was given.

    Raises:
        DataError: the bytes, the key or ``associated`` are not those of `encrypt`.
    """
    try:
        return AESGCM(key).decrypt(encrypted[:_NONCE_BYTES], encrypted[_NONCE_BYTES:], associated)
    except (InvalidTag, ValueError) as error:
        raise DataError(
            f"a sealed update of {len(encrypted)} bytes cannot be opened: it was changed or moved, or its key is "
            "another one. Look whether the folder of keys and the database belong together"
        ) from error


def associated_data(federation: str, number: int, client_id: str, update_id: str) -> bytes:
    """Name the row that an encrypted update belongs to: moved to another, it does not open."""
    return f"foltr update 1\n{federation}\n{number}\n{client_id}\n{update_id}".encode()


async def encrypt_bodies(keys: KeyStore | None, name: str, new: Sequence[NewUpdate]) -> tuple[str, list[bytes]]:
    """Say how a federation's updates are stored: the cipher, and each body under it, in the order given."""
    if keys is None:
        return PLAIN, [item.body for item in new]
    if missing := keys.missing(name, {item.client_id for item in new}):
        # Each client's first update waits for the disk; the event loop does not.
        await asyncio.to_thread(keys.ensure, name, missing)
    return AES_256_GCM, [
        encrypt(
            keys.key(name, item.client_id),
            item.body,
            associated_data(name, item.round, item.client_id, item.update_id),
        )
        for item in new
    ]


def decrypt_row(keys: KeyStore | None, row: UpdateRow) -> UpdateRow:
    """Give the row with its body as it was sent.

    Raises:
        DataError: the body was deleted with its round, its key is destroyed, no keys are at hand, or it does not open.
    """
    # Not by its client's name: what stopped an aggregation is stored in words, and in these no name is looked for.
    of = f"update {row.update_id} of round {row.round} in federation {row.federation!r}"
    body: bytes | None = row.body
    if body is None:
        raise DataError(f"{of} was deleted when its round was thinned; take a round whose updates are kept")
    if row.cipher == PLAIN:
        return row
    if keys is None:
        raise DataError(f"{of} is sealed, and no data keys are at hand: name their folder with --keys")
    key = keys.find(row.federation, row.client_id)
    if key is None:
        raise DataError(
            f"{of} is sealed and its data key is not in {keys.folder}: the client was erased, or this folder is not "
            "that of this database's keys (--keys)"
        )
    associated = associated_data(row.federation, row.round, row.client_id, row.update_id)
    return replace(row, body=decrypt(key, body, associated))
