"""Pseudonyms: the construction that is written down, one for each name and key, and nothing without the key."""

import hashlib
import hmac

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foltr.core.erasure.pseudonyms import KEY_BYTES, pseudonym
from foltr.core.errors import SettingsError

KEY = bytes(range(32))


def test_it_is_the_first_half_of_an_hmac():
    """HMAC as RFC 2104 defines it, written out; and the value for one key and name, which must never change."""
    inner = hashlib.sha256(bytes(b ^ 0x36 for b in KEY.ljust(64, b"\0")) + b"device-7").digest()
    outer = hashlib.sha256(bytes(b ^ 0x5C for b in KEY.ljust(64, b"\0")) + inner).hexdigest()
    assert pseudonym(KEY, "device-7") == outer[:32]
    assert pseudonym(KEY, "device-7") == hmac.new(KEY, b"device-7", "sha256").hexdigest()[:32]
    assert pseudonym(KEY, "device-7") == "2b3eac903516608c5161c8e404ca31af"
    for key in [b"", KEY[:-1], KEY + b"\0"]:
        with pytest.raises(SettingsError, match=f"{len(key)} bytes; it has {KEY_BYTES}"):
            pseudonym(key, "device-7")


@settings(derandomize=True)
@given(st.sets(st.text(max_size=64), min_size=2, max_size=8), st.binary(min_size=32, max_size=32))
def test_names_and_keys_have_pseudonyms_of_their_own(names, key):
    found = {pseudonym(key, name) for name in names}
    assert len(found) == len(names)
    assert all(len(text) == 32 and set(text) <= set("0123456789abcdef") for text in found)
    other = bytes([key[0] ^ 1, *key[1:]])
    assert not found & {pseudonym(other, name) for name in names}
