"""A receipt as a federator would issue it, and texts in which any part of it can be another."""

import base64
import json

import pytest

from foltr.core.erasure.receipt import ErasureReceipt, verify_receipt
from foltr.core.errors import DataError
from foltr.core.protocol.signing import SigningKey

KEY = SigningKey(bytes(range(32)))
# For a receipt with another place in an audit log: RECEIPT.model_copy(update=...).
RECEIPT = ErasureReceipt(
    federation="mail",
    pseudonym="0123456789abcdef0123456789abcdef",
    requested_at="2026-01-02T03:04:05.678900Z",
    erased_at="2026-01-02T03:04:06.000000Z",
    completed_at="2026-01-02T03:24:06.000000Z",
    requested_by="device",
    n_rounds=39,
    n_updates=40,
    n_events=7,
    erased_digest="ab" * 32,
    key_destroyed=True,
    strategy="fed_eraser",
    rounds_replayed=4,
    model_before=41,
    model_after=44,
    models_withdrawn=41,
    coverage=0.9,
    figures={"ndcg_at_10": 0.41, "relative_distance": 0.02},
    audit_seq=2,
    audit_hash="cd" * 32,
)
# Of a client that was forgotten before it had contributed to anything.
NOTHING_TAUGHT = {
    "strategy": "none",
    "rounds_replayed": 0,
    "model_before": None,
    "model_after": None,
    "models_withdrawn": 0,
    "coverage": None,
    "figures": {},
}
HEADER = '{"alg":"EdDSA","typ":"foltr-erasure+jws"}'


def base64url(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def signed(payload: str | dict, header: str = HEADER, key: SigningKey = KEY) -> str:
    """A compact JWS of any header and payload with a signature that is right, made without a library."""
    text = payload if isinstance(payload, str) else json.dumps(payload)
    signing_input = f"{base64url(header.encode())}.{base64url(text.encode('utf-8', 'surrogatepass'))}"
    return f"{signing_input}.{base64url(key.sign(signing_input.encode()))}"


def refused(text: str, key: bytes = KEY.public) -> str:
    with pytest.raises(DataError) as refusal:
        verify_receipt(text, key)
    assert str(refusal.value).startswith("receipt: ")
    return str(refusal.value)
