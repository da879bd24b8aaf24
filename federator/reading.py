"""Turns bytes on a topic into something that the federator can decide on. No I/O, and stateless.

Nothing is trusted here yet: that takes the client's key (`foltr.federator.deciding.members`).
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from foltr.broker.link import InboundMessage
from foltr.core.errors import MessageError
from foltr.core.methods.bodies import BodySpec, check_body, pack_body
from foltr.core.protocol.codec import Envelope, open_envelope
from foltr.core.protocol.evaluations import Evaluation
from foltr.core.protocol.fields import MAX_CHUNKED_BYTES, MAX_MESSAGE_BYTES, payload_digest
from foltr.core.protocol.membership import Forget, Join, Leave, Status
from foltr.core.protocol.messages import MESSAGE_TYPES
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.core.protocol.updates import Chunk, Manifest, MaskedVector, ModelUpdate, UnlearningUpdate, Vote
from foltr.federator.round import UpdateHeader


@dataclass(frozen=True)
class Signed:
    """The part of a message that proves its sender."""

    topic: str
    envelope: Envelope

    def by(self, public_key: bytes) -> bool:
        return self.envelope.is_signed_by(public_key, self.topic)

    @property
    def sequence(self) -> int:
        return self.envelope.sequence


class ReceivedUpdate(NamedTuple):
    """An update that fits the federation, with its body as it is stored (see `foltr.core.methods.bodies`).

    Attributes:
        ticket: of a masked one, not yet read: that takes its client's key.
        vote, evaluation: None if it came without one, which a masked update always does.
    """

    header: UpdateHeader
    base_hash: bytes
    n_interactions: int
    encoding: str
    body: bytes
    signed: Signed
    digest: bytes
    ticket: bytes | None = None
    vote: Vote | None = None
    evaluation: Evaluation | None = None


@dataclass(frozen=True)
class ReceivedMembership:
    """A client joins or leaves, or its broker reports that it is gone.

    Attributes:
        digest: of its bytes, by which an answer names it.
    """

    client_id: str
    kind: Literal["joined", "left", "online", "offline"]
    signed: Signed
    digest: bytes
    sdk_version: str | None = None
    enrolment: bytes | None = None
    retained: bool = False


@dataclass(frozen=True)
class ReceivedErasureRequest:
    """A client asks to be forgotten."""

    client_id: str
    signed: Signed


@dataclass(frozen=True)
class ReceivedUnlearningUpdate:
    """A client answers a step of an unlearning job with what it learned; its body fits the federation."""

    client_id: str
    update: UnlearningUpdate
    signed: Signed


@dataclass(frozen=True)
class ReceivedChunk:
    """A client offers an update too large for one message, or sends a part of it."""

    client_id: str
    part: Manifest | Chunk
    signed: Signed


@dataclass(frozen=True)
class ChunkAnswer:
    """An answer to a client that sends a large update in chunks: which are missing, or no room now."""

    client_id: str
    code: ReceiptCode
    payload_digest: bytes
    detail: str = ""
    missing: list[int] | None = None
    retry_after_s: float | None = None


@dataclass(frozen=True)
class ReceivedStatement:
    """A roster, a part of one, a policy or an order of the operator, not yet read: that takes the enrolment key."""

    topic: str
    payload: bytes


@dataclass(frozen=True)
class RefusedMessage:
    """A message that broke the protocol; ``client_id`` is the owner of the topic it came on."""

    client_id: str
    topic: ClientTopic
    code: ReceiptCode
    detail: str
    update_id: str | None = None
    round: int | None = None
    payload_digest: bytes | None = None


Reading = (
    ReceivedUpdate
    | ReceivedMembership
    | ReceivedErasureRequest
    | ReceivedUnlearningUpdate
    | ReceivedChunk
    | ReceivedStatement
    | RefusedMessage
)


@dataclass(frozen=True)
class UpdateLimits:
    """The size and shape that an update of the federation may have."""

    spec: BodySpec
    max_interactions: int


def read_message(topics: Topics, limits: UpdateLimits, message: InboundMessage) -> Reading | None:
    """Read what ``message`` asks for; None if no answer is needed (a foreign topic, a cleared status)."""
    if topics.is_operators(message.topic):
        # An empty message clears a retained one.
        cleared = message.topic != topics.operator and not message.payload
        return None if cleared else ReceivedStatement(message.topic, message.payload)
    parsed = topics.parse(message.topic)
    if parsed is None:
        return None
    client_id, topic = parsed
    if topic is ClientTopic.INBOX or not message.payload:
        return None  # its receipt, or a cleared retained message
    try:
        if topic is ClientTopic.UPDATES:
            return read_update(topics, limits, client_id, message.payload)
        signed = Signed(message.topic, open_envelope(message.payload))
        match topic:
            case ClientTopic.JOIN:
                join = signed.envelope.read(Join)
                _check_sender(join, topics.federation, client_id)
                return ReceivedMembership(
                    client_id, "joined", signed, payload_digest(message.payload), join.sdk_version, join.enrolment
                )
            case ClientTopic.LEAVE:
                _check_sender(signed.envelope.read(Leave), topics.federation, client_id)
                return ReceivedMembership(client_id, "left", signed, payload_digest(message.payload))
            case ClientTopic.STATUS:
                status = signed.envelope.read(Status)
                _check_sender(status, topics.federation, client_id)
                kind: Literal["online", "offline"] = "online" if status.online else "offline"
                return ReceivedMembership(
                    client_id, kind, signed, payload_digest(message.payload), retained=message.retained
                )
            case ClientTopic.FORGET:
                _check_sender(signed.envelope.read(Forget), topics.federation, client_id)
                return ReceivedErasureRequest(client_id, signed)
            case ClientTopic.UNLEARNING:
                answer = signed.envelope.read(UnlearningUpdate)
                _check_sender(answer, topics.federation, client_id)
                check_body(answer.body, limits.spec)
                return ReceivedUnlearningUpdate(client_id, answer, signed)
            case ClientTopic.CHUNKS:
                envelope = signed.envelope
                is_manifest = envelope.kind == Manifest.kind_name
                part = envelope.read(Manifest) if is_manifest else envelope.read(Chunk)
                _check_sender(part, topics.federation, client_id)
                return ReceivedChunk(client_id, part, signed)
    except MessageError as error:
        digest = _digest_of_refused(message.payload, topic)
        return RefusedMessage(client_id, topic, ReceiptCode(error.code), error.detail, payload_digest=digest)


def read_update(
    topics: Topics, limits: UpdateLimits, client_id: str, payload: bytes, *, chunked: bool = False
) -> ReceivedUpdate | RefusedMessage:
    """Read the update in ``payload``; ``chunked`` if it was too large for one message."""

    def refused(error: MessageError, update: ModelUpdate | None = None) -> RefusedMessage:
        return RefusedMessage(
            client_id,
            ClientTopic.UPDATES,
            ReceiptCode(error.code),
            error.detail,
            update_id=None if update is None else update.update_id,
            round=None if update is None else update.round,
            payload_digest=payload_digest(payload) if chunked else _digest_of_refused(payload, ClientTopic.UPDATES),
        )

    try:
        envelope = open_envelope(payload, MAX_CHUNKED_BYTES if chunked else MAX_MESSAGE_BYTES)
        update = envelope.read(ModelUpdate)
    except MessageError as error:
        return refused(error)
    try:
        _check_sender(update, topics.federation, client_id)
        check_body(update.body, limits.spec)
        _check_interactions(update, limits)
    except MessageError as error:
        return refused(error, update)
    encoding, body = pack_body(update.body)
    return ReceivedUpdate(
        UpdateHeader(client_id, update.update_id, update.round, update.base_version, update.after, update.through),
        update.base_hash,
        update.n_interactions,
        encoding,
        body,
        Signed(topics.client(client_id, ClientTopic.UPDATES), envelope),
        payload_digest(payload),
        update.body.ticket if isinstance(update.body, MaskedVector) else None,
        update.vote,
        update.evaluation,
    )


def _digest_of_refused(payload: bytes, topic: ClientTopic) -> bytes | None:
    """Return the digest of refused bytes; None if they do not belong on this topic.

    Somebody else may have copied them there from another topic of the same client, which must not count as refused.
    """
    belongs = {ClientTopic.UPDATES: (ModelUpdate,), ClientTopic.CHUNKS: (Manifest, Chunk)}
    kinds = {message.kind_name for message in belongs.get(topic, ())}
    if kinds and len(payload) > MAX_MESSAGE_BYTES:
        return None  # no device sends so much at once; it may be a complete update that belongs in chunks
    try:
        kind = open_envelope(payload).kind
    except MessageError:
        return payload_digest(payload)  # it would be refused on any topic
    belongs_here = not kinds or kind in kinds or kind not in MESSAGE_TYPES  # an unknown kind belongs on none
    return payload_digest(payload) if belongs_here else None


def _check_interactions(update: ModelUpdate, limits: UpdateLimits) -> None:
    if update.n_interactions > limits.max_interactions:
        # It is the update's weight in the mean: a client must not give itself more than was announced. Stale, because
        # it may have been announced before the federator restarted with other settings.
        raise MessageError(
            ReceiptCode.STALE,
            f"{update.n_interactions} interactions; an update has at most {limits.max_interactions}",
        )


def _check_sender(
    message: Join | Leave | Status | ModelUpdate | Forget | UnlearningUpdate | Manifest | Chunk,
    federation: str,
    client_id: str,
) -> None:
    if message.federation != federation:
        raise MessageError(ReceiptCode.WRONG_FEDERATION, f"for {message.federation}; this federation is {federation}")
    if message.client_id != client_id:
        # No names: otherwise a sender could have a forgotten client's name stored.
        raise MessageError(ReceiptCode.CLIENT_MISMATCH, "says it is from another client than the one of its topic")
