"""Receipts with a signature that is right, or looks so, and still none: other algorithms, headers, versions, fields."""

import base64
import hashlib
import hmac
import json

import pytest
from pydantic import ValidationError
from support.erasure_receipts import HEADER, KEY, NOTHING_TAUGHT, RECEIPT, base64url, refused, signed

from foltr.core.erasure.receipt import ErasureReceipt
from foltr.core.protocol.signing import SigningKey

OTHER_KEY = SigningKey(bytes(32))
FIELDS = RECEIPT.model_dump()


def mac(algorithm: str, secret: bytes) -> str:
    """A receipt "signed" with a secret that everybody has."""
    header = json.dumps({"alg": algorithm, "typ": "foltr-erasure+jws"}).encode()
    signing_input = f"{base64url(header)}.{base64url(json.dumps(FIELDS).encode())}"
    digest = hmac.digest(secret, signing_input.encode(), getattr(hashlib, f"sha{algorithm[2:]}"))
    return f"{signing_input}.{base64url(digest)}"


def test_the_public_key_is_no_shared_secret():
    """Algorithm confusion: an HMAC under the key that everybody knows; nor is any algorithm but EdDSA believed."""
    for algorithm in ["HS256", "HS384", "HS512"]:
        for secret in [KEY.public, base64.b64encode(KEY.public), b""]:
            assert f"signed with '{algorithm}'; only EdDSA" in refused(mac(algorithm, secret)), (algorithm, secret)
    for algorithm in ["none", "None", "NONE", "", "eddsa", "Ed25519", "ES256", None, 1, ["EdDSA"], {}]:
        for with_signature in [True, False]:
            text = signed(FIELDS, json.dumps({"alg": algorithm, "typ": "foltr-erasure+jws"}))
            if not with_signature:
                text = text[: text.rindex(".")] + "."
            refused(text)


def test_no_header_but_ours_is_read():
    """With a signature that is right: another type, more fields, a field twice, something behind it, no JSON."""
    for header in [
        "{}",
        '{"alg":"EdDSA"}',
        '{"alg":"EdDSA","typ":"JWT"}',
        '{"alg":"EdDSA","typ":["foltr-erasure+jws"]}',
        '{"alg":"EdDSA","typ":"foltr-erasure+jws","kid":"1"}',
        '{"alg":"EdDSA","typ":"foltr-erasure+jws","b64":false,"crit":["b64"]}',
        '{"alg":"none","alg":"EdDSA","typ":"foltr-erasure+jws"}',
        '{"alg":"EdDSA","alg":"EdDSA","typ":"foltr-erasure+jws"}',
        f"{HEADER}{{}}",
        f"[{HEADER}",
        '{"alg":NaN,"typ":"foltr-erasure+jws"}',
        "null",
        "[" * 30_000,
        "9" * 30_000,
    ]:
        refused(signed(FIELDS, header))


def test_another_version_says_what_to_do():
    """A newer one, signed with the right key, asks for an upgrade; what Python takes for 1 is none."""
    for version in [2, 3, 1_000_000, 10**30]:
        said = refused(signed({"version": version, "something": ["new"]}))
        assert f"its version {version} is newer than this foltr reads (1): upgrade foltr" in said, version
    for version in [0, -1, True, 1.0, "1", None, [1]]:
        assert "has no version" in refused(signed({**FIELDS, "version": version})), version
        assert "has no version" in refused(signed({key: value for key, value in FIELDS.items() if key != "version"}))
    assert "not this key's" in refused(signed({"version": 2}, key=OTHER_KEY))


PAYLOAD = json.dumps(FIELDS)


def test_json_with_two_readings_is_refused():
    """Duplicate keys at any depth, trailing data, numbers that are none: with a signature that is right."""
    for payload in [
        PAYLOAD + "{}",
        PAYLOAD + "\0",
        PAYLOAD[:-1],
        PAYLOAD.replace('"n_updates": 40', '"n_updates": 40, "n_updates": 40'),
        PAYLOAD.replace('"n_updates": 40', '"n_updates": 0, "n_\\u0075pdates": 39'),
        PAYLOAD.replace('"ndcg_at_10": 0.41', '"ndcg_at_10": 0.41, "ndcg_at_10": 0.5'),
        PAYLOAD.replace("0.41", "NaN"),
        PAYLOAD.replace("0.41", "-Infinity"),
        PAYLOAD.replace("0.41", "1e999"),
        PAYLOAD.replace("0.41", "9" * 5_000),
        PAYLOAD.replace("0.41", "[" * 20_000),
        f"[{PAYLOAD}]",
        "null",
        "",
        "\ufeff" + PAYLOAD,
        "\ud800",
    ]:
        refused(signed(payload))


WRONG = {
    "federation": ["", "a/b", 1, None],
    "pseudonym": ["device-7", "0" * 31, "A" * 32, "0" * 32 + "\n"],
    "requested_at": ["2026-01-02", "2026-13-02T03:04:05Z", "2026-01-02T03:04:05", "2026-01-02T03:04:05+02:00", 0],
    "erased_at": ["2026-01-02T25:04:05Z", "2026-01-02 03:04:05Z", None],
    "completed_at": ["", "٢026-01-02T03:04:05Z"],
    "requested_by": ["nobody", None],
    "n_rounds": [-1, 1.0, "1", True, None, 2**31],
    "n_updates": [-1, [1]],
    "n_events": [-1, {}],
    "erased_digest": ["ab" * 31, "AB" * 32, None],
    "key_destroyed": [1, "true", None],
    "strategy": ["forget", "", None],
    "rounds_replayed": [-1, 0.5],
    "model_before": [-1, "41", None],
    "model_after": [-1, "44", None],
    "models_withdrawn": [-1, [41]],
    "coverage": [-0.1, 1.1, "0.9", True],
    "figures": [None, {"": 1.0}, {"ndcg": "0.4"}, {"ndcg": None}, {"a" * 65: 1.0}, {f"f{i}": 1.0 for i in range(65)}],
    "audit_seq": [0, "1", 1.5],
    "audit_hash": ["cd" * 33, "", None],
}


def test_a_field_that_is_wrong_missing_or_too_many_is_named():
    """A signature does not make nonsense true; it says that the federator is to be told."""
    for field, value in [(field, value) for field, values in WRONG.items() for value in values]:
        said = refused(signed({**FIELDS, field: value}))
        assert field in said, (field, value)
        assert "tell the federation's operator" in said, (field, value)
    for field in FIELDS:
        if field != "version":
            assert field in refused(signed({key: value for key, value in FIELDS.items() if key != field}))
    assert "client_id" in refused(signed({**FIELDS, "client_id": "device-7"}))


def test_a_receipt_that_contradicts_itself_is_neither_made_nor_read():
    """No unlearning, and models all the same, or the other way round."""
    for fields in [
        {"strategy": "none"},
        {**NOTHING_TAUGHT, "strategy": "retrain"},
        {**NOTHING_TAUGHT, "rounds_replayed": 1},
        {**NOTHING_TAUGHT, "models_withdrawn": 1},
        {**NOTHING_TAUGHT, "coverage": 1.0},
        {**NOTHING_TAUGHT, "model_before": 41},
    ]:
        with pytest.raises(ValidationError):
            ErasureReceipt(**{**FIELDS, **fields})
        refused(signed({**FIELDS, **fields}))
