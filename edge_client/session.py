"""A device signs what it sends and checks what it receives: sessions, signatures, and the order of announcements.

A session begins with every connection. Its messages are numbered above those of the session before, so that a federator
can refuse older recordings. Its last will, signed before it begins, has the highest number in it.
"""

from collections import deque
from dataclasses import replace

from foltr.broker.link import InboundMessage, LastWill
from foltr.core.errors import DataError, MessageError
from foltr.core.logs import get_logger
from foltr.core.protocol.codec import Envelope, Signer, open_envelope
from foltr.core.protocol.fields import MAX_CHUNKED_BYTES, Message, payload_digest
from foltr.core.protocol.membership import Status
from foltr.core.protocol.receipts import ErasureNotice, MembershipReceipt, ReceiptCode, UpdateReceipt
from foltr.core.protocol.signed_tickets import resign_ticket
from foltr.core.protocol.signing import SessionSequence, SigningKey, epoch_and_number
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.core.protocol.updates import MaskedVector, ModelUpdate
from foltr.edge_client.store.bounds import PendingUpdate
from foltr.edge_client.store.store import DeviceStore
from foltr.edge_client.trust import Trust

log = get_logger(__name__)

_CLAIMS = (ClientTopic.JOIN, ClientTopic.LEAVE)
# A claim is sent again with growing pauses, so a late answer belongs to one of the newest.
_N_CLAIMS = 16


class Session:
    """One device's session with its federator; `begin` begins the next one. It does no I/O itself.

    Args:
        trust: the device's signing key, and the keys it trusts.

    Attributes:
        key: the key that signs this device's messages; None if they are not signed.
    """

    def __init__(self, federation: str, client_id: str, trust: Trust, store: DeviceStore) -> None:
        self.federation = federation
        self.client_id = client_id
        self.topics = topics = Topics(federation)
        self._to_all = (
            *(topics.model, topics.anchor, topics.round, topics.unlearning_round),
            *(topics.federator_status, topics.audit_head, topics.pace),
        )
        self.key = None if trust.credentials is None else trust.credentials.key
        self._store = store
        self.trust = trust
        self._sequence = SessionSequence(store.newest_session())
        self._sequence.begin_session()
        # The joins and leaves of this session, by the digest of their bytes.
        self._claims: deque[bytes] = deque(maxlen=_N_CLAIMS)
        self._signer = Signer(self.key, self._sequence)
        # The newest sequence number by topic and the federator's key.
        self._newest: dict[tuple[str, bytes | None], int] = {}

    def topic(self, topic: ClientTopic) -> str:
        return self.topics.client(self.client_id, topic)

    def sign(self, message: Message, topic: ClientTopic) -> bytes:
        """Return ``message`` as bytes for this device's ``topic``, signed if there is a key."""
        payload = self._signer.sign(message, self.topic(topic))
        if topic in _CLAIMS:
            self._claims.append(payload_digest(payload))
        return payload

    def status(self, *, online: bool) -> Status:
        return Status(federation=self.federation, client_id=self.client_id, online=online)

    def begin(self) -> LastWill:
        """Begin a session, before every connection: above the one before, with a last will above all of this one.

        The will of a forgotten client clears its status, so that the broker keeps nothing of it.
        """
        self._newest.clear()
        self._begin_session()
        topic = self.topic(ClientTopic.STATUS)
        if self._store.forgotten:
            return LastWill(topic, b"")
        return LastWill(topic, self._signer.sign(self.status(online=False), topic, self._sequence.last_will()))

    def begin_above(self, newest_sequence: int) -> None:
        """Begin a session above what the federator has seen: the store was lost, and the clock is behind what it was.

        The broker keeps this connection's last will, which is too old to be trusted, until the next one.
        """
        self._sequence.begin_above(newest_sequence)
        self._begin_session()

    def signed_pending_update(self) -> PendingUpdate | None:
        """Return the pending update, signed with today's key: the device may have been enrolled again."""
        pending = self._store.pending_update()
        if pending is None:
            return None
        try:
            envelope = open_envelope(pending.payload, MAX_CHUNKED_BYTES)
            if self.key is None or envelope.is_signed_by(self.key.public, self.topic(ClientTopic.UPDATES)):
                return pending
            payload = self.sign(_with_ticket_of(self.key, envelope.read(ModelUpdate)), ClientTopic.UPDATES)
        except MessageError as error:
            # Its interactions go into a new update, which counts only if this one has not.
            log.warning("pending_update_not_understood", client_id=self.client_id, cause=str(error))
            self._store.settle(self._store.watermark() or 0, answered=pending.update_id)
            return None
        self._store.replace_payload(pending.update_id, payload)
        return replace(pending, payload=payload)

    def _begin_session(self) -> None:
        session = self._sequence.begin_session()
        self._claims.clear()
        if self._store.forgotten:
            return  # it would reveal when the device was online
        try:
            self._store.put_session(session)
        except DataError as error:
            log.warning("session_not_stored", cause=str(error))  # the clock makes up for it, if it is right

    def open(self, message: InboundMessage) -> Envelope:
        """Open an envelope of the federator that is not older than the newest on its topic, also across restarts.

        Raises:
            MessageError: ``bad_signature``, ``replayed``, or it cannot be read.
        """
        announced = message.topic in self._to_all
        envelope = open_envelope(message.payload)
        self._check_signature(envelope, message.topic, repeated=announced)
        topic, key = message.topic, self.trust.federator_key
        newest = self._newest.get((topic, key))
        if newest is None:
            newest = 0 if key is None else self._store.newest_believed(topic, key)
        if envelope.sequence < newest:
            raise MessageError(ReceiptCode.REPLAYED, _what_is_older(envelope.sequence, newest))
        # An unsigned message, which anybody may have sent, must not make later ones look old.
        if envelope.sequence > newest and key is not None and not self._store.forgotten:
            self._store.note_believed(topic, key, envelope.sequence)
        self._newest[topic, key] = envelope.sequence
        return envelope

    def open_reassembled(self, payload: bytes, topic: str) -> Envelope:
        """Open a model that came in chunks, as if on its topic; its manifest was already checked for age.

        Raises:
            MessageError: ``bad_signature``, or it cannot be read.
        """
        envelope = open_envelope(payload, MAX_CHUNKED_BYTES)
        self._check_signature(envelope, topic, repeated=True)
        return envelope

    def _check_signature(self, envelope: Envelope, topic: str, *, repeated: bool) -> None:
        key = self.trust.federator_key
        if key is not None and not envelope.is_signed_by(key, topic, repeated=repeated):
            raise MessageError(ReceiptCode.BAD_SIGNATURE, "not signed by the federator these credentials name")

    def is_for_us(self, receipt: UpdateReceipt | MembershipReceipt | ErasureNotice) -> bool:
        return (receipt.federation, receipt.client_id) == (self.federation, self.client_id)

    def is_of_this_session(self, receipt: MembershipReceipt) -> bool:
        """Whether a receipt answers a join or a leave of this session, by its bytes.

        A sequence number is not enough: another process of this name, with another key, may have begun in the same
        millisecond. A device that takes the answer to the other's join has not joined, and its updates are refused.
        """
        return receipt.payload_digest in self._claims


def _with_ticket_of(key: SigningKey, update: ModelUpdate) -> ModelUpdate:
    """Return the update with its ticket signed by this key, if it has one."""
    body = update.body
    if not isinstance(body, MaskedVector):
        return update
    ticket = resign_ticket(key, body.ticket)
    return update.model_copy(update={"body": body.model_copy(update={"ticket": ticket})})


def _what_is_older(sequence: int, newest: int) -> str:
    """Say in which part it is older than what was received: its epoch, the federation's claim, or its number."""
    (epoch, number), (newest_epoch, newest_number) = epoch_and_number(sequence), epoch_and_number(newest)
    if epoch < newest_epoch:
        return f"of epoch {epoch}; {newest_epoch} was heard already"
    return f"message {number} of epoch {epoch}; {newest_number} was heard already"
