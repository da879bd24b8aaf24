"""The tombstone that is kept of a name after an operator had its client forgotten."""

import hmac

SALT_BYTES = 32
_TOMBSTONE_BYTES = 16


def tombstone_of(salt: bytes, client_id: str) -> bytes:
    """Return the first 128 bits of HMAC-SHA256 of a name, under the salt of the operator's folder.

    The salt is in the roster, so a reader of the roster can test whether a guessed name was forgotten; but no table
    made in advance helps to test all names at once.
    """
    return hmac.digest(salt, client_id.encode(), "sha256")[:_TOMBSTONE_BYTES]
