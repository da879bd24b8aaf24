"""The codec: whatever a peer gets wrong raises MessageError and nothing else, and what that tells is harmless."""

import random
import string

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.wire_messages import JOIN, MESSAGES, UPDATE, WIRE, envelope, name_of

from foltr.core.errors import MessageError
from foltr.core.protocol.codec import decode, open_envelope
from foltr.core.protocol.fields import MAX_MESSAGE_BYTES
from foltr.core.protocol.membership import Join
from foltr.core.protocol.messages import MESSAGE_TYPES
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.updates import ModelUpdate


def envelope_with(**parts):
    """A proper envelope with other parts than it should have, or more."""
    return msgpack.packb({**msgpack.unpackb(envelope(JOIN)), **parts})


def update_of(kind, **fields):
    return envelope({**UPDATE, "body": {"kind": kind, **fields}}, kind="update")


WRONG_PARTS = {
    "version": [True, 1.0, "1", None],
    "sequence": [-1, 2**63, True, 1.0, "1", bytes(8), None],
    "signature": [bytes(63), bytes(65), b"\0", "\0" * 64, "", None, [0] * 64],
    "kind": ["leave", ["join"], b"join"],
}
PARTS = msgpack.unpackb(envelope(JOIN))
WRONG_JOINS = {
    "unknown field": {**JOIN, "admin": True},
    "missing field": {"federation": "mail", "client_id": "device-7"},
    "number for text": {**JOIN, "sdk_version": 1},
    "bytes for text": {**JOIN, "client_id": b"device-7"},
    "bytes as a key": {**JOIN, b"client_id": "device-8"},
    "ext type": {**JOIN, "sdk_version": msgpack.ExtType(5, b"x")},
    "timestamp": {**JOIN, "sdk_version": msgpack.Timestamp(1, 2)},
    "nesting msgpack allows": {**JOIN, "sdk_version": [[[[[[[[[[1]]]]]]]]]]},
    "not a map": list(JOIN),
    "trailing bytes": msgpack.packb(JOIN) + b"\xc0",
    "truncated": msgpack.packb(JOIN)[:-1],
    "client_id twice": b"\x84" + msgpack.packb(JOIN)[1:] + b"\xa9client_id\xa1x",
    "number as a key": b"\x81\x01\x01",
    "list as a key": b"\x81\x91\x01\x01",
    "not UTF-8": b"\x81\xaasdk_version\xa2\xff\xfe",
    "a surrogate": b"\x81\xaasdk_version\xa3\xed\xa0\x80",
    "ext type below zero": b"\x81\xa1a\xd4\xf0\x00",
    "broken timestamp": b"\x81\xa1a\xc7\x03\xff\x00\x00\x00",
    "deep nesting": b"\x81\xa1a" * 60_000 + b"\x01",
    "a huge length": b"\x81\xa1a\xdd\xff\xff\xff\xff",
}


MALFORMED = {
    "empty": b"",
    "truncated": envelope(JOIN)[:-1],
    "cut in the envelope": envelope(JOIN)[:7],
    "reserved byte": b"\xc1",
    "not a map but a list": msgpack.packb(["v", 1]),
    "trailing bytes": envelope(JOIN) + b"\x00",
    "two envelopes": envelope(JOIN) * 2,
    **{f"no {key}": msgpack.packb({part: PARTS[part] for part in PARTS if part != key}) for key in PARTS},
    **{f"{part} {wrong!r}": envelope(JOIN, **{part: wrong}) for part in WRONG_PARTS for wrong in WRONG_PARTS[part]},
    "keys as bytes": msgpack.packb({key.encode(): part for key, part in PARTS.items()}),
    "a sixth key": envelope_with(sig=b""),
    "version twice": b"\x86\xa1v\x01" + envelope(JOIN)[1:],
    "body twice": b"\x86" + envelope(JOIN)[1:] + b"\xa4body\xc4\x01\x80",
    **{f"body {wrong!r}": envelope_with(body=wrong) for wrong in (JOIN, "x", None)},
    **{f"a join with {name}": envelope(wrong) for name, wrong in WRONG_JOINS.items()},
    "a nested key twice": envelope(
        b"\x88" + msgpack.packb({**UPDATE, "n": 0})[1:-2] + b"\xa1n\x82\xa1a\x01\xa1a\x02", kind="update"
    ),
    "deep nesting": b"\x91" * 100_000 + b"\x01",
    **{
        f"a length of 2**32 - 1 of {kind}": bytes([kind]) + b"\xff\xff\xff\xff\x05" for kind in (0xDD, 0xDF, 0xDB, 0xC6)
    },
    "vector shorter than dim": update_of("dense", dim=3, values=bytes(8)),
    "vector as text": update_of("dense", dim=2, values="\0" * 8),
    "a part beyond dim": update_of("part", dim=3, start=2, values=bytes(8)),
    "a metric that is NaN": update_of("evolution", seed=1, plus=float("nan"), minus=0.5),
    "a seed with the values of a delta": update_of("evolution", seed=1, plus=0.5, minus=0.5, values=b""),
    "unknown body": update_of("sparse", dim=2, values=bytes(8)),
    "body field is a list": envelope({**UPDATE, "body": []}, kind="update"),
    "a count of 2**64 - 1": envelope({**UPDATE, "round": 2**64 - 1}, kind="update"),
}


OTHER_CODES = {
    **{f"version {n}": (envelope(JOIN, version=n), "unsupported_version") for n in (2, 0, -1, 2**64 - 1)},
    "version 2 in another form": (msgpack.packb({"v": 2, "header": [1], "x": None}), "unsupported_version"),
    "one byte too large": (bytes(MAX_MESSAGE_BYTES + 1), "too_large"),
    "a valid message too large": (envelope({**JOIN, "sdk_version": "x" * MAX_MESSAGE_BYTES}), "too_large"),
}


def test_bad_bytes_are_refused_with_a_code():
    """And a reason short enough for a receipt; a NUL in a text would fail a commit on PostgreSQL, so it is none."""
    malformed = {name: (payload, "malformed") for name, payload in MALFORMED.items()}
    for name, (payload, code) in (malformed | OTHER_CODES).items():
        error = refusal(payload, ModelUpdate if b"update" in payload[:30] else Join)
        assert error is not None, name
        assert error.code == code, name
        assert error.detail, name
    with pytest.raises(MessageError) as caught:
        decode(bytes(MAX_MESSAGE_BYTES), Join)
    assert caught.value.code == "malformed"
    assert refusal(envelope({**JOIN, "sdk_version": "1\x00"}), Join).code == "malformed"


def test_no_kind_has_a_line_break():
    """A signature covers topic, kind and body, divided by line breaks: with one in a kind, two messages sign alike."""
    assert open_envelope(envelope(JOIN, kind="of_no_present_message")).kind == "of_no_present_message"
    for kind in ("join\n", "\njoin", "jo\nin", "", "join ", "Join", "x" * 41):
        with pytest.raises(MessageError) as caught:
            open_envelope(envelope(JOIN, kind=kind))
        assert caught.value.code == "malformed", kind


def refusal(payload, expected):
    """The MessageError of ``payload``, or None if it is a message; anything else fails the test."""
    try:
        decode(payload, expected)
    except MessageError as error:
        if error.code not in set(ReceiptCode) or len(error.detail) > 300:
            pytest.fail(f"no receipt could carry {error.code!r}, {error.detail!r}")
        return error
    return None


@settings(derandomize=True)
@given(st.binary(max_size=200), st.sampled_from(list(MESSAGE_TYPES.values())))
def test_random_bytes_raise_nothing_but_message_error(payload, expected):
    """No byte string gets past the codec in another way, as an envelope or as a body."""
    assert refusal(payload, expected) is not None
    refusal(envelope(payload, kind=expected.kind_name), expected)


@settings(derandomize=True)
@given(st.sampled_from([message for message, _ in MESSAGES]), st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_mutated_messages_raise_nothing_but_message_error(message, seed, n_mutations):
    """Flipping, inserting, deleting and repeating bytes of a valid message gives a message or a MessageError."""
    rng = random.Random(seed)  # noqa: S311 (repeatable, no secret)
    payload = bytearray(WIRE[name_of(message)])
    for _ in range(n_mutations):
        at = rng.randrange(len(payload))
        match rng.randrange(4):
            case 0:
                payload[at] = rng.randrange(256)
            case 1:
                payload.insert(at, rng.randrange(256))
            case 2:
                del payload[at : at + rng.randint(1, 4)]
            case _:
                payload[at:at] = payload[at : at + rng.randint(1, 16)]
        payload = payload or bytearray(b"\x00")
    refusal(bytes(payload), type(message))


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.binary(), inner, max_size=4),
    max_leaves=8,
)


@settings(derandomize=True)
@given(st.sampled_from([message for message, _ in MESSAGES]), st.data())
def test_wrong_values_raise_nothing_but_message_error(message, data):
    """Any msgpack value in any field, the envelope's included, gives a message or a MessageError."""
    fields = message.model_dump()
    fields[data.draw(st.sampled_from(sorted(fields)) | st.text())] = data.draw(anything)
    refusal(envelope(fields, kind=message.kind_name), type(message))
    parts = msgpack.unpackb(envelope(fields, kind=message.kind_name))
    parts[data.draw(st.sampled_from(sorted(parts)))] = data.draw(anything)
    refusal(msgpack.packb(parts), type(message))


def test_the_reason_does_not_repeat_a_value():
    """It may be private or hostile; a reason is printable, and repeats forty characters of a name at most."""
    for message in [message for message, _ in MESSAGES]:
        fields = message.model_dump()
        for field in fields:
            for secret in ("XSECRETX", ["XSECRETX"], {"kind": "XSECRETX"}, b"XSECRETX", 770077007700770077, -0.770077):
                error = refusal(envelope({**fields, field: secret}, kind=message.kind_name), type(message))
                if error is not None:
                    assert "SECRET" not in str(error), message
                    assert "770077" not in str(error), message
        for part in ("sequence", "signature", "body"):
            for secret in ("XSECRETX", b"XSECRETX", -770077):
                parts = {**msgpack.unpackb(envelope(fields, kind=message.kind_name)), part: secret}
                error = refusal(msgpack.packb(parts), type(message))
                assert "SECRET" not in str(error), message
                assert "770077" not in str(error), message
    for name in ["a\x00b", "a\nb", "\x1b[31m"]:
        for payload in (
            envelope({**JOIN, name: 1}),
            envelope(JOIN, kind=name),
            envelope({**UPDATE, "body": {"kind": "dense", "dim": 2, "values": bytes(8), name: 1}}, kind="update"),
        ):
            error = refusal(payload, ModelUpdate if b"update" in payload[:30] else Join)
            assert error.detail.isprintable(), name
    long = string.ascii_letters * 100
    for payload in (envelope({**JOIN, long: 1}), envelope(JOIN, kind=long)):
        error = refusal(payload, Join)
        assert len(error.detail) < 120
        assert long[:41] not in error.detail
