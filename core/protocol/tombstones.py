"""A tombstone is left of a name where an operator had its client forgotten."""

import hmac

SALT_BYTES = 32
_TOMBSTONE_BYTES = 16


def tombstone_of(salt: bytes, client_id: str) -> bytes:
    """The first 128 bits of HMAC-SHA256 of a name, under the salt of the operator's folder.

    The salt is in the roster, so whoever reads that can tell whether a name that they guess was forgotten; it keeps
    them from telling so of all names at once, by a table.
    """
    return hmac.digest(salt, client_id.encode(), "sha256")[:_TOMBSTONE_BYTES]
