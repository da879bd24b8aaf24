"""The digest of what was erased: a chain, so that it can be gone on with after each part, and after a crash.

Version 1 was SHA-256 over all bytes one after the other, in order of rounds. Who was erased under it keeps that digest.
A receipt's version is that of its digest.
"""

import hashlib
from collections.abc import Iterable
from typing import Final, Literal

DigestVersion = Literal[1, 2]
DIGEST_VERSION: Final = 2
"""The version of what `digest_with` makes."""
NOTHING_DIGESTED: Final = hashlib.sha256().hexdigest()
"""The digest before the first update, in either version."""


def digest_with(digest: str, bodies: Iterable[bytes]) -> str:
    """Go on with a digest, in hex: with each update's bytes it becomes SHA-256 of itself and of their SHA-256."""
    so_far = bytes.fromhex(digest)
    for body in bodies:
        so_far = hashlib.sha256(so_far + hashlib.sha256(body).digest()).digest()
    return so_far.hex()
