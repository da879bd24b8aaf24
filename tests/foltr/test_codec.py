"""The codec: every message round-trips, nothing a peer sends raises but MessageError, the wire does not move."""

import random
import string

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foltr.codec import decode, encode
from foltr.errors import MessageError
from foltr.messages import (
    MAX_MESSAGE_BYTES,
    MESSAGE_TYPES,
    NAME_PATTERN,
    DenseDelta,
    Join,
    Leave,
    LinearRankerSpec,
    MembershipReceipt,
    ModelAnnouncement,
    ModelUpdate,
    PdgdTraining,
    ReceiptCode,
    RoundAnnouncement,
    Status,
    UpdateReceipt,
    pack_vector,
)

UPDATE_ID = "0123456789abcdef" * 2

# The bytes of schema version 1. If one of these must change, SCHEMA_VERSION must too: devices in the field
# read what these tests hold, not what the code says today.
GOLDEN = [
    (
        Join(federation="mail", client_id="device-7", sdk_version="0.1.0"),
        (
            "83a17601a46b696e64a46a6f696ea4626f6479c43683aa66656465726174696f6ea46d61696ca9636c69656e745f6964a86465"
            "766963652d37ab73646b5f76657273696f6ea5302e312e30"
        ),
    ),
    (
        Leave(federation="mail", client_id="device-7"),
        (
            "83a17601a46b696e64a56c65617665a4626f6479c42482aa66656465726174696f6ea46d61696ca9636c69656e745f6964a864"
            "65766963652d37"
        ),
    ),
    (
        Status(federation="mail", client_id="device-7", online=True),
        (
            "83a17601a46b696e64a6737461747573a4626f6479c42c83aa66656465726174696f6ea46d61696ca9636c69656e745f6964a8"
            "6465766963652d37a66f6e6c696e65c3"
        ),
    ),
    (
        ModelAnnouncement(
            federation="mail", version=3, ranker=LinearRankerSpec(n_features=2), weights=pack_vector([1.0, -2.5])
        ),
        (
            "83a17601a46b696e64a56d6f64656ca4626f6479c44c84aa66656465726174696f6ea46d61696ca776657273696f6e03a67261"
            "6e6b657282a46b696e64a66c696e656172aa6e5f666561747572657302a777656967687473c4080000803f000020c0"
        ),
    ),
    (
        RoundAnnouncement(
            federation="mail",
            round=4,
            open=True,
            base_version=3,
            opened_at=1000.5,
            closes_at=1600.5,
            training=PdgdTraining(learning_rate=0.1, serp_length=10, min_interactions=5, max_interactions=8),
        ),
        (
            "83a17601a46b696e64a5726f756e64a4626f6479c4ae87aa66656465726174696f6ea46d61696ca5726f756e6404a46f70656e"
            "c3ac626173655f76657273696f6e03a96f70656e65645f6174cb408f440000000000a9636c6f7365735f6174cb409902000000"
            "0000a8747261696e696e6785a46b696e64a470646764ad6c6561726e696e675f72617465cb3fb999999999999aab736572705f"
            "6c656e6774680ab06d696e5f696e746572616374696f6e7305b06d61785f696e746572616374696f6e7308"
        ),
    ),
    (
        ModelUpdate(
            federation="mail",
            client_id="device-7",
            update_id=UPDATE_ID,
            round=4,
            base_version=3,
            n_interactions=5,
            body=DenseDelta(dim=2, values=pack_vector([0.5, -0.25])),
        ),
        (
            "83a17601a46b696e64a6757064617465a4626f6479c49c87aa66656465726174696f6ea46d61696ca9636c69656e745f6964a8"
            "6465766963652d37a97570646174655f6964d92030313233343536373839616263646566303132333435363738396162636465"
            "66a5726f756e6404ac626173655f76657273696f6e03ae6e5f696e746572616374696f6e7305a4626f647983a46b696e64a564"
            "656e7365a364696d02a676616c756573c4080000003f000080be"
        ),
    ),
    (
        UpdateReceipt(
            federation="mail",
            client_id="device-7",
            update_id=UPDATE_ID,
            code=ReceiptCode.BUSY,
            detail="full",
            retry_after_s=2.0,
        ),
        (
            "83a17601a46b696e64ae7570646174655f72656365697074a4626f6479c48d87aa66656465726174696f6ea46d61696ca9636c"
            "69656e745f6964a86465766963652d37a97570646174655f6964d9203031323334353637383961626364656630313233343536"
            "373839616263646566ae7061796c6f61645f646967657374c0a4636f6465a462757379a664657461696ca466756c6cad726574"
            "72795f61667465725f73cb4000000000000000"
        ),
    ),
    (
        MembershipReceipt(federation="mail", client_id="device-7", code=ReceiptCode.JOINED),
        (
            "83a17601a46b696e64b26d656d626572736869705f72656365697074a4626f6479c43884aa66656465726174696f6ea46d6169"
            "6ca9636c69656e745f6964a86465766963652d37a4636f6465a66a6f696e6564a664657461696ca0"
        ),
    ),
]
JOIN = {"federation": "mail", "client_id": "device-7", "sdk_version": "0.1.0"}
UPDATE = GOLDEN[5][0].model_dump()


def envelope(body, kind="join", version=1):
    """An envelope as a peer may build it: ``body`` packed, or as it stands if it is bytes."""
    packed = body if isinstance(body, bytes) else msgpack.packb(body)
    return msgpack.packb({"v": version, "kind": kind, "body": packed})


# --- round trips and the wire ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("message", "wire"), GOLDEN, ids=lambda value: getattr(value, "kind_name", ""))
def test_the_bytes_of_version_1_do_not_move(message, wire):
    """What is written today is what version 1 always wrote, and what version 1 wrote is still read."""
    assert encode(message).hex() == wire
    assert decode(bytes.fromhex(wire), type(message)) == message


def test_every_kind_of_message_has_its_golden_bytes():
    """A new message type comes with its captured bytes."""
    assert {type(message) for message, _ in GOLDEN} == set(MESSAGE_TYPES.values())


names = st.from_regex(NAME_PATTERN, fullmatch=True)
counts = st.integers(0, 2**31 - 1)
update_ids = st.text("0123456789abcdef", min_size=32, max_size=32)
# Text a peer may send: no surrogates (not UTF-8), no control characters, no separators of lines.
texts = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=64)
times = st.floats(0, 1e11)
deltas = st.binary(min_size=1, max_size=30).map(lambda raw: DenseDelta(dim=len(raw), values=raw * 4))
models = st.builds(
    lambda federation, version, raw: ModelAnnouncement(
        federation=federation, version=version, ranker=LinearRankerSpec(n_features=len(raw)), weights=raw * 4
    ),
    names,
    counts,
    st.binary(min_size=1, max_size=30),
)
trainings = st.builds(
    lambda rate, length, bounds: PdgdTraining(
        learning_rate=rate, serp_length=length, min_interactions=min(bounds), max_interactions=max(bounds)
    ),
    st.floats(0, 100, exclude_min=True),
    st.integers(1, 1000),
    st.tuples(st.integers(1, 100_000), st.integers(1, 100_000)),
)
codes = st.sampled_from(ReceiptCode)
messages = st.one_of(
    st.builds(Join, federation=names, client_id=names, sdk_version=texts),
    st.builds(Leave, federation=names, client_id=names),
    st.builds(Status, federation=names, client_id=names, online=st.booleans()),
    models,
    st.builds(
        RoundAnnouncement,
        federation=names,
        round=counts,
        open=st.booleans(),
        base_version=counts,
        opened_at=times,
        closes_at=times,
        training=trainings,
    ),
    st.builds(
        ModelUpdate,
        federation=names,
        client_id=names,
        update_id=update_ids,
        round=counts,
        base_version=counts,
        n_interactions=st.integers(1, 100_000),
        body=deltas,
    ),
    st.builds(
        UpdateReceipt,
        federation=names,
        client_id=names,
        update_id=st.none() | update_ids,
        code=codes,
        detail=texts,
        retry_after_s=st.none() | st.floats(0, 86_400),
    ),
    st.builds(MembershipReceipt, federation=names, client_id=names, code=codes, detail=texts),
)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(messages)
def test_every_message_round_trips(message):
    """What is decoded is what was encoded, field for field."""
    assert decode(encode(message), type(message)) == message


def test_the_largest_ranker_fits_a_message():
    """The bounds on vectors and on messages agree: 60,000 features can be announced and sent."""
    weights = bytes(4 * 60_000)
    model = ModelAnnouncement(
        federation="f" * 64, version=2**31 - 1, ranker=LinearRankerSpec(n_features=60_000), weights=weights
    )
    update = ModelUpdate(
        federation="f" * 64,
        client_id="c" * 64,
        update_id=UPDATE_ID,
        round=2**31 - 1,
        base_version=2**31 - 1,
        n_interactions=100_000,
        body=DenseDelta(dim=60_000, values=weights),
    )
    for message in (model, update):
        assert len(encode(message)) <= MAX_MESSAGE_BYTES
        assert decode(encode(message), type(message)) == message


# --- what peers get wrong -------------------------------------------------------------------------------------

MALFORMED = {
    "empty": b"",
    "truncated": envelope(JOIN)[:-1],
    "cut in the envelope": envelope(JOIN)[:7],
    "reserved byte": b"\xc1",
    "not a map but a list": msgpack.packb(["v", 1]),
    "not a map but nil": b"\xc0",
    "trailing bytes": envelope(JOIN) + b"\x00",
    "two envelopes": envelope(JOIN) * 2,
    "no version": msgpack.packb({"kind": "join", "body": msgpack.packb(JOIN)}),
    "version true": envelope(JOIN, version=True),
    "version 1.0": envelope(JOIN, version=1.0),
    "version text": envelope(JOIN, version="1"),
    "version nil": envelope(JOIN, version=None),
    "keys as bytes": msgpack.packb({b"v": 1, b"kind": b"join", b"body": b""}),
    "a fourth key": msgpack.packb({"v": 1, "kind": "join", "body": msgpack.packb(JOIN), "sig": b""}),
    "no kind": msgpack.packb({"v": 1, "body": msgpack.packb(JOIN)}),
    "no body": msgpack.packb({"v": 1, "kind": "join"}),
    "version twice": b"\x84\xa1v\x02\xa1v\x01\xa4kind\xa4join\xa4body\xc4\x01\x80",
    "body twice": b"\x84\xa1v\x01\xa4kind\xa4join\xa4body\xc4\x01\x80\xa4body\xc4\x01\x80",
    "wrong kind": envelope(JOIN, kind="leave"),
    "unknown kind": envelope(JOIN, kind="forget"),
    "kind is a list": envelope(JOIN, kind=["join"]),
    "kind is bytes": envelope(JOIN, kind=b"join"),
    "body is a map": msgpack.packb({"v": 1, "kind": "join", "body": JOIN}),
    "body is text": msgpack.packb({"v": 1, "kind": "join", "body": "x"}),
    "body is nil": msgpack.packb({"v": 1, "kind": "join", "body": None}),
    "body is empty": envelope(b""),
    "body is a list": envelope(list(JOIN)),
    "body truncated": envelope(msgpack.packb(JOIN)[:-1]),
    "body with trailing bytes": envelope(msgpack.packb(JOIN) + b"\xc0"),
    "client_id twice": envelope(b"\x84" + msgpack.packb(JOIN)[1:] + b"\xa9client_id\xa1x"),
    "a nested key twice": envelope(
        b"\x88" + msgpack.packb({**UPDATE, "n": 0})[1:-2] + b"\xa1n\x82\xa1a\x01\xa1a\x02", kind="update"
    ),
    "unknown field": envelope({**JOIN, "admin": True}),
    "missing field": envelope({"federation": "mail", "client_id": "device-7"}),
    "number for text": envelope({**JOIN, "sdk_version": 1}),
    "bytes for text": envelope({**JOIN, "client_id": b"device-7"}),
    "nil for text": envelope({**JOIN, "client_id": None}),
    "bytes as a key": envelope({**JOIN, b"client_id": "device-8"}),
    "number as a key": envelope(b"\x81\x01\x01"),
    "list as a key": envelope(b"\x81\x91\x01\x01"),
    "not UTF-8": envelope(b"\x81\xaasdk_version\xa2\xff\xfe"),
    "a surrogate": envelope(b"\x81\xaasdk_version\xa3\xed\xa0\x80"),
    "ext type": envelope({**JOIN, "sdk_version": msgpack.ExtType(5, b"x")}),
    "ext type below zero": envelope(b"\x81\xa1a\xd4\xf0\x00"),
    "timestamp": envelope({**JOIN, "sdk_version": msgpack.Timestamp(1, 2)}),
    "broken timestamp": envelope(b"\x81\xa1a\xc7\x03\xff\x00\x00\x00"),
    "deep nesting": b"\x91" * 100_000 + b"\x01",
    "deep nesting in the body": envelope(b"\x81\xa1a" * 60_000 + b"\x01"),
    "nesting msgpack allows": envelope({**JOIN, "sdk_version": [[[[[[[[[[1]]]]]]]]]]}),
    "a list of 2**32 - 1": b"\xdd\xff\xff\xff\xff",
    "a map of 2**32 - 1": b"\xdf\xff\xff\xff\xff",
    "a text of 2**32 - 1": b"\xdb\xff\xff\xff\xff",
    "a byte string of 2**32 - 1": b"\xc6\xff\xff\xff\xff",
    "an ext of 2**32 - 1": b"\xc9\xff\xff\xff\xff\x05",
    "a huge length in the body": envelope(b"\x81\xa1a\xdd\xff\xff\xff\xff"),
    "vector shorter than dim": envelope(
        {**UPDATE, "body": {"kind": "dense", "dim": 3, "values": bytes(8)}}, kind="update"
    ),
    "vector longer than dim": envelope(
        {**UPDATE, "body": {"kind": "dense", "dim": 1, "values": bytes(8)}}, kind="update"
    ),
    "vector as text": envelope({**UPDATE, "body": {"kind": "dense", "dim": 2, "values": "\0" * 8}}, kind="update"),
    "dim 0": envelope({**UPDATE, "body": {"kind": "dense", "dim": 0, "values": b""}}, kind="update"),
    "unknown body": envelope({**UPDATE, "body": {"kind": "sparse", "dim": 2, "values": bytes(8)}}, kind="update"),
    "body field is a list": envelope({**UPDATE, "body": []}, kind="update"),
    "a count of 2**64 - 1": envelope({**UPDATE, "round": 2**64 - 1}, kind="update"),
    "true for a count": envelope({**UPDATE, "round": True}, kind="update"),
    "NaN for a count": envelope({**UPDATE, "n_interactions": float("nan")}, kind="update"),
}
OTHER_CODES = {
    "version 2": (envelope(JOIN, version=2), "unsupported_version"),
    "version 0": (envelope(JOIN, version=0), "unsupported_version"),
    "version -1": (envelope(JOIN, version=-1), "unsupported_version"),
    "version 2**64 - 1": (envelope(JOIN, version=2**64 - 1), "unsupported_version"),
    "version 2 in another form": (msgpack.packb({"v": 2, "header": [1], "x": None}), "unsupported_version"),
    "one byte too large": (bytes(MAX_MESSAGE_BYTES + 1), "too_large"),
    "a valid message too large": (envelope({**JOIN, "sdk_version": "x" * MAX_MESSAGE_BYTES}), "too_large"),
}


@pytest.mark.parametrize(
    ("payload", "code"),
    [pytest.param(payload, "malformed", id=name) for name, payload in MALFORMED.items()]
    + [pytest.param(payload, code, id=name) for name, (payload, code) in OTHER_CODES.items()],
)
def test_bad_bytes_are_refused_with_a_code(payload, code):
    """Every way to get it wrong has its receipt code, and a reason short enough for a receipt."""
    expected = ModelUpdate if b"update" in payload[:30] else Join
    with pytest.raises(MessageError) as caught:
        decode(payload, expected)
    assert caught.value.code == code
    assert ReceiptCode(caught.value.code)
    assert 0 < len(caught.value.detail) <= 300


def test_the_largest_message_is_still_read():
    """The limit is inclusive: exactly as many bytes as allowed are looked at."""
    with pytest.raises(MessageError) as caught:
        decode(bytes(MAX_MESSAGE_BYTES), Join)
    assert caught.value.code == "malformed"


def refusal(payload, expected):
    """The MessageError of ``payload``, or None if it is a message; anything else fails the test."""
    try:
        decode(payload, expected)
    except MessageError as error:
        if error.code not in set(ReceiptCode) or len(error.detail) > 300:
            pytest.fail(f"no receipt could carry {error.code!r}, {error.detail!r}")
        return error
    return None


@settings(max_examples=2_000, deadline=None, derandomize=True)
@given(st.binary(max_size=200), st.sampled_from(list(MESSAGE_TYPES.values())))
def test_random_bytes_raise_nothing_but_message_error(payload, expected):
    """No byte string gets past the codec in another way, as an envelope or as a body."""
    assert refusal(payload, expected) is not None
    refusal(envelope(payload, kind=expected.kind_name), expected)


@settings(max_examples=2_000, deadline=None, derandomize=True)
@given(st.sampled_from(GOLDEN), st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_mutated_messages_raise_nothing_but_message_error(golden, seed, n_mutations):
    """Flipping, inserting, deleting and repeating bytes of a valid message gives a message or a MessageError."""
    message, wire = golden
    rng = random.Random(seed)  # noqa: S311 (repeatable, no secret)
    payload = bytearray.fromhex(wire)
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


@settings(max_examples=1_000, deadline=None, derandomize=True)
@given(st.sampled_from(GOLDEN), st.data())
def test_wrong_values_raise_nothing_but_message_error(golden, data):
    """Any msgpack value in any field, the envelope's included, gives a message or a MessageError."""
    message, _ = golden
    fields = message.model_dump()
    fields[data.draw(st.sampled_from(sorted(fields)) | st.text())] = data.draw(anything)
    refusal(envelope(fields, kind=message.kind_name), type(message))
    parts = {"v": 1, "kind": message.kind_name, "body": msgpack.packb(fields)}
    parts[data.draw(st.sampled_from(sorted(parts)))] = data.draw(anything)
    refusal(msgpack.packb(parts), type(message))


# --- what an error may tell -----------------------------------------------------------------------------------


@pytest.mark.parametrize("message", [message for message, _ in GOLDEN], ids=lambda message: message.kind_name)
def test_the_reason_does_not_repeat_a_value(message):
    """A refused value may be private or hostile: it is in no receipt, no log line and no event row."""
    fields = message.model_dump()
    for field in fields:
        for secret in ("XSECRETX", ["XSECRETX"], {"kind": "XSECRETX"}, b"XSECRETX", 770077007700770077, -0.770077):
            error = refusal(envelope({**fields, field: secret}, kind=message.kind_name), type(message))
            if error is not None:
                assert "SECRET" not in str(error)
                assert "770077" not in str(error)


def test_the_reason_repeats_little_of_an_unknown_name():
    """The name of an unknown field or kind helps to find the mistake; forty characters of it are enough."""
    long = string.ascii_letters * 100
    for payload in (envelope({**JOIN, long: 1}), envelope(JOIN, kind=long)):
        error = refusal(payload, Join)
        assert len(error.detail) < 120
        assert long[:41] not in error.detail


@pytest.mark.parametrize("name", ["a\x00b", "a\nb", "\x1b[31m"], ids=["NUL", "line feed", "terminal escape"])
def test_the_reason_can_be_stored_and_shown(name):
    """A reason goes to a text column (PostgreSQL refuses NUL), to logs and to terminals: it is printable."""
    for payload in (
        envelope({**JOIN, name: 1}),
        envelope(JOIN, kind=name),
        envelope({**UPDATE, "body": {"kind": "dense", "dim": 2, "values": bytes(8), name: 1}}, kind="update"),
    ):
        error = refusal(payload, ModelUpdate if b"update" in payload[:30] else Join)
        assert error.detail.isprintable()


def test_text_that_a_database_cannot_store_is_refused():
    """A NUL in a text field would fail the federator's commit on PostgreSQL, and with it the federator."""
    assert refusal(envelope({**JOIN, "sdk_version": "1\x00"}), Join).code == "malformed"
