"""A pseudonym is left of a client's name once the client is forgotten."""

import hmac

from foltr.core.errors import SettingsError

KEY_BYTES = 32
_PSEUDONYM_BYTES = 16


def pseudonym(key: bytes, client_id: str) -> str:
    """The first 128 bits of HMAC-SHA256(``key``, ``client_id``) as 32 hex digits.

    Keyed, because names are few and easily guessed: a bare hash of one is found by trying. Whoever holds the key can
    still tell whether a name they have was forgotten, which is what keeps a forgotten name from being used again.

    Args:
        key: 32 random bytes, one key for each federation.
        client_id: the client's name.

    Raises:
        SettingsError: the key has another length.
    """
    if len(key) != KEY_BYTES:
        raise SettingsError(f"pseudonym_key: {len(key)} bytes; it has {KEY_BYTES}")
    return hmac.digest(key, client_id.encode(), "sha256")[:_PSEUDONYM_BYTES].hex()
