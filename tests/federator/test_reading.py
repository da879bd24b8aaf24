"""From bytes on a topic to something to decide about: nothing raises, and the topic's owner is answered."""

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foltr.broker.link import InboundMessage
from foltr.core.methods.bodies import BodySpec, unpack_body
from foltr.core.protocol.codec import encode, open_envelope
from foltr.core.protocol.fields import MAX_ABS_DELTA, pack_vector, payload_digest
from foltr.core.protocol.membership import Join, Leave, Status
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.core.protocol.updates import Chunk, DenseDelta, EvolutionPair, Manifest, ModelUpdate, PartDelta
from foltr.federator.reading import (
    ReceivedChunk,
    ReceivedMembership,
    ReceivedStatement,
    ReceivedUpdate,
    RefusedMessage,
    Signed,
    UpdateLimits,
    read_message,
    read_update,
)
from foltr.federator.round import UpdateHeader

TOPICS = Topics("mail")
UPDATE_ID = "0123456789abcdef" * 2
LIMITS = UpdateLimits(BodySpec("dense", dim=3, n_values=3), max_interactions=100)

A_LEAVE = encode(Leave(federation="mail", client_id="device-7"))


def read(topic, payload, client="device-7"):
    return read_topic(TOPICS.client(client, topic), payload)


def read_topic(name, payload, *, retained=False):
    return read_message(TOPICS, LIMITS, InboundMessage(name, payload, retained))


def update_fields(values=(1.0, 2.0, 3.0)):
    return {
        "federation": "mail",
        "client_id": "device-7",
        "update_id": UPDATE_ID,
        "round": 4,
        "base_version": 3,
        "after": 20,
        "through": 25,
        "base_hash": bytes(16),
        "n_interactions": 5,
        "body": DenseDelta(dim=len(values), values=pack_vector(values)),
    }


def update(values=(1.0, 2.0, 3.0), **fields):
    return encode(ModelUpdate(**{**update_fields(values), **fields}))


def test_an_update_is_offered_as_sent():
    """Who, which, for which round, on which model, and the values to the byte."""
    payload = update()
    assert read(ClientTopic.UPDATES, payload) == ReceivedUpdate(
        UpdateHeader("device-7", UPDATE_ID, 4, 3, after=20, through=25),
        base_hash=bytes(16),
        n_interactions=5,
        encoding="dense_f32",
        body=pack_vector([1.0, 2.0, 3.0]),
        signed=Signed(TOPICS.client("device-7", ClientTopic.UPDATES), open_envelope(payload)),
        digest=payload_digest(payload),
    )


def test_membership():
    """A join, a leave and a status say what they say."""
    for topic, message, expected in [
        ("join", Join(federation="mail", client_id="device-7", sdk_version="1"), ("joined", "1")),
        ("leave", Leave(federation="mail", client_id="device-7"), ("left", None)),
        ("status", Status(federation="mail", client_id="device-7", online=True), ("online", None)),
        ("status", Status(federation="mail", client_id="device-7", online=False), ("offline", None)),
    ]:
        kind, sdk_version = expected
        payload = encode(message)
        asked = read(ClientTopic(topic), payload)
        assert (asked.client_id, asked.kind, asked.sdk_version) == ("device-7", kind, sdk_version), topic
        assert asked.digest == payload_digest(payload), topic
        assert isinstance(asked, ReceivedMembership), topic


def test_an_update_that_was_read_is_refused_by_its_id():
    """The owner of the topic is told, and which of its updates it was."""
    for payload, code, case in [
        (update(federation="other"), "wrong_federation", "another federation"),
        (update(client_id="device-8"), "client_mismatch", "another client's name"),
        (update((1.0, 2.0)), "wrong_shape", "too few values"),
        (update((1.0, 2.0, 3.0, 4.0)), "wrong_shape", "too many values"),
        (update((1.0, np.nan, 3.0)), "not_finite", "NaN"),
        (update((1.0, np.inf, 3.0)), "not_finite", "infinity"),
        (update((1.0, 2.0, -np.inf)), "not_finite", "minus infinity"),
        (update((1.0, 2 * MAX_ABS_DELTA, 3.0)), "out_of_range", "a weight that jumps"),
        (update((1.0, -2 * MAX_ABS_DELTA, 3.0)), "out_of_range", "a weight that falls"),
        (update(n_interactions=101, through=200), "stale", "more interactions than announced"),
        (update((np.nan,) * 4), "wrong_shape", "the shape comes first"),
        (update((np.nan,) * 3, client_id="device-8"), "client_mismatch", "the sender comes first"),
    ]:
        refused = read(ClientTopic.UPDATES, payload)
        assert isinstance(refused, RefusedMessage), case
        assert (refused.client_id, refused.topic, refused.code) == ("device-7", ClientTopic.UPDATES, code), case
        assert (refused.update_id, refused.round) == (UPDATE_ID, 4), case
        assert refused.payload_digest == payload_digest(payload), case


PART = BodySpec("part", dim=3, start=0, n_values=2)
EVOLUTION = BodySpec("evolution", dim=3, antithetic=True)


def test_an_update_of_another_method_is_stored_in_its_own_encoding():
    """A part of the weights, or a seed and what it earned: in bytes that can be read back."""
    for spec, body, stored in [
        (PART, PartDelta(dim=3, start=0, values=pack_vector([1.0, 2.0])), ("part_f32", bytes(8) + pack_vector([1, 2]))),
        (EVOLUTION, EvolutionPair(seed=7, plus=0.5, minus=0.25), ("evolution", struct.pack("<Qdd", 7, 0.5, 0.25))),
    ]:
        topic, limits = TOPICS.client("device-7", ClientTopic.UPDATES), UpdateLimits(spec, max_interactions=100)
        offered = read_message(TOPICS, limits, InboundMessage(topic, update(body=body), False))
        assert (offered.encoding, offered.body) == stored, spec
        assert unpack_body(*stored, 3) == body, spec
        dense = read_message(TOPICS, limits, InboundMessage(topic, update(), False))
        assert (dense.code, dense.update_id) == ("wrong_shape", UPDATE_ID), spec
        greedy = read_message(
            TOPICS, limits, InboundMessage(topic, update(body=body, n_interactions=101, through=200), False)
        )
        assert greedy.code == "stale", spec


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        pytest.param(b"\xc1", "malformed", id="not msgpack"),
        pytest.param(update()[:-1], "malformed", id="truncated"),
        pytest.param(A_LEAVE, "malformed", id="a leave"),
        pytest.param(update().replace(b"\xa6update", b"\xa6upside", 1), "malformed", id="a kind that nobody knows"),
        pytest.param(update().replace(b"\xa1v\x01", b"\xa1v\x02"), "unsupported_version", id="newer"),
        pytest.param(bytes(300_000), "too_large", id="too large"),
    ],
)
@pytest.mark.parametrize("topic", [ClientTopic.UPDATES, ClientTopic.JOIN])
def test_what_cannot_be_read_is_refused_to_the_owner_of_the_topic(topic, payload, code):
    """Nobody else is answered, and no update_id is made up."""
    refused = read(topic, payload)
    assert isinstance(refused, RefusedMessage)
    assert (refused.client_id, refused.topic, refused.code) == ("device-7", topic, code)
    assert (refused.update_id, refused.round) == (None, None)
    # What may have been copied from another topic of the client is not named.
    copied = topic is ClientTopic.UPDATES and (code == "too_large" or payload == A_LEAVE)
    assert refused.payload_digest == (None if copied else payload_digest(payload))


def test_nobody_speaks_for_another():
    """A join, leave or status in another's name has no effect on that other, not even a receipt."""
    for topic, kind, more in [
        (ClientTopic.JOIN, Join, {"sdk_version": "1"}),
        (ClientTopic.LEAVE, Leave, {}),
        (ClientTopic.STATUS, Status, {"online": True}),
    ]:
        wrong = ("other", "device-7", ReceiptCode.WRONG_FEDERATION), ("mail", "device-8", ReceiptCode.CLIENT_MISMATCH)
        for federation, client, code in wrong:
            refused = read(topic, encode(kind(federation=federation, client_id=client, **more)))
            assert isinstance(refused, RefusedMessage), topic
            assert (refused.client_id, refused.code) == ("device-7", code), topic


def test_a_cleared_topic_asks_for_nothing():
    """A device that left clears its retained status with an empty message, the federator what nobody may retain."""
    for topic in ClientTopic:
        assert read(topic, b"") is None, topic
    assert read_topic(TOPICS.roster, b"") is None


def test_a_foreign_topic_asks_for_nothing():
    """There is nobody to answer."""
    for topic in [
        "foltr/v1/mail/model",
        "foltr/v1/mail/model/chunks/0",
        "foltr/v1/other/clients/device-7/join",
        TOPICS.client("device-7", "inbox"),
        "",
    ]:
        assert read_topic(topic, update()) is None, topic


def test_who_signed_is_known_by_topic_and_envelope():
    """The signature is for the topic the message came on, so the same bytes on another topic are nobody's."""
    key, other = SigningKey.generate(), SigningKey.generate()
    topic = TOPICS.client("device-7", ClientTopic.JOIN)
    payload = encode(Join(federation="mail", client_id="device-7", sdk_version="1", enrolment=b"e"), topic, 12, key)
    asked = read_topic(topic, payload)
    assert (asked.enrolment, asked.signed.sequence) == (b"e", 12)
    assert asked.signed.by(key.public)
    assert not asked.signed.by(other.public)
    assert not Signed(TOPICS.client("device-8", ClientTopic.JOIN), asked.signed.envelope).by(key.public)


def test_a_status_says_whether_the_broker_kept_it():
    """What the broker repeats at every connection is no news, and no replay either."""
    payload = encode(Status(federation="mail", client_id="device-7", online=True))
    topic = TOPICS.client("device-7", ClientTopic.STATUS)
    assert [read_topic(topic, payload, retained=retained).retained for retained in (True, False)] == [True, False]


def test_what_the_operator_says_is_passed_on_unread():
    """Only the enrolment key can tell whether it was the operator, and that is not known here."""
    for topic in [TOPICS.roster, TOPICS.roster_chunk(3), TOPICS.operator]:
        for payload in (b"\xc1", bytes(300_000), b"anything"):
            assert read_topic(topic, payload) == ReceivedStatement(topic, payload), topic


def test_a_large_update_comes_in_parts():
    """The offer and its chunks share a topic; each is the topic's owner's."""
    for part in [
        Manifest(federation="mail", client_id="device-7", digest=bytes(32), size=300_000, n_chunks=2),
        Chunk(federation="mail", client_id="device-7", digest=bytes(32), index=1, data=b"x"),
    ]:
        offered = read(ClientTopic.CHUNKS, encode(part))
        assert isinstance(offered, ReceivedChunk), part
        assert (offered.client_id, offered.part) == ("device-7", part), part
        refused = read(ClientTopic.CHUNKS, encode(part.model_copy(update={"client_id": "device-8"})))
        assert (refused.client_id, refused.code) == ("device-7", "client_mismatch"), part


def test_an_update_that_came_in_chunks_may_be_larger():
    """One message has at most 256 KiB; what was put together from chunks has room for the largest ranker."""
    payload = update((0.5,) * 70_000)
    limits = UpdateLimits(BodySpec("dense", 70_000, n_values=70_000), 100)
    assert read_update(TOPICS, limits, "device-7", payload).code is ReceiptCode.TOO_LARGE
    assert isinstance(read_update(TOPICS, limits, "device-7", payload, chunked=True), ReceivedUpdate)


@settings(derandomize=True)
@given(st.sampled_from(ClientTopic), st.binary(max_size=80), st.integers(0, 200))
def test_no_bytes_raise(topic, noise, at):
    """Noise, alone or inside a valid update, is refused or ignored; the federator goes on."""
    for payload in (noise, update()[:at] + noise, update()[:at] + noise + update()[at:]):
        assert isinstance(
            read(topic, payload), ReceivedUpdate | ReceivedMembership | ReceivedChunk | RefusedMessage | None
        )
