"""Seals seeds of masks, each to the one helper that may have it; a policy's verify key and credentials likewise.

HPKE in its base mode (RFC 9180) with X25519, HKDF-SHA256 and AES-128-GCM, by the `cryptography` package. The purpose of
a seal goes into its ``info``, so it opens for nothing else: not in another ticket, or for another helper or policy.
"""

import hashlib
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from foltr.core.secure.coins import SEED_BYTES

_LABEL: Final = b"foltr seed 1\n"
_VERIFY_KEY_LABEL: Final = b"foltr verify key 1\n"
_SUITE: Final = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)


class SealingKey:
    """An X25519 private key, which opens what was sealed to its public one. Its text form never shows it."""

    def __init__(self, private: bytes) -> None:
        self._key = X25519PrivateKey.from_private_bytes(private)
        self.private = private
        self.public = self._key.public_key().public_bytes_raw()

    @classmethod
    def generate(cls) -> "SealingKey":
        return cls(X25519PrivateKey.generate().private_bytes_raw())

    def open(self, sealed: bytes, info: bytes) -> bytes | None:
        """Return the seed; None if it was sealed to another key or purpose, or is not a seed."""
        seed = self.unseal(sealed, info)
        return seed if seed is not None and len(seed) == SEED_BYTES else None

    def unseal(self, sealed: bytes, info: bytes) -> bytes | None:
        """Reverse `seal`; None if it was sealed to another key or purpose."""
        try:
            return _SUITE.decrypt(sealed, self._key, info)
        except (InvalidTag, ValueError):
            return None

    def __repr__(self) -> str:
        return f"SealingKey(public={self.public.hex()})"


def seal_seed(seed: bytes, public_key: bytes, info: bytes) -> bytes:
    """Return 80 bytes that only the owner of an X25519 key can open, and only for ``info``."""
    return seal(seed, public_key, info)


def seal(content: bytes, public_key: bytes, info: bytes) -> bytes:
    """Return bytes that only the owner of an X25519 key can open, and only for ``info``, 48 more than the content.

    Raises:
        ValueError: the key is one of the few that make no secret.
    """
    return _SUITE.encrypt(content, X25519PublicKey.from_public_bytes(public_key), info)


def can_be_sealed_to(public_key: bytes) -> bool:
    """Whether these 32 bytes are a usable X25519 key: a few points make no secret."""
    try:
        seal_seed(bytes(SEED_BYTES), public_key, b"")
    except ValueError:
        return False
    return True


def seal_info(ticket: bytes, helper: str) -> bytes:
    """Return a seal's purpose: 32 bytes that no other seal has.

    Args:
        ticket: 32 bytes that identify its ticket with all its fields.
        helper: the name of the helper that opens it.
    """
    return hashlib.sha256(_LABEL + ticket + helper.encode()).digest()


def verify_key_info(federation: str, version: int, name: str) -> bytes:
    """Return the purpose of a verify key's seal: 32 bytes that no other seal has.

    Args:
        version: of the policy.
        name: of the helper; ``@federator`` for the federator, which no helper is called.
    """
    names = f"{federation}\n{name}".encode()
    return hashlib.sha256(_VERIFY_KEY_LABEL + version.to_bytes(8, "big") + names).digest()
