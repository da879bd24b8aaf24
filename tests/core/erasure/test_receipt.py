"""Receipts: what was signed is read, for years, and nothing else is."""

import base64
import json
import string
import sys
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.erasure_receipts import KEY, NOTHING_TAUGHT, RECEIPT, base64url, refused, signed

from foltr.core.erasure.receipt import MAX_RECEIPT_BYTES, ErasureReceipt, sign_receipt, utc_text, verify_receipt
from foltr.core.errors import DataError, FoltrError, SettingsError
from foltr.core.protocol.signing import SigningKey

OTHER_KEY = SigningKey(bytes(32))
FIELDS = RECEIPT.model_dump()
TEXT = sign_receipt(RECEIPT, KEY)
# Issued by version 1 with the key above. It must pass for ever: never replace it, add those of later versions below.
ISSUED = (
    "eyJhbGciOiJFZERTQSIsInR5cCI6ImZvbHRyLWVyYXN1cmUrandzIn0.eyJhdWRpdF9oYXNoIjoiY2RjZGNkY2RjZGNkY2RjZGNkY2RjZGNkY2"
    "RjZGNkY2RjZGNkY2RjZGNkY2RjZGNkY2RjZGNkY2RjZGNkY2RjZCIsImF1ZGl0X3NlcSI6MiwiY29tcGxldGVkX2F0IjoiMjAyNi0wMS0wMlQw"
    "MzoyNDowNi4wMDAwMDBaIiwiY292ZXJhZ2UiOjAuOSwiZXJhc2VkX2F0IjoiMjAyNi0wMS0wMlQwMzowNDowNi4wMDAwMDBaIiwiZXJhc2VkX2"
    "RpZ2VzdCI6ImFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWJhYmFiYWIiLCJmZWRlcmF0"
    "aW9uIjoibWFpbCIsImZpZ3VyZXMiOnsibmRjZ19hdF8xMCI6MC40MSwicmVsYXRpdmVfZGlzdGFuY2UiOjAuMDJ9LCJrZXlfZGVzdHJveWVkIj"
    "p0cnVlLCJtb2RlbF9hZnRlciI6NDQsIm1vZGVsX2JlZm9yZSI6NDEsIm1vZGVsc193aXRoZHJhd24iOjQxLCJuX2V2ZW50cyI6Nywibl9yb3Vu"
    "ZHMiOjM5LCJuX3VwZGF0ZXMiOjQwLCJwc2V1ZG9ueW0iOiIwMTIzNDU2Nzg5YWJjZGVmMDEyMzQ1Njc4OWFiY2RlZiIsInJlcXVlc3RlZF9hdC"
    "I6IjIwMjYtMDEtMDJUMDM6MDQ6MDUuNjc4OTAwWiIsInJlcXVlc3RlZF9ieSI6ImRldmljZSIsInJvdW5kc19yZXBsYXllZCI6NCwic3RyYXRl"
    "Z3kiOiJmZWRfZXJhc2VyIiwidmVyc2lvbiI6MX0.HmwV0O5otAqMmuF7mAob2UhkC26_fjG9wp5xLfib203ni3ho2AT7KnhxuuK1v4JxWdZOWB"
    "N_4U2N0b6rfhCMBg"
)


def test_a_receipt_is_a_jws_of_the_standard_and_read_for_years(monkeypatch):
    """Header and JSON as RFC 7515 has them; text, key and fields as each version had them; moments in UTC."""
    header, payload, signature = TEXT.split(".")
    assert json.loads(base64.urlsafe_b64decode(header + "==")) == {"alg": "EdDSA", "typ": "foltr-erasure+jws"}
    assert json.loads(base64.urlsafe_b64decode(payload + "==")) == FIELDS
    assert base64.urlsafe_b64decode(signature + "==") == KEY.sign(f"{header}.{payload}".encode())
    assert verify_receipt(signed(FIELDS), KEY.public) == RECEIPT
    assert verify_receipt(ISSUED, KEY.public) == RECEIPT
    assert sign_receipt(RECEIPT, KEY) == ISSUED
    receipt = RECEIPT.model_copy(update=NOTHING_TAUGHT)
    assert verify_receipt(sign_receipt(receipt, KEY), KEY.public) == receipt
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=-2)))
    assert utc_text(at) == "2026-01-02T05:04:05.000000Z"
    with pytest.raises(ValueError, match="time zone"):
        utc_text(datetime(2026, 1, 2))  # noqa: DTZ001 (that is the test)
    monkeypatch.setitem(sys.modules, "jwt", None)
    for attempt in (lambda: verify_receipt(TEXT, KEY.public), lambda: sign_receipt(RECEIPT, KEY)):
        with pytest.raises(FoltrError, match=r"pip install .*\[federator\]'"):
            attempt()


COUNTS = st.integers(0, 2**31 - 1)
MOMENTS = st.datetimes(timezones=st.just(UTC)).map(utc_text)
DIGESTS = st.binary(min_size=32, max_size=32).map(bytes.hex)
COUNTED = ("n_rounds", "n_updates", "n_events", "rounds_replayed", "model_before", "model_after", "models_withdrawn")
NAMES = st.text(string.ascii_lowercase, min_size=1, max_size=64)
RECEIPTS = st.builds(
    ErasureReceipt,
    federation=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True),
    pseudonym=st.binary(min_size=16, max_size=16).map(bytes.hex),
    requested_by=st.sampled_from(["device", "operator"]),
    key_destroyed=st.booleans(),
    strategy=st.sampled_from(["fed_eraser", "rollback", "relearn"]),
    coverage=st.none() | st.floats(0, 1),
    figures=st.dictionaries(NAMES, st.floats(allow_nan=False, allow_infinity=False), max_size=64),
    audit_seq=st.integers(1, 2**63 - 1),
    **dict.fromkeys(COUNTED, COUNTS),
    **dict.fromkeys(("requested_at", "erased_at", "completed_at"), MOMENTS),
    **dict.fromkeys(("erased_digest", "audit_hash"), DIGESTS),
)


@settings(derandomize=True)
@given(RECEIPTS, st.binary(min_size=32, max_size=32).map(SigningKey))
def test_any_receipt_survives_its_text(receipt, key):
    """Every bit of every field; the text is far from the limit, and the same each time."""
    text = sign_receipt(receipt, key)
    assert verify_receipt(text, key.public) == receipt
    assert text == sign_receipt(receipt, key)
    assert len(text) < MAX_RECEIPT_BYTES / 4


@settings(derandomize=True)
@given(st.integers(0, len(TEXT) - 1), st.integers(1, 255))
def test_no_byte_can_be_another(place, mask):
    """Any byte of the text, flipped in any way: never another receipt, never the same one in another spelling."""
    changed = bytearray(TEXT.encode())
    changed[place] ^= mask
    refused(changed.decode("latin-1"))


@settings(derandomize=True)
@given(st.data())
def test_no_letter_can_be_taken_out_or_put_in(data):
    start = data.draw(st.integers(0, len(TEXT)))
    end = data.draw(st.integers(start, len(TEXT)))
    put_in = data.draw(st.text(string.ascii_letters + string.digits + "-_.=+/ \n\0", max_size=4))
    changed = TEXT[:start] + put_in + TEXT[end:]
    if changed != TEXT:
        refused(changed)


def test_trailing_data_is_refused():
    """Nor a last letter that differs in bits that do not count: the same bytes in another text are refused."""
    for more in ["=", "==", "\n", " ", "A", "AA", ".", ".AA", "\0", "é", "٣", "\ud800"]:
        for part in [0, 1, 2]:
            parts = TEXT.split(".")
            parts[part] += more
            refused(".".join(parts))
    letters = string.ascii_uppercase + string.ascii_lowercase + string.digits + "-_"
    n_same = 0
    for part in range(3):
        for letter in letters:
            parts = TEXT.split(".")
            whole = base64.urlsafe_b64decode(parts[part] + "==")
            parts[part] = parts[part][:-1] + letter
            if (changed := ".".join(parts)) != TEXT:
                same = base64.urlsafe_b64decode(parts[part] + "==") == whole
                assert ("not base64url text" in refused(changed)) >= same
                n_same += same
    assert n_same >= 15


def test_a_signature_has_one_form():
    """Not with the group's order added (RFC 8032, section 5.1.7), nor of another field or key: each field is tried."""
    header, payload, signature = TEXT.split(".")
    whole = base64.urlsafe_b64decode(signature + "==")
    order = 2**252 + 27742317777372353535851937790883648493
    second = int.from_bytes(whole[32:], "little") + order
    assert second < 2**256
    assert "not this key's" in refused(f"{header}.{payload}.{base64url(whole[:32] + second.to_bytes(32, 'little'))}")
    for field in sorted(FIELDS):
        other = {**FIELDS, field: None}
        header, _, signature = TEXT.split(".")
        assert "not this key's" in refused(f"{header}.{base64url(json.dumps(other).encode())}.{signature}"), field
    assert "federator_key in the credentials" in refused(TEXT, OTHER_KEY.public)
    assert "federator_key in the credentials" in refused(sign_receipt(RECEIPT, OTHER_KEY))


@settings(derandomize=True)
@given(st.binary(max_size=40))
def test_no_bytes_are_a_key_by_accident(public_key):
    """Of another length they are wrong usage, else another's key; points that are not on the curve as well."""
    with pytest.raises(DataError if len(public_key) == 32 else SettingsError):
        verify_receipt(TEXT, public_key)


def test_what_is_too_large_is_not_read():
    """64 kB; a signed text of the greatest length is refused for what it is."""
    for text in ["A" * 10_000_000, TEXT + "A" * MAX_RECEIPT_BYTES, "." * 100_000]:
        assert f"more than {MAX_RECEIPT_BYTES} characters" in refused(text), text
    text = signed('{"version": 3}' + " " * 48_000)
    text = signed('{"version": 3}' + " " * (48_000 + (MAX_RECEIPT_BYTES - len(text)) * 3 // 4))
    assert MAX_RECEIPT_BYTES - 4 <= len(text) <= MAX_RECEIPT_BYTES
    assert "upgrade foltr" in refused(text)
