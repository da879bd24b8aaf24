"""The digest of erased data: a chain, so that it can be continued after each part, and after a crash."""

import hashlib
from collections.abc import Iterable
from typing import Final

NOTHING_DIGESTED: Final = hashlib.sha256().hexdigest()
"""The digest before the first update."""


def digest_with(digest: str, bodies: Iterable[bytes]) -> str:
    """Extend a digest, in hex: with each update's bytes it becomes SHA-256 of itself and their SHA-256."""
    so_far = bytes.fromhex(digest)
    for body in bodies:
        so_far = hashlib.sha256(so_far + hashlib.sha256(body).digest()).digest()
    return so_far.hex()
