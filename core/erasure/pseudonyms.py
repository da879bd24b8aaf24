"""The pseudonym that is kept of a client's name once the client is forgotten."""

import hmac

from foltr.core.errors import SettingsError

KEY_BYTES = 32
_PSEUDONYM_BYTES = 16


def pseudonym(key: bytes, client_id: str) -> str:
    """Return the first 128 bits of HMAC-SHA256(``key``, ``client_id``) as 32 hex digits.

    Keyed, because names are few and easily guessed: a bare hash could be found by trying names. The key's holder can
    still test whether a given name was forgotten, which prevents reuse of a forgotten name.

    Args:
        key: 32 random bytes, one key for each federation.
        client_id: the client's name.

    Raises:
        SettingsError: the key has another length.
    """
    if len(key) != KEY_BYTES:
        raise SettingsError(f"pseudonym_key: {len(key)} bytes; it has {KEY_BYTES}")
    return hmac.digest(key, client_id.encode(), "sha256")[:_PSEUDONYM_BYTES].hex()
