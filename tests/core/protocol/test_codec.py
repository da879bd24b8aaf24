"""The codec: every message round-trips, signatures hold, the wire does not move."""

from typing import get_args

import msgpack
import pytest
from support.wire_messages import FIRST_SEQUENCE, JOIN, KEY, MESSAGES, WIRE, envelope, name_of

from foltr.core.errors import MessageError
from foltr.core.protocol.announcements import (
    MOST_NAMED,
    ModelAnnouncement,
    NamedErasure,
    RoundAnnouncement,
    UnlearningRound,
)
from foltr.core.protocol.codec import Signer, _unpack_as_we_pack, _unpack_carefully, decode, encode, open_envelope
from foltr.core.protocol.fields import CHUNK_BYTES, MAX_CHUNKED_BYTES, MAX_DIM, MAX_MESSAGE_BYTES, SCHEMA_VERSION
from foltr.core.protocol.membership import Join
from foltr.core.protocol.messages import MESSAGE_TYPES
from foltr.core.protocol.signing import EpochSequence, SigningKey, signed_bytes
from foltr.core.protocol.trainings import FedIpsTraining, LinearRankerSpec, RankerSpec, Training
from foltr.core.protocol.updates import DenseDelta, ModelUpdate, UpdateBody


def test_the_bytes_on_the_wire_do_not_move():
    """What is written today is what was always written, and is still read; no type, method or body is missing."""
    for message, topic in MESSAGES:
        name = name_of(message)
        opened = open_envelope(WIRE[name])
        assert encode(message, topic, opened.sequence, KEY) == WIRE[name], name
        assert opened.is_signed_by(KEY.public, topic), name
        assert opened.sequence >= FIRST_SEQUENCE, name
        assert decode(WIRE[name], type(message)) == opened.read(type(message)) == message, name
        assert decode(encode(message), type(message)) == message, name
    assert SCHEMA_VERSION == 1
    assert {message.kind_name for message, _ in MESSAGES} == set(MESSAGE_TYPES)
    captured = [message for message, _ in MESSAGES]
    for field, kind, union in (
        ("training", RoundAnnouncement, Training),
        ("body", ModelUpdate, UpdateBody),
        ("ranker", ModelAnnouncement, RankerSpec),
    ):
        found = {type(getattr(message, field)) for message in captured if isinstance(message, kind)}
        assert found == set(get_args(get_args(union)[0]))


def test_another_version_is_told_who_is_to_upgrade():
    """Also in another form, whose version alone is read."""
    for payload, version, who in [
        (envelope(JOIN, version=0), 0, "the peer to what this side has"),
        (envelope(JOIN, version=2), 2, "this side to what the peer has"),
        (msgpack.packb({"v": 2, "header": [1], "x": None}), 2, "this side to what the peer has"),
    ]:
        with pytest.raises(MessageError) as caught:
            decode(payload, Join)
        told = f"schema version {version}; this side has version 1: upgrade {who}"
        assert (caught.value.code, caught.value.detail) == ("unsupported_version", told)


def test_every_changed_bit_breaks_the_signature():
    """Of topic, kind, sequence number and body: other bytes are signed; one bit of each byte is verified, too."""
    for message, topic in MESSAGES:
        name = name_of(message)
        opened = open_envelope(WIRE[name])
        kinds, sequences = changed_bits(opened.kind.encode()), changed_bits(opened.sequence.to_bytes(8, "big"))
        forged = [(opened, changed.decode("latin-1")) for changed in changed_bits(topic.encode())]
        forged += [(opened._replace(kind=changed.decode("latin-1")), topic) for changed in kinds]
        forged += [(opened._replace(sequence=int.from_bytes(changed, "big")), topic) for changed in sequences]
        forged += [(opened._replace(body=changed), topic) for changed in changed_bits(opened.body)]
        signed = {signed_bytes(whose, one.kind, one.sequence, one.body) for one, whose in forged}
        assert len(signed - {signed_bytes(topic, opened.kind, opened.sequence, opened.body)}) == len(forged), name
        tried = [forged[8 * byte + byte % 8] for byte in range(len(forged) // 8)]
        assert not any(one.is_signed_by(KEY.public, whose) for one, whose in tried), name


def test_every_changed_bit_of_a_signature_and_every_other_key_breaks_it():
    """All 512; only the public key of the signer fits, and an unsigned message fits none."""
    message, topic = MESSAGES[0]
    opened = open_envelope(WIRE[name_of(message)])
    forged = [opened._replace(signature=changed) for changed in changed_bits(opened.signature)]
    assert not any(envelope.is_signed_by(KEY.public, topic) for envelope in forged)
    assert not opened.is_signed_by(SigningKey(bytes(32)).public, topic)
    unsigned = open_envelope(encode(message, topic, FIRST_SEQUENCE))
    assert unsigned.signature == b""
    assert not unsigned.is_signed_by(KEY.public, topic)


def changed_bits(data):
    """``data`` with each of its bits changed in turn."""
    for i in range(8 * len(data)):
        changed = bytearray(data)
        changed[i // 8] ^= 1 << i % 8
        yield bytes(changed)


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
    for sequence in (0, 7, 2**63 - 1):
        assert open_envelope(signer.sign(leave, topic, sequence)).sequence == sequence
    assert open_envelope(Signer(None, EpochSequence()).sign(leave, topic)).signature == b""


def captured(kind):
    return next(message for message, _ in MESSAGES if isinstance(message, kind))


def test_the_largest_logging_policy_fits_the_announcement_of_a_round():
    """64 KiB of weights are far below what one message may have; a step that names the most erasures is read."""
    training = FedIpsTraining(logging_policy=bytes(65_536))
    announced = captured(RoundAnnouncement).model_copy(update={"training": training})
    wire = encode(announced, "t" * 200, 2**63 - 1, KEY)
    assert len(wire) < MAX_MESSAGE_BYTES / 2
    assert decode(wire, RoundAnnouncement) == announced
    entries = [NamedErasure(audit_seq=number + 1, audit_hash=bytes(32)) for number in range(MOST_NAMED)]
    step = captured(UnlearningRound).model_copy(update={"erasures": entries})
    assert decode(encode(step, "t", 1, KEY), UnlearningRound) == step


@pytest.mark.parametrize(("dim", "most_bytes"), [(60_000, MAX_MESSAGE_BYTES), (MAX_DIM, MAX_CHUNKED_BYTES)])
def test_the_largest_rankers_fit_a_message_or_the_chunks(dim, most_bytes):
    """The bounds on vectors, on chunks and on what they make up agree, for a model and for an update."""
    weights = bytes(4 * dim)
    model = ModelAnnouncement(
        federation="f" * 64, version=2**31 - 1, ranker=LinearRankerSpec(n_features=dim), weights=weights
    )
    largest = {"federation": "f" * 64, "client_id": "c" * 64, "round": 2**31 - 1, "base_version": 2**31 - 1}
    update = captured(ModelUpdate).model_copy(update={**largest, "body": DenseDelta(dim=dim, values=weights)})
    for message in (model, update):
        wire = encode(message, "t" * 200, 2**63 - 1, KEY)
        assert len(wire) <= most_bytes <= 1000 * CHUNK_BYTES
        assert open_envelope(wire, most_bytes).read(type(message)) == message


def test_what_is_packed_as_we_pack_it_reads_as_what_is_read_with_care():
    """Other clients may pack differently, and a refusal says how a message breaks the protocol."""
    for message, _ in MESSAGES:
        wire, longest_list = WIRE[name_of(message)], type(message).longest_list
        for data, longest in ((wire, 0), (open_envelope(wire).body, longest_list)):
            assert _unpack_as_we_pack(data, longest) == _unpack_carefully(data, "message", longest), message
    for message, _ in MESSAGES:
        assert msgpack.packb(message.packed()) == msgpack.packb(message.model_dump()), message
    for data in [
        b"\x82\xa1a\x01\xa1a\x02",  # a key twice
        b"\x81\xa1a\xcd\x00\x01",  # a number in more bytes than it needs
        b"\x81\xa1a\xca\x00\x00\x00\x00",  # a number of half the precision
        msgpack.packb([{"a": 1}]),
        msgpack.packb({"a": 1}) + b"\x00",
        msgpack.packb({"a": 1})[:-1],
        msgpack.packb({str(i): i for i in range(65)}),
        msgpack.packb({"a": list(range(65))}),
        b"",
    ]:
        assert _unpack_as_we_pack(data, 0) is None, data
