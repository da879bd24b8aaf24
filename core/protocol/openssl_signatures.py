"""OpenSSL's verdict on the few Ed25519 signatures that libsodium refuses.

A module of its own, since most processes never import it: OpenSSL is the largest library a device loads.
"""

from functools import lru_cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey


def is_signature(public_key: bytes, data: bytes, signature: bytes) -> bool:
    """Whether OpenSSL takes ``signature`` as this key's for ``data``."""
    key = _loaded(public_key)
    if key is None:
        return False
    try:
        key.verify(signature, data)
    except InvalidSignature:
        return False
    return True


@lru_cache(maxsize=65_536)
def _loaded(public_key: bytes) -> Ed25519PublicKey | None:
    try:
        return Ed25519PublicKey.from_public_bytes(public_key)
    except ValueError:
        return None
