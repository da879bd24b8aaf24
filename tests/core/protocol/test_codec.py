"""The codec: every message round-trips, signatures hold, the wire does not move."""

from typing import get_args

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from support.wire_messages import CAPTURE, FIRST_SEQUENCE, JOIN, KEY, MESSAGES, WIRE, envelope, name_of

from foltr.core.errors import MessageError
from foltr.core.protocol.announcements import (
    MOST_NAMED,
    ModelAnnouncement,
    NamedErasure,
    RoundAnnouncement,
    Selection,
    UnlearningRound,
)
from foltr.core.protocol.codec import Signer, decode, encode, open_envelope
from foltr.core.protocol.fields import (
    CHUNK_BYTES,
    MAX_CHUNKED_BYTES,
    MAX_DIM,
    MAX_MESSAGE_BYTES,
    NAME_PATTERN,
    SCHEMA_VERSION,
)
from foltr.core.protocol.membership import Enrolment, Join, Leave, Status
from foltr.core.protocol.messages import MESSAGE_TYPES
from foltr.core.protocol.orders import (
    AllowReset,
    ForgetTombstone,
    LiftQuarantine,
    OrderAnswer,
    OrderReply,
    QuarantineClient,
    SetDeadline,
)
from foltr.core.protocol.receipts import MembershipReceipt, ReceiptCode, UpdateReceipt
from foltr.core.protocol.roster import Revocation, Roster
from foltr.core.protocol.signing import EpochSequence, SigningKey, signed_bytes
from foltr.core.protocol.trainings import (
    EvolutionTraining,
    FedAvgTraining,
    FedIpsTraining,
    FedPerTraining,
    FedProxTraining,
    FpdgdPaperTraining,
    LinearRankerSpec,
    NeuralRankerSpec,
    PdgdTraining,
    PersonalTraining,
    RankerSpec,
    Training,
)
from foltr.core.protocol.updates import Chunk, DenseDelta, EvolutionPair, Manifest, ModelUpdate, PartDelta, UpdateBody

VARIANTS = [name_of(message) for message, _ in CAPTURE["VARIANTS"]]
UPDATE_ID = "0123456789abcdef" * 2
KINDS = [pytest.param(message, topic, id=name_of(message)) for message, topic in MESSAGES]


@pytest.mark.parametrize(("message", "topic"), KINDS)
def test_the_bytes_on_the_wire_do_not_move(message, topic):
    """What is written today is what was always written; that is still read, and its signature still holds."""
    wire = WIRE[name_of(message)]
    opened = open_envelope(wire)
    assert encode(message, topic, opened.sequence, KEY) == wire
    assert opened.is_signed_by(KEY.public, topic)
    assert opened.sequence >= FIRST_SEQUENCE
    assert opened.read(type(message)) == message
    assert decode(wire, type(message)) == message


def test_every_kind_of_message_is_captured():
    """A new message type, method, ranker or body comes with its captured bytes, and none is left without a type."""
    assert SCHEMA_VERSION == 1
    assert {message.kind_name for message, _ in MESSAGES} == set(MESSAGE_TYPES)
    assert [name_of(message) for message, _ in MESSAGES] == [*MESSAGE_TYPES, *VARIANTS]
    assert set(WIRE) == {*MESSAGE_TYPES, *VARIANTS}
    captured = [message for message, _ in MESSAGES]
    for field, kind, union in (
        ("training", RoundAnnouncement, Training),
        ("body", ModelUpdate, UpdateBody),
        ("ranker", ModelAnnouncement, RankerSpec),
    ):
        found = {type(getattr(message, field)) for message in captured if isinstance(message, kind)}
        assert found == set(get_args(get_args(union)[0]))


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        (envelope(JOIN, version=0), "schema version 0; this side speaks 1: upgrade the peer to what this side has"),
        (envelope(JOIN, version=2), "schema version 2; this side speaks 1: upgrade this side to what the peer has"),
        (
            msgpack.packb({"v": 2, "header": [1], "x": None}),
            "schema version 2; this side speaks 1: upgrade this side to what the peer has",
        ),
    ],
    ids=["an older one", "a newer one", "in another form"],
)
def test_another_version_is_told_who_is_to_upgrade(payload, told):
    with pytest.raises(MessageError) as caught:
        decode(payload, Join)
    assert (caught.value.code, caught.value.detail) == ("unsupported_version", told)


@pytest.mark.parametrize(("message", "topic"), KINDS)
def test_every_changed_bit_breaks_the_signature(message, topic):
    """Topic, kind, sequence number and body: none of them can be changed, not even in one bit."""
    opened = open_envelope(WIRE[name_of(message)])
    forged = [(opened, changed.decode("latin-1")) for changed in changed_bits(topic.encode())]
    forged += [
        (opened._replace(kind=changed.decode("latin-1")), topic) for changed in changed_bits(opened.kind.encode())
    ]
    forged += [
        (opened._replace(sequence=int.from_bytes(changed, "big")), topic)
        for changed in changed_bits(opened.sequence.to_bytes(8, "big"))
    ]
    forged += [(opened._replace(body=changed), topic) for changed in changed_bits(opened.body)]
    signed = {signed_bytes(whose, envelope.kind, envelope.sequence, envelope.body) for envelope, whose in forged}
    assert len(signed - {signed_bytes(topic, opened.kind, opened.sequence, opened.body)}) == len(forged)
    assert opened.is_signed_by(KEY.public, topic)
    tried = [forged[8 * byte + byte % 8] for byte in range(len(forged) // 8)]
    assert not any(envelope.is_signed_by(KEY.public, whose) for envelope, whose in tried)


def test_every_changed_bit_of_the_signature_breaks_it():
    message, topic = MESSAGES[0]
    opened = open_envelope(WIRE[name_of(message)])
    forged = [opened._replace(signature=changed) for changed in changed_bits(opened.signature)]
    assert opened.is_signed_by(KEY.public, topic)
    assert not any(envelope.is_signed_by(KEY.public, topic) for envelope in forged)


def changed_bits(data):
    """``data`` with each of its bits changed in turn."""
    for i in range(8 * len(data)):
        changed = bytearray(data)
        changed[i // 8] ^= 1 << i % 8
        yield bytes(changed)


def test_another_key_did_not_sign_it():
    """Only the public key of the signer fits, and an unsigned message fits none."""
    leave = Leave(federation="mail", client_id="device-7")
    assert not open_envelope(WIRE["leave"]).is_signed_by(SigningKey(bytes(32)).public, MESSAGES[1][1])
    unsigned = open_envelope(encode(leave, MESSAGES[1][1], FIRST_SEQUENCE))
    assert unsigned.signature == b""
    assert not unsigned.is_signed_by(KEY.public, MESSAGES[1][1])


def test_an_answer_that_is_remembered_is_the_same_answer():
    """Asked again and again, for the right and for a wrong topic, each question keeps its own answer."""
    opened = open_envelope(WIRE["model"])
    for _ in range(3):
        assert opened.is_signed_by(KEY.public, "foltr/v1/mail/model", repeated=True)
        assert not opened.is_signed_by(KEY.public, "foltr/v1/mail/round", repeated=True)
        assert not opened._replace(sequence=0).is_signed_by(KEY.public, "foltr/v1/mail/model", repeated=True)


def test_a_sender_signs_each_message_with_a_higher_sequence_number():
    """Unless it names the number, as for a last will; without a key it sends unsigned messages."""
    leave, topic = MESSAGES[1]
    signer = Signer(KEY, EpochSequence())
    first, second = (open_envelope(signer.sign(leave, topic)) for _ in range(2))
    assert first.sequence < second.sequence
    assert first.is_signed_by(KEY.public, topic)
    assert second.is_signed_by(KEY.public, topic)
    assert open_envelope(signer.sign(leave, topic, 7)).sequence == 7
    assert open_envelope(Signer(None, EpochSequence()).sign(leave, topic)).signature == b""


@pytest.mark.parametrize("sequence", [0, 1, 2**63 - 1])
@pytest.mark.parametrize("signature", [b"", bytes(64)], ids=["unsigned", "signed"])
def test_every_sequence_number_and_both_lengths_of_a_signature_are_read(sequence, signature):
    """The envelope is opened whether its signature is there, or good, or not: that is asked for later."""
    opened = open_envelope(envelope(JOIN, sequence=sequence, signature=signature))
    assert (opened.sequence, opened.signature) == (sequence, signature)


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
        FpdgdPaperTraining, learning_rate=rates, sensitivity=rates, epsilon=rates, n_clients=st.integers(1, 10_000_000)
    ),
    trainings_of(FedProxTraining, learning_rate=rates, mu=st.floats(0, 100)),
    trainings_of(FedPerTraining, learning_rate=rates),
    trainings_of(PersonalTraining, learning_rate=rates, personal_learning_rate=rates),
    trainings_of(
        EvolutionTraining,
        noise_scale=st.floats(1e-6, 100),
        antithetic=st.booleans(),
        truth_probability=st.floats(0, 1, exclude_min=True),
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
sequences = st.integers(0, 2**63 - 1)
serials = st.integers(1, 2**31 - 1)
floors = st.integers(2, 2**31 - 1)
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
        base_hash=st.binary(min_size=16, max_size=16),
        withdraws_below=counts,
        opened_at=times,
        closes_at=times,
        training=trainings,
        selection=st.none() | selections,
    ),
    st.builds(
        ModelUpdate,
        after=st.integers(0, 2**47),
        through=st.integers(2**47 + 100_000, 2**48),
        federation=names,
        client_id=names,
        update_id=update_ids,
        round=counts,
        base_version=counts,
        base_hash=st.binary(min_size=16, max_size=16),
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
        payload_digest=st.none() | st.binary(min_size=16, max_size=16),
        newest_sequence=st.none() | sequences,
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
        through=counts,
        revoked=st.lists(st.builds(Revocation, client_id=names, void_below=floors), max_size=5),
        salt=digests,
        forgotten=st.lists(st.binary(min_size=16, max_size=16), max_size=5),
    ),
    st.builds(
        ForgetTombstone,
        federation=names,
        salt=digests,
        tombstone=st.binary(min_size=16, max_size=16),
        serial=counts,
        replaces=digests,
    ),
    st.builds(
        OrderAnswer,
        federation=names,
        number=sequences,
        digest=digests,
        reply=st.sampled_from(OrderReply),
        code=st.none() | st.sampled_from(ReceiptCode),
        newest=counts,
        newest_digest=st.none() | digests,
    ),
    st.builds(SetDeadline, federation=names, round=counts, max_time_s=st.floats(0, 30 * 86_400, exclude_min=True)),
    st.builds(QuarantineClient, federation=names, client_id=names, reason=st.text("ab ü", min_size=1, max_size=500)),
    st.builds(LiftQuarantine, federation=names, client_id=names),
    st.builds(AllowReset, federation=names, job=st.integers(1, 2**31 - 1)),
)


@settings(max_examples=500, derandomize=True)
@given(messages, sequences)
def test_every_message_round_trips(message, sequence):
    """What is decoded is what was encoded, field for field, signed or not."""
    assert decode(encode(message), type(message)) == message
    opened = open_envelope(encode(message, "a/topic", sequence, KEY))
    assert opened.is_signed_by(KEY.public, "a/topic")
    assert (opened.sequence, opened.read(type(message))) == (sequence, message)


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
        after=2**48 - 100_000,
        through=2**48,
        base_hash=bytes(16),
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
        base_hash=bytes(16),
        withdraws_below=2**31 - 1,
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
        after=2**48 - 100_000,
        through=2**48,
        base_hash=bytes(16),
        n_interactions=100_000,
        body=DenseDelta(dim=MAX_DIM, values=weights),
    )
    for message in (model, update):
        wire = encode(message, "t" * 200, 2**63 - 1, KEY)
        assert len(wire) <= MAX_CHUNKED_BYTES <= 1000 * CHUNK_BYTES
        assert open_envelope(wire, MAX_CHUNKED_BYTES).read(type(message)) == message
    chunk = Chunk(federation="f" * 64, client_id="c" * 64, digest=bytes(32), index=999, data=bytes(CHUNK_BYTES))
    assert decode(encode(chunk, "t" * 200, 2**63 - 1, KEY), Chunk) == chunk


def test_a_step_of_a_job_for_many_erasures_is_read():
    """As many as it may name: a reader has room for them."""
    entries = [NamedErasure(audit_seq=number + 1, audit_hash=bytes(32)) for number in range(MOST_NAMED)]
    step = UnlearningRound(
        federation="mail",
        job=1,
        step=1,
        open=True,
        ranker=LinearRankerSpec(n_features=2),
        weights=bytes(8),
        local_interactions=3,
        erasures=entries,
        closes_at=1e9,
        training=PdgdTraining(),
    )
    assert decode(encode(step, "t", 1, KEY), UnlearningRound) == step
