"""The codec: every message round-trips, nothing a peer sends raises but MessageError, the wire does not move."""

import random
import runpy
import string
from dataclasses import replace
from pathlib import Path
from typing import get_args

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from foltr.codec import Sealer, decode, encode, open_envelope
from foltr.errors import MessageError
from foltr.identity import EpochNonces, SigningKey
from foltr.messages import (
    CHUNK_BYTES,
    MAX_CHUNKED_BYTES,
    MAX_DIM,
    MAX_MESSAGE_BYTES,
    MESSAGE_TYPES,
    NAME_PATTERN,
    SCHEMA_VERSION,
    Chunk,
    DenseDelta,
    Enrolment,
    EvolutionPair,
    EvolutionTraining,
    FedAvgTraining,
    FedIpsTraining,
    FedPerTraining,
    FedProxTraining,
    FpdgdPaperTraining,
    Join,
    Leave,
    LinearRankerSpec,
    Manifest,
    MembershipReceipt,
    ModelAnnouncement,
    ModelUpdate,
    NeuralRankerSpec,
    PartDelta,
    PdgdTraining,
    PersonalTraining,
    RankerSpec,
    ReceiptCode,
    Revocation,
    Roster,
    RoundAnnouncement,
    Selection,
    SetDeadline,
    Status,
    Training,
    UpdateBody,
    UpdateReceipt,
)

# How the captured messages were made, and what they say. If the bytes of this version must change, SCHEMA_VERSION
# must too: devices in the field read and write what those files hold, not what the code says today.
CAPTURE = runpy.run_path(str(Path(__file__).parent / "captured" / "capture.py"))
KEY, FIRST_NONCE, name_of = CAPTURE["KEY"], CAPTURE["FIRST_NONCE"], CAPTURE["name_of"]
MESSAGES = CAPTURE["MESSAGES"] + CAPTURE["VARIANTS"]
V1, V2, V3 = (CAPTURE["captured"](version) for version in (1, 2, 3))
V3_VARIANTS = [name_of(message) for message, _ in CAPTURE["VARIANTS"]]
UPDATE_ID = "0123456789abcdef" * 2
JOIN = {"federation": "mail", "client_id": "device-7", "sdk_version": "0.1.0"}
UPDATE = next(message for message, _ in MESSAGES if isinstance(message, ModelUpdate)).model_dump()
KINDS = [pytest.param(message, topic, id=name_of(message)) for message, topic in MESSAGES]


def envelope(body, kind="join", version=3, nonce=0, signature=b""):
    """An envelope as a peer may build it: ``body`` packed, or as it stands if it is bytes."""
    packed = body if isinstance(body, bytes) else msgpack.packb(body)
    return msgpack.packb({"v": version, "kind": kind, "nonce": nonce, "body": packed, "signature": signature})


def envelope_with(**parts):
    """A proper envelope with other parts than it should have, or more."""
    return msgpack.packb({**msgpack.unpackb(envelope(JOIN)), **parts})


def envelope_without(key):
    """A proper envelope that lacks one of its keys."""
    parts = msgpack.unpackb(envelope(JOIN))
    del parts[key]
    return msgpack.packb(parts)


# --- round trips and the wire ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("message", "topic"), KINDS)
def test_the_bytes_of_version_3_do_not_move(message, topic):
    """What is written today is what version 3 always wrote; that is still read, and its signature still holds."""
    wire = V3[name_of(message)]
    assert encode(message, topic, FIRST_NONCE, KEY) == wire
    opened = open_envelope(wire)
    assert opened.is_signed_by(KEY.public, topic)
    assert opened.nonce == FIRST_NONCE
    assert opened.read(type(message)) == message
    assert decode(wire, type(message)) == message


def test_every_kind_of_message_is_captured():
    """A new message type, method, ranker or body comes with its captured bytes, and none is left without a type."""
    assert SCHEMA_VERSION == 3
    assert {message.kind_name for message, _ in MESSAGES} == set(MESSAGE_TYPES)
    assert [name_of(message) for message, _ in MESSAGES] == [*MESSAGE_TYPES, *V3_VARIANTS]
    assert set(V3) == {*MESSAGE_TYPES, *V3_VARIANTS}
    captured = [message for message, _ in MESSAGES]
    for field, kind, union in (
        ("training", RoundAnnouncement, Training),
        ("body", ModelUpdate, UpdateBody),
        ("ranker", ModelAnnouncement, RankerSpec),
    ):
        found = {type(getattr(message, field)) for message in captured if isinstance(message, kind)}
        assert found == set(get_args(get_args(union)[0]))


OLDER = [(1, name) for name in sorted(V1)] + [(2, name) for name in sorted(V2)]


@pytest.mark.parametrize(("version", "kind"), OLDER)
def test_an_older_version_is_told_to_upgrade(version, kind):
    """A device that still speaks version 1 or 2 gets the code it knows, and words that say what to do."""
    with pytest.raises(MessageError) as caught:
        decode({1: V1, 2: V2}[version][kind], MESSAGE_TYPES[kind])
    assert caught.value.code == "unsupported_version"
    assert caught.value.detail == (
        f"schema version {version}; this side speaks 3: upgrade the peer to what this side has"
    )


@pytest.mark.parametrize(
    ("wires", "n_kinds", "keys"),
    [
        pytest.param(V1, 8, ["v", "kind", "body"], id="version 1"),
        pytest.param(V2, 13, ["v", "kind", "nonce", "body", "signature"], id="version 2"),
    ],
)
def test_older_versions_were_captured_whole(wires, n_kinds, keys):
    """All eight kinds of version 1, in its envelope of three keys, and the thirteen of version 2."""
    assert len(wires) == n_kinds
    for kind, wire in wires.items():
        assert list(msgpack.unpackb(wire)) == keys
        assert msgpack.unpackb(wire)["kind"] == kind


@pytest.mark.parametrize(
    "payload",
    [envelope(JOIN, version=4), msgpack.packb({"v": 4, "header": [1], "x": None})],
    ids=["the same form", "another form"],
)
def test_a_newer_peer_is_told_that_this_side_is_behind(payload):
    """Version 4 is refused by name, whatever its envelope looks like."""
    with pytest.raises(MessageError) as caught:
        decode(payload, Join)
    assert caught.value.code == "unsupported_version"
    assert caught.value.detail == "schema version 4; this side speaks 3: upgrade this side to what the peer has"


# --- signatures -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("message", "topic"), KINDS)
def test_every_changed_bit_breaks_the_signature(message, topic):
    """Topic, kind, nonce, body and signature: none of them can be changed, not even in one bit."""
    opened = open_envelope(V3[name_of(message)])
    forged = [(opened, changed.decode("latin-1")) for changed in changed_bits(topic.encode())]
    forged += [
        (replace(opened, kind=changed.decode("latin-1")), topic) for changed in changed_bits(opened.kind.encode())
    ]
    forged += [
        (replace(opened, nonce=int.from_bytes(changed, "big")), topic)
        for changed in changed_bits(opened.nonce.to_bytes(8, "big"))
    ]
    forged += [(replace(opened, body=changed), topic) for changed in changed_bits(opened.body)]
    forged += [(replace(opened, signature=changed), topic) for changed in changed_bits(opened.signature)]
    assert opened.is_signed_by(KEY.public, topic)
    assert not any(envelope.is_signed_by(KEY.public, signed_for) for envelope, signed_for in forged)


def changed_bits(data):
    """``data`` with each of its bits changed in turn."""
    for i in range(8 * len(data)):
        changed = bytearray(data)
        changed[i // 8] ^= 1 << i % 8
        yield bytes(changed)


def test_another_key_did_not_sign_it():
    """Only the public key of the signer fits, and an unsigned message fits none."""
    leave = Leave(federation="mail", client_id="device-7")
    assert not open_envelope(V3["leave"]).is_signed_by(SigningKey(bytes(32)).public, MESSAGES[1][1])
    unsigned = open_envelope(encode(leave, MESSAGES[1][1], FIRST_NONCE))
    assert unsigned.signature == b""
    assert not unsigned.is_signed_by(KEY.public, MESSAGES[1][1])


def test_an_answer_that_is_remembered_is_the_same_answer():
    """Asked again and again, for the right and for a wrong topic, each question keeps its own answer."""
    opened = open_envelope(V3["model"])
    for _ in range(3):
        assert opened.is_signed_by(KEY.public, "foltr/v1/mail/model", repeated=True)
        assert not opened.is_signed_by(KEY.public, "foltr/v1/mail/round", repeated=True)
        assert not replace(opened, nonce=0).is_signed_by(KEY.public, "foltr/v1/mail/model", repeated=True)


def test_a_sender_signs_each_message_with_a_higher_nonce():
    """Unless it names the nonce, as for a last will; without a key it sends unsigned messages."""
    leave, topic = MESSAGES[1]
    sealer = Sealer(KEY, EpochNonces())
    first, second = (open_envelope(sealer.seal(leave, topic)) for _ in range(2))
    assert first.nonce < second.nonce
    assert first.is_signed_by(KEY.public, topic)
    assert second.is_signed_by(KEY.public, topic)
    assert open_envelope(sealer.seal(leave, topic, 7)).nonce == 7
    assert open_envelope(Sealer(None, EpochNonces()).seal(leave, topic)).signature == b""


@pytest.mark.parametrize("nonce", [0, 1, 2**63 - 1])
@pytest.mark.parametrize("signature", [b"", bytes(64)], ids=["unsigned", "signed"])
def test_every_nonce_and_both_lengths_of_a_signature_are_read(nonce, signature):
    """The envelope is opened whether its signature is there, or good, or not: that is asked for later."""
    opened = open_envelope(envelope(JOIN, nonce=nonce, signature=signature))
    assert (opened.nonce, opened.signature) == (nonce, signature)


names = st.from_regex(NAME_PATTERN, fullmatch=True)
counts = st.integers(0, 2**31 - 1)
update_ids = st.text("0123456789abcdef", min_size=32, max_size=32)
# Text a peer may send: no surrogates (not UTF-8), no control characters, no separators of lines.
texts = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=64)
times = st.floats(0, 1e11)
shares = st.floats(0, 1)
bodies = st.one_of(
    st.binary(min_size=1, max_size=30).map(lambda raw: DenseDelta(dim=len(raw), values=raw * 4)),
    st.builds(
        lambda raw, start, rest: PartDelta(dim=start + len(raw) + rest, start=start, values=raw * 4),
        st.binary(min_size=1, max_size=30),
        st.integers(0, 1000),
        st.integers(0, 1000),
    ),
    st.builds(EvolutionPair, seed=st.integers(0, 2**63 - 1), plus=shares, minus=st.none() | shares),
)
rankers = st.one_of(
    st.builds(LinearRankerSpec, n_features=st.integers(1, 30)),
    st.builds(NeuralRankerSpec, n_features=st.integers(1, 10), hidden=st.integers(1, 10)),
)
models = st.builds(
    lambda federation, version, ranker, n_auxiliary, value: ModelAnnouncement(
        federation=federation,
        version=version,
        ranker=ranker,
        n_auxiliary=n_auxiliary,
        weights=value * (ranker.n_weights + n_auxiliary),
    ),
    names,
    counts,
    rankers,
    st.integers(0, 10),
    st.binary(min_size=4, max_size=4),
)
rates = st.floats(0, 100, exclude_min=True)
policies = st.binary(max_size=30).map(lambda raw: raw * 4)


def trainings_of(kind, **fields):
    """All that may be announced of one method; ``fields`` are those it does not share with every method."""
    return st.builds(
        lambda length, bounds, **own: kind(
            serp_length=length, min_interactions=min(bounds), max_interactions=max(bounds), **own
        ),
        st.integers(1, 1000),
        st.tuples(st.integers(1, 100_000), st.integers(1, 100_000)),
        **fields,
    )


trainings = st.one_of(
    trainings_of(PdgdTraining, learning_rate=rates),
    trainings_of(
        FpdgdPaperTraining,
        learning_rate=rates,
        sensitivity=rates,
        epsilon=rates,
        n_clients=st.integers(1, 10_000_000),
    ),
    trainings_of(FedProxTraining, learning_rate=rates, mu=st.floats(0, 100)),
    trainings_of(FedPerTraining, learning_rate=rates),
    trainings_of(PersonalTraining, learning_rate=rates, personal_learning_rate=rates),
    trainings_of(
        EvolutionTraining,
        noise_scale=st.floats(1e-6, 100),
        antithetic=st.booleans(),
        keep_probability=st.floats(0, 1, exclude_min=True),
        server_learning_rate=rates,
    ),
    trainings_of(
        FedIpsTraining,
        learning_rate=rates,
        server_learning_rate=rates,
        propensities=st.sampled_from(["known", "estimated"]),
        relevance_learning_rate=rates,
        position_bias=st.floats(0, 10),
        logging_policy=policies,
    ),
    trainings_of(FedAvgTraining, learning_rate=rates, server_learning_rate=rates, logging_policy=policies),
)
codes = st.sampled_from(ReceiptCode)
nonces = st.integers(0, 2**63 - 1)
serials = st.integers(1, 2**31 - 1)
digests = st.binary(min_size=32, max_size=32)
selections = st.builds(
    Selection, first_seed=digests, cutoff=st.binary(min_size=8, max_size=8), n_selected=counts, n_eligible=counts
)
messages = st.one_of(
    st.builds(
        Join, federation=names, client_id=names, sdk_version=texts, enrolment=st.none() | st.binary(max_size=1024)
    ),
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
        selection=st.none() | selections,
    ),
    st.builds(
        ModelUpdate,
        federation=names,
        client_id=names,
        update_id=update_ids,
        round=counts,
        base_version=counts,
        n_interactions=st.integers(1, 100_000),
        body=bodies,
    ),
    st.builds(
        UpdateReceipt,
        federation=names,
        client_id=names,
        update_id=st.none() | update_ids,
        payload_digest=st.none() | st.binary(min_size=16, max_size=16),
        code=codes,
        detail=texts,
        retry_after_s=st.none() | st.floats(0, 86_400),
        missing=st.none() | st.lists(st.integers(0, 999), max_size=20),
    ),
    st.builds(
        MembershipReceipt,
        federation=names,
        client_id=names,
        code=codes,
        nonce=st.none() | nonces,
        newest_nonce=st.none() | nonces,
        detail=texts,
    ),
    st.builds(
        lambda federation, client_id, digest, size: Manifest(
            federation=federation, client_id=client_id, digest=digest, size=size, n_chunks=-(-size // CHUNK_BYTES)
        ),
        names,
        st.none() | names,
        digests,
        st.integers(1, MAX_CHUNKED_BYTES),
    ),
    st.builds(
        Chunk,
        federation=names,
        client_id=st.none() | names,
        digest=digests,
        index=st.integers(0, 999),
        data=st.binary(min_size=1, max_size=100),
    ),
    st.builds(Enrolment, federation=names, client_id=names, public_key=digests, serial=serials, issued_at=times),
    st.builds(
        Roster,
        federation=names,
        version=serials,
        issued_at=times,
        n_enrolled=counts,
        revoked=st.lists(st.builds(Revocation, client_id=names, serial=serials), max_size=5),
    ),
    st.builds(SetDeadline, federation=names, round=counts, max_time_s=st.floats(0, 30 * 86_400, exclude_min=True)),
)


@settings(max_examples=500, deadline=None, derandomize=True)
@given(messages, nonces)
def test_every_message_round_trips(message, nonce):
    """What is decoded is what was encoded, field for field, signed or not."""
    assert decode(encode(message), type(message)) == message
    opened = open_envelope(encode(message, "a/topic", nonce, KEY))
    assert opened.is_signed_by(KEY.public, "a/topic")
    assert (opened.nonce, opened.read(type(message))) == (nonce, message)


def test_a_large_ranker_fits_a_message():
    """60,000 features can be announced and sent in one signed message; only what is larger goes in chunks."""
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
        wire = encode(message, "t" * 200, 2**63 - 1, KEY)
        assert len(wire) <= MAX_MESSAGE_BYTES
        assert decode(wire, type(message)) == message


def test_the_largest_logging_policy_fits_the_announcement_of_a_round():
    """64 KiB of weights beside the rest are far below what one message may have; more is no announcement."""
    selection = Selection(first_seed=bytes(32), cutoff=bytes(8), n_selected=2**31 - 1, n_eligible=2**31 - 1)
    announced = RoundAnnouncement(
        federation="f" * 64,
        round=2**31 - 1,
        open=True,
        base_version=2**31 - 1,
        opened_at=1e11,
        closes_at=1e11,
        training=FedIpsTraining(logging_policy=bytes(65_536)),
        selection=selection,
    )
    wire = encode(announced, "t" * 200, 2**63 - 1, KEY)
    assert len(wire) < MAX_MESSAGE_BYTES / 2
    assert decode(wire, RoundAnnouncement) == announced
    with pytest.raises(ValidationError):
        FedIpsTraining(logging_policy=bytes(65_537))


def test_the_largest_ranker_fits_the_chunks():
    """The bounds on vectors, on chunks and on what they make up agree, for a model and for an update."""
    weights = bytes(4 * MAX_DIM)
    model = ModelAnnouncement(
        federation="f" * 64, version=2**31 - 1, ranker=LinearRankerSpec(n_features=MAX_DIM), weights=weights
    )
    update = ModelUpdate(
        federation="f" * 64,
        client_id="c" * 64,
        update_id=UPDATE_ID,
        round=2**31 - 1,
        base_version=2**31 - 1,
        n_interactions=100_000,
        body=DenseDelta(dim=MAX_DIM, values=weights),
    )
    for message in (model, update):
        wire = encode(message, "t" * 200, 2**63 - 1, KEY)
        assert len(wire) <= MAX_CHUNKED_BYTES <= 1000 * CHUNK_BYTES
        assert open_envelope(wire, MAX_CHUNKED_BYTES).read(type(message)) == message
    chunk = Chunk(federation="f" * 64, client_id="c" * 64, digest=bytes(32), index=999, data=bytes(CHUNK_BYTES))
    assert decode(encode(chunk, "t" * 200, 2**63 - 1, KEY), Chunk) == chunk


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
    "no version": envelope_without("v"),
    "version true": envelope(JOIN, version=True),
    "version 3.0": envelope(JOIN, version=3.0),
    "version text": envelope(JOIN, version="3"),
    "version nil": envelope(JOIN, version=None),
    "keys as bytes": msgpack.packb({key.encode(): part for key, part in msgpack.unpackb(envelope(JOIN)).items()}),
    "a sixth key": envelope_with(sig=b""),
    "no kind": envelope_without("kind"),
    "no nonce": envelope_without("nonce"),
    "no body": envelope_without("body"),
    "no signature": envelope_without("signature"),
    "the keys of version 1": msgpack.packb({"v": 3, "kind": "join", "body": msgpack.packb(JOIN)}),
    "version twice": b"\x86\xa1v\x03" + envelope(JOIN)[1:],
    "body twice": b"\x86" + envelope(JOIN)[1:] + b"\xa4body\xc4\x01\x80",
    "nonce twice": b"\x86" + envelope(JOIN)[1:] + b"\xa5nonce\x01",
    "nonce below zero": envelope(JOIN, nonce=-1),
    "nonce of 2**63": envelope(JOIN, nonce=2**63),
    "nonce of 2**64 - 1": envelope(JOIN, nonce=2**64 - 1),
    "nonce true": envelope(JOIN, nonce=True),
    "nonce 1.0": envelope(JOIN, nonce=1.0),
    "nonce text": envelope(JOIN, nonce="1"),
    "nonce bytes": envelope(JOIN, nonce=bytes(8)),
    "nonce nil": envelope(JOIN, nonce=None),
    "signature too short": envelope(JOIN, signature=bytes(63)),
    "signature too long": envelope(JOIN, signature=bytes(65)),
    "signature of one byte": envelope(JOIN, signature=b"\0"),
    "signature text": envelope(JOIN, signature="\0" * 64),
    "signature empty text": envelope(JOIN, signature=""),
    "signature nil": envelope(JOIN, signature=None),
    "signature a list": envelope(JOIN, signature=[0] * 64),
    "wrong kind": envelope(JOIN, kind="leave"),
    "unknown kind": envelope(JOIN, kind="forget"),
    "kind is a list": envelope(JOIN, kind=["join"]),
    "kind is bytes": envelope(JOIN, kind=b"join"),
    "body is a map": envelope_with(body=JOIN),
    "body is text": envelope_with(body="x"),
    "body is nil": envelope_with(body=None),
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
    "a part beyond dim": envelope(
        {**UPDATE, "body": {"kind": "part", "dim": 3, "start": 2, "values": bytes(8)}}, kind="update"
    ),
    "a part of half a value": envelope(
        {**UPDATE, "body": {"kind": "part", "dim": 3, "start": 0, "values": bytes(6)}}, kind="update"
    ),
    "a part of nothing": envelope(
        {**UPDATE, "body": {"kind": "part", "dim": 3, "start": 0, "values": b""}}, kind="update"
    ),
    "a metric above 1": envelope(
        {**UPDATE, "body": {"kind": "evolution", "seed": 1, "plus": 1.5, "minus": None}}, kind="update"
    ),
    "a metric that is NaN": envelope(
        {**UPDATE, "body": {"kind": "evolution", "seed": 1, "plus": float("nan"), "minus": 0.5}}, kind="update"
    ),
    "a seed of 2**63": envelope(
        {**UPDATE, "body": {"kind": "evolution", "seed": 2**63, "plus": 0.5, "minus": 0.5}}, kind="update"
    ),
    "a seed with the values of a delta": envelope(
        {**UPDATE, "body": {"kind": "evolution", "seed": 1, "plus": 0.5, "minus": 0.5, "values": b""}}, kind="update"
    ),
    "unknown body": envelope({**UPDATE, "body": {"kind": "sparse", "dim": 2, "values": bytes(8)}}, kind="update"),
    "body field is a list": envelope({**UPDATE, "body": []}, kind="update"),
    "an enrolment of 1025 bytes": envelope({**JOIN, "enrolment": bytes(1025)}),
    "an enrolment as text": envelope({**JOIN, "enrolment": "x"}),
    "a count of 2**64 - 1": envelope({**UPDATE, "round": 2**64 - 1}, kind="update"),
    "true for a count": envelope({**UPDATE, "round": True}, kind="update"),
    "NaN for a count": envelope({**UPDATE, "n_interactions": float("nan")}, kind="update"),
}
OTHER_CODES = {
    "version 1": (envelope(JOIN, version=1), "unsupported_version"),
    "version 1 in its own form": (msgpack.packb({"v": 1, "kind": "join", "body": b""}), "unsupported_version"),
    "version 2": (envelope(JOIN, version=2), "unsupported_version"),
    "version 4": (envelope(JOIN, version=4), "unsupported_version"),
    "version 0": (envelope(JOIN, version=0), "unsupported_version"),
    "version -1": (envelope(JOIN, version=-1), "unsupported_version"),
    "version 2**64 - 1": (envelope(JOIN, version=2**64 - 1), "unsupported_version"),
    "version 4 in another form": (msgpack.packb({"v": 4, "header": [1], "x": None}), "unsupported_version"),
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
@given(st.sampled_from([message for message, _ in MESSAGES]), st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_mutated_messages_raise_nothing_but_message_error(message, seed, n_mutations):
    """Flipping, inserting, deleting and repeating bytes of a valid message gives a message or a MessageError."""
    rng = random.Random(seed)  # noqa: S311 (repeatable, no secret)
    payload = bytearray(V3[name_of(message)])
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
@given(st.sampled_from([message for message, _ in MESSAGES]), st.data())
def test_wrong_values_raise_nothing_but_message_error(message, data):
    """Any msgpack value in any field, the envelope's included, gives a message or a MessageError."""
    fields = message.model_dump()
    fields[data.draw(st.sampled_from(sorted(fields)) | st.text())] = data.draw(anything)
    refusal(envelope(fields, kind=message.kind_name), type(message))
    parts = msgpack.unpackb(envelope(fields, kind=message.kind_name))
    parts[data.draw(st.sampled_from(sorted(parts)))] = data.draw(anything)
    refusal(msgpack.packb(parts), type(message))


# --- what an error may tell -----------------------------------------------------------------------------------


@pytest.mark.parametrize("message", [message for message, _ in MESSAGES], ids=name_of)
def test_the_reason_does_not_repeat_a_value(message):
    """A refused value may be private or hostile: it is in no receipt, no log line and no event row."""
    fields = message.model_dump()
    for field in fields:
        for secret in ("XSECRETX", ["XSECRETX"], {"kind": "XSECRETX"}, b"XSECRETX", 770077007700770077, -0.770077):
            error = refusal(envelope({**fields, field: secret}, kind=message.kind_name), type(message))
            if error is not None:
                assert "SECRET" not in str(error)
                assert "770077" not in str(error)
    for part in ("nonce", "signature", "body"):
        for secret in ("XSECRETX", b"XSECRETX", -770077):
            parts = {**msgpack.unpackb(envelope(fields, kind=message.kind_name)), part: secret}
            error = refusal(msgpack.packb(parts), type(message))
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
