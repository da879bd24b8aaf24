"""Large updates from their chunks: what is asked for, what is refused, and that it stays within its bounds."""

import numpy as np
import pytest
from support.made_updates import dense, made_update

from foltr.broker.link import InboundMessage
from foltr.core.methods.bodies import BodySpec
from foltr.core.protocol.chunks import chunk_of, manifest_of
from foltr.core.protocol.codec import encode, open_envelope
from foltr.core.protocol.enrolment import issue_enrolment
from foltr.core.protocol.fields import CHUNK_BYTES, pack_vector, payload_digest
from foltr.core.protocol.membership import Join
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.tickets import MAX_TICKET_BYTES
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.core.protocol.updates import MaskedVector
from foltr.core.secure.norm_proof import proof_shape
from foltr.federator.deciding.members import Members
from foltr.federator.reading import (
    ReceivedMembership,
    ReceivedUpdate,
    RefusedMessage,
    Signed,
    UpdateLimits,
    read_message,
)
from foltr.federator.reassembly import (
    IDLE_S,
    KEPT_AT_MOST_S,
    OVERHEAD_BYTES,
    PART_KEEPS_S,
    READ_AGAIN_AFTER_S,
    RETRY_AFTER_S,
    Assembler,
    ChunkAnswer,
)

TOPICS = Topics("mail")
N_FEATURES = 100_000  # 400,000 bytes: three chunks
LIMITS = UpdateLimits(BodySpec("dense", N_FEATURES, n_values=N_FEATURES), 100)
OPERATOR = SigningKey.generate()
KEYS = {name: SigningKey.generate() for name in ("a", "b", "c", "d")}
NOW = 1_000.0


@pytest.fixture
def members():
    """Everybody has joined but d."""
    known = Members("mail", OPERATOR.public)
    for client_id in ("a", "b", "c"):
        key = KEYS[client_id]
        enrolment = issue_enrolment(OPERATOR, "mail", client_id, key.public, 1, 0.0)
        topic = TOPICS.client(client_id, ClientTopic.JOIN)
        join = Join(federation="mail", client_id=client_id, sdk_version="1", enrolment=enrolment)
        payload = encode(join, topic, 1, key)
        signed = Signed(topic, open_envelope(payload))
        known.apply(ReceivedMembership(client_id, "joined", signed, payload_digest(payload), "1", enrolment))
    return known


class Sender:
    """A device's large update, and the federator's assembler that it goes to."""

    def __init__(self, assembler, members, client_id="a", *, value=1.0, n_features=N_FEATURES, payload=None, body=None):
        self.assembler, self.members, self.client_id = assembler, members, client_id
        self.key = KEYS[client_id]
        update = made_update(body or dense(np.full(n_features, value)), client_id=client_id)
        self.payload = payload or encode(update, TOPICS.client(client_id, ClientTopic.UPDATES), 7, self.key)
        self.manifest = manifest_of(self.payload, "mail", client_id)

    def send(self, part, now=NOW, key=None):
        topic = TOPICS.client(self.client_id, ClientTopic.CHUNKS)
        message = InboundMessage(topic, encode(part, topic, 7, key or self.key), retained=False)
        return self.assembler.add_part(read_message(TOPICS, LIMITS, message), self.members, now)

    def offer(self, now=NOW, key=None):
        return self.send(self.manifest, now, key)

    def chunk(self, index, now=NOW, key=None, **changes):
        chunk = chunk_of(self.manifest, self.payload, index).model_copy(update=changes)
        return self.send(chunk, now, key)

    def send_all(self, now=NOW):
        """Offer and send what is asked for; returns what came of the last chunk."""
        for index in self.offer(now).missing:
            result = self.chunk(index, now)
        return result


@pytest.fixture
def assembler():
    return Assembler(TOPICS, LIMITS)


@pytest.fixture
def sender(assembler, members):
    return Sender(assembler, members)


def test_an_offer_is_answered_with_what_is_missing(sender):
    """Named as the whole update would be, so that the device knows which one is meant."""
    answer = sender.offer()
    assert answer == ChunkAnswer("a", ReceiptCode.INCOMPLETE, payload_digest(sender.payload), missing=[0, 1, 2])
    assert sender.chunk(1) is None
    assert sender.offer().missing == [0, 2]


def test_the_last_chunk_brings_the_update(sender):
    """As if it had come in one message: same offer, same values, its own signature."""
    update = sender.send_all()
    assert isinstance(update, ReceivedUpdate)
    assert (update.header.client_id, update.header.update_id, update.header.round) == ("a", "a" * 32, 4)
    assert update.body == pack_vector(np.full(N_FEATURES, 1.0))
    assert update.digest == payload_digest(sender.payload)
    assert update.signed.by(KEYS["a"].public)


def test_a_copy_of_a_chunk_decides_nothing(sender):
    """Neither before the update is whole nor after it."""
    sender.offer()
    assert [sender.chunk(0), sender.chunk(0), sender.chunk(1)] == [None] * 3
    assert isinstance(sender.chunk(2), ReceivedUpdate)
    assert [sender.chunk(index) for index in (0, 1, 2)] == [None] * 3


def test_a_device_that_missed_the_receipt_need_not_send_again(sender):
    """It offers once more, and the update is decided once more: the receipt will say duplicate."""
    sender.send_all()
    assert sender.offer(NOW + READ_AGAIN_AFTER_S / 2) is None
    assert isinstance(sender.offer(NOW + READ_AGAIN_AFTER_S), ReceivedUpdate)


def test_bytes_that_were_changed_are_asked_for_again(sender):
    """All of them, since nothing tells which; the update itself is not refused for it."""
    sender.offer()
    sender.chunk(0, data=bytes(CHUNK_BYTES))
    sender.chunk(1)
    answer = sender.chunk(2)
    assert (answer.code, answer.missing) == (ReceiptCode.INCOMPLETE, [0, 1, 2])
    assert isinstance(sender.send_all(), ReceivedUpdate)


def test_chunks_of_nothing_that_was_offered_are_passed_over(sender, assembler):
    """This process may not be the one that took the offer; it takes no memory for them either."""
    assert sender.chunk(0) is None
    assert (len(assembler), assembler.n_bytes) == (0, 0)
    assert sender.offer().missing == [0, 1, 2]


def test_a_new_update_replaces_the_old_one(sender, assembler, members):
    """One for each client; late chunks of the old one do not disturb it."""
    sender.offer()
    newer = Sender(assembler, members, value=2.0)
    assert newer.offer().missing == [0, 1, 2]
    assert sender.chunk(0) is None
    assert newer.offer().missing == [0, 1, 2]
    assert len(assembler) == 1
    assert isinstance(newer.send_all(), ReceivedUpdate)


def test_an_assembled_update_is_read_like_any_other(assembler, members):
    """Of another shape, or not an update at all: refused by its bytes."""
    other = Sender(assembler, members, n_features=N_FEATURES - 1)
    refused = other.send_all()
    assert (refused.code, refused.update_id) == (ReceiptCode.WRONG_SHAPE, "a" * 32)
    junk = Sender(assembler, members, payload=b"\xc1" * 300_000)
    refused = junk.send_all()
    assert (refused.code, refused.payload_digest) == (ReceiptCode.MALFORMED, payload_digest(junk.payload))


def test_an_update_without_values_is_never_large(members):
    """A seed and two numbers: who offers more than the names beside them take is refused before it has a place."""
    assembler = Assembler(TOPICS, UpdateLimits(BodySpec("evolution", N_FEATURES, antithetic=True), 100))
    refused = Sender(assembler, members).offer()
    assert (refused.code, len(assembler)) == (ReceiptCode.TOO_LARGE, 0)
    assert refused.detail.endswith(f"has at most {OVERHEAD_BYTES}")


def test_a_stranger_takes_no_memory(assembler, members):
    """It has to join first; the receipt names its update, so it will send it again."""
    stranger = Sender(assembler, members, "d")
    refused = stranger.offer()
    assert isinstance(refused, RefusedMessage)
    assert (refused.code, refused.payload_digest) == (ReceiptCode.UNKNOWN_CLIENT, payload_digest(stranger.payload))
    assert len(assembler) == 0


def test_a_forged_part_changes_nothing_and_names_nothing(sender):
    """Not the manifest, nor a chunk; the owner of the topic is not made to drop its update for it."""
    forger = SigningKey.generate()
    refused = sender.offer(key=forger)
    assert (refused.code, refused.payload_digest) == (ReceiptCode.BAD_SIGNATURE, None)
    sender.offer()
    assert sender.chunk(0, key=forger, data=bytes(CHUNK_BYTES)).code is ReceiptCode.BAD_SIGNATURE
    assert sender.offer().missing == [0, 1, 2]
    assert isinstance(sender.send_all(), ReceivedUpdate)


def test_nothing_is_larger_than_this_federations_updates(assembler, members):
    """Told at once, before a chunk is sent."""
    for n_bytes, code in [
        (4 * N_FEATURES + OVERHEAD_BYTES, ReceiptCode.INCOMPLETE),
        (4 * N_FEATURES + OVERHEAD_BYTES + 1, ReceiptCode.TOO_LARGE),
    ]:
        assert Sender(assembler, members, payload=bytes(n_bytes)).offer().code is code, n_bytes


@pytest.mark.parametrize("n_beside", [0, 2, 3, 5])
@pytest.mark.parametrize("n_words", [0, proof_shape(N_FEATURES, 1).n_proof])
def test_a_masked_update_fits_with_the_longest_ticket_and_proofs_or_none(members, n_words, n_beside):
    """Whatever the policy of the day asks for, which may be another one tomorrow."""
    assembler = Assembler(TOPICS, UpdateLimits(BodySpec("masked", N_FEATURES, n_values=N_FEATURES), 100))
    n_summed = N_FEATURES + n_beside
    n_words += 3 * n_beside
    body = MaskedVector(
        dim=n_summed, values=bytes(8 * n_summed), ticket=bytes(MAX_TICKET_BYTES), proof=bytes(8 * n_words)
    )
    update = Sender(assembler, members, body=body).send_all()
    assert isinstance(update, ReceivedUpdate)
    assert (update.body, update.ticket) == (bytes(8 * (n_summed + n_words)), bytes(MAX_TICKET_BYTES))


def senders(members, room_for):
    """An assembler for so many updates, and devices a, b and c."""
    one = Sender(None, members)
    assembler = Assembler(TOPICS, LIMITS, max_bytes=room_for * len(one.payload) + 100)
    return assembler, *(Sender(assembler, members, name) for name in ("a", "b", "c"))


def test_a_part_and_a_manifest_again_and_again_keep_nobody_out(members):
    """What was received is kept while parts arrive, and not while the manifest does."""
    _assembler, a, _b, c = senders(members, room_for=1)
    a.offer()
    a.chunk(0)
    a.chunk(1)
    a.offer(NOW + 2 * PART_KEEPS_S - 1)
    assert c.offer(NOW + 2 * PART_KEEPS_S - 1).code is ReceiptCode.BUSY
    a.offer(NOW + 2 * PART_KEEPS_S)
    c.offer(NOW + 2 * PART_KEEPS_S)
    assert c.chunk(0, NOW + 2 * PART_KEEPS_S) is None
    assert a.offer(NOW + 2 * PART_KEEPS_S).missing == [0, 1, 2]


def test_parts_do_not_keep_their_place_for_long(members):
    """Many at once are not paid for hours: the next one has to come within half a minute."""
    n_features = 1_000_000  # 21 chunks
    limits = UpdateLimits(BodySpec("dense", n_features, n_values=n_features), 100)
    assembler = Assembler(TOPICS, limits, max_bytes=1)
    a = Sender(assembler, members, "a", n_features=n_features)
    b = Sender(assembler, members, "b", payload=bytes(300_000))
    for index in a.offer().missing[:-1]:
        a.chunk(index)
    assert b.offer(NOW + KEPT_AT_MOST_S - 1).code is ReceiptCode.BUSY
    b.offer(NOW + KEPT_AT_MOST_S)
    assert b.chunk(0, NOW + KEPT_AT_MOST_S) is None
    assert len(a.offer(NOW + KEPT_AT_MOST_S).missing) == 21


def test_who_is_farther_goes_on_and_of_two_as_far_who_began_first(members):
    """So those who filled all room together do not wait for each other."""
    _assembler, a, b, _ = senders(members, room_for=1)
    a.offer()
    b.offer()
    b.chunk(0)
    a.chunk(0)
    busy = b.chunk(1)
    assert (busy.code, busy.retry_after_s) == (ReceiptCode.BUSY, RETRY_AFTER_S)
    assert busy.payload_digest == payload_digest(b.payload)
    assert a.chunk(1) is None
    assert b.offer().code is ReceiptCode.BUSY
    assert isinstance(a.chunk(2), ReceivedUpdate)


def test_who_is_at_rest_makes_room_the_longest_unused_first(members):
    """A device that went away with half an update must not keep the others out."""
    _assembler, a, b, c = senders(members, room_for=1)
    a.offer()
    b.offer()
    b.chunk(0)
    a.chunk(0, NOW + 1)
    c.offer(NOW + 1 + PART_KEEPS_S)
    assert c.chunk(0, NOW + 1 + PART_KEEPS_S) is None
    assert a.offer(NOW + 1 + PART_KEEPS_S).missing == [1, 2]
    assert b.offer(NOW + 1 + PART_KEEPS_S).missing == [0, 1, 2]


def test_what_is_complete_makes_room_at_once(members):
    """It is only kept for a receipt that was missed; and whatever the bound, very large updates come one by one."""
    assembler = Assembler(TOPICS, LIMITS, max_bytes=1)
    a, b = Sender(assembler, members, "a"), Sender(assembler, members, "b")
    a.offer()
    b.offer()
    assert isinstance(a.send_all(), ReceivedUpdate)
    assert b.offer().code is ReceiptCode.INCOMPLETE
    assert b.chunk(0) is None
    assert a.offer(NOW + 1).missing == [0, 1, 2]
    assert assembler.n_bytes <= len(a.payload)
    assert isinstance(b.send_all(), ReceivedUpdate)


def test_nobody_goes_for_a_newcomer_that_does_not_fit_all_the_same(members):
    """What is complete stays if letting it go is not enough."""
    assembler = Assembler(TOPICS, LIMITS, max_bytes=450_000)
    done = Sender(assembler, members, "a", payload=bytes(10_000))
    done.send_all()
    b = Sender(assembler, members, "b")
    b.offer()
    b.chunk(0)
    b.chunk(1)
    c = Sender(assembler, members, "c")
    assert c.offer().code is ReceiptCode.BUSY
    assert (len(assembler), assembler.n_bytes) == (2, 10_000 + 2 * CHUNK_BYTES)


def test_what_is_idle_is_dropped(members):
    """After ten minutes, by the next one that comes."""
    assembler, a, b, _ = senders(members, room_for=3)
    a.offer()
    b.offer(NOW + IDLE_S - 1)
    assert len(assembler) == 2
    b.chunk(0, NOW + IDLE_S)
    assert len(assembler) == 1
    assert a.offer(NOW + IDLE_S).missing == [0, 1, 2]
    assert b.offer(NOW + IDLE_S).missing == [1, 2]
