"""A device signs what it sends and checks what it receives: sessions, signatures, and the order of announcements.

A session begins with every connection. Its messages are numbered above those of the session before, so that a
federator can refuse what was recorded earlier; its last will, signed before it begins, is above everything else in it.
"""

from collections import deque
from dataclasses import replace

from foltr.broker.link import InboundMessage, LastWill
from foltr.core.errors import DataError, MessageError
from foltr.core.logs import get_logger
from foltr.core.operator.credentials import Credentials
from foltr.core.protocol.codec import Envelope, Signer, open_envelope
from foltr.core.protocol.fields import MAX_CHUNKED_BYTES, Message, payload_digest
from foltr.core.protocol.membership import Status
from foltr.core.protocol.receipts import ErasureNotice, MembershipReceipt, ReceiptCode, UpdateReceipt
from foltr.core.protocol.signed_tickets import sign_ticket_anew
from foltr.core.protocol.signing import SessionSequence, SigningKey, epoch_and_number
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.core.protocol.updates import MaskedVector, ModelUpdate
from foltr.edge_client.store.bounds import PendingUpdate
from foltr.edge_client.store.store import DeviceStore
from foltr.edge_client.store.store_file import Kept

log = get_logger(__name__)

_CLAIMS = (ClientTopic.JOIN, ClientTopic.LEAVE)
# A claim is sent again with growing pauses: whoever is heard late has an answer to one of the newest.
_N_CLAIMS = 16


class Session:
    """One device's session with its federator; `begin` begins the next one. It sends and receives nothing itself.

    Args:
        credentials: whose key signs, and whom to believe; None signs nothing and believes anyone.

    Attributes:
        key: what this device signs with; None where it signs nothing.
    """

    def __init__(self, federation: str, client_id: str, credentials: Credentials | None, store: DeviceStore) -> None:
        self.federation = federation
        self.client_id = client_id
        self.topics = topics = Topics(federation)
        self._to_all = (
            *(topics.model, topics.anchor, topics.round, topics.unlearning_round),
            *(topics.federator_status, topics.audit_head, topics.pace),
        )
        self.key = None if credentials is None else credentials.key
        self._store = store
        self._credentials = self._with_stored_key(credentials)
        self._federator_key = _key_to_believe(self._credentials)
        self._sequence = SessionSequence(store.newest_session())
        self._sequence.begin_session()
        # The joins and leaves of this session, by the digest of their bytes.
        self._claims: deque[bytes] = deque(maxlen=_N_CLAIMS)
        self._signer = Signer(self.key, self._sequence)
        self._newest: dict[str, int] = {}

    # --- what is sent ---------------------------------------------------------------------------------------

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

        The will of a client that was forgotten clears its status: nothing of it is to stay with the broker.
        """
        self._newest.clear()
        self._begin_session()
        topic = self.topic(ClientTopic.STATUS)
        if self._store.forgotten:
            return LastWill(topic, b"")
        return LastWill(topic, self._signer.sign(self.status(online=False), topic, self._sequence.last_will()))

    def begin_above(self, newest_sequence: int) -> None:
        """Begin a session above what the federator has seen: the store was lost, and the clock is behind what it was.

        The broker keeps the last will of this connection, which is too old to be believed, until the next one.
        """
        self._sequence.begin_above(newest_sequence)
        self._begin_session()

    def signed_pending_update(self) -> PendingUpdate | None:
        """Return the update that waits in the store, signed with the key of today: the device may be enrolled anew."""
        pending = self._store.pending_update()
        if pending is None:
            return None
        try:
            envelope = open_envelope(pending.payload, MAX_CHUNKED_BYTES)
            if self.key is None or envelope.is_signed_by(self.key.public, self.topic(ClientTopic.UPDATES)):
                return pending
            payload = self.sign(_with_ticket_of(self.key, envelope.read(ModelUpdate)), ClientTopic.UPDATES)
        except MessageError as error:
            # Its interactions go into a new one, which counts only if this one has not.
            log.warning("pending_update_not_understood", client_id=self.client_id, cause=str(error))
            self._store.settle(self._store.mark() or 0, answered=pending.update_id)
            return None
        self._store.replace_payload(pending.update_id, payload)
        return replace(pending, payload=payload)

    def _begin_session(self) -> None:
        session = self._sequence.begin_session()
        self._claims.clear()
        if self._store.forgotten:
            return  # it says when the device was there
        try:
            self._store.put_session(session)
        except DataError as error:
            log.warning("session_not_stored", cause=str(error))  # the clock makes up for it, if it is right

    # --- what arrives ---------------------------------------------------------------------------------------

    def open(self, message: InboundMessage) -> Envelope:
        """Open an envelope that the federator sent and that is not older than what was believed on its topic.

        What was signed is remembered across restarts: a broker that repeats old models or answers is not believed.

        Raises:
            MessageError: ``bad_signature``, ``replayed``, or it cannot be read.
        """
        announced = message.topic in self._to_all
        envelope = open_envelope(message.payload)
        self._check_signature(envelope, message.topic, repeated=announced)
        newest = self._newest_on(message.topic)
        if envelope.sequence < newest:
            raise MessageError(ReceiptCode.REPLAYED, _what_is_older(envelope.sequence, newest))
        if envelope.sequence > newest:
            self._believe(message.topic, envelope.sequence)
        return envelope

    def _newest_on(self, topic: str) -> int:
        if topic not in self._newest:
            key = self._federator_key
            self._newest[topic] = 0 if key is None else self._store.newest_believed(topic, key)
        return self._newest[topic]

    def _believe(self, topic: str, sequence: int) -> None:
        self._newest[topic] = sequence
        # What anybody may have sent must not be what nothing is believed after.
        if self._federator_key is not None and not self._store.forgotten:
            self._store.note_believed(topic, self._federator_key, sequence)

    def open_whole(self, payload: bytes, topic: str) -> Envelope:
        """Open a model that came in chunks, as if on its topic; its manifest has told that it is the newest there.

        Raises:
            MessageError: ``bad_signature``, or it cannot be read.
        """
        envelope = open_envelope(payload, MAX_CHUNKED_BYTES)
        self._check_signature(envelope, topic, repeated=True)
        return envelope

    def receive_federator_key(self, statement: bytes) -> None:
        """Believe the federator's newest key, which the operator states; what older ones sign counts for nothing more.

        It is stored before anything signed with it is believed: a device that was off during a rotation, or several,
        hears of the newest, and none that it has seen is ever older than another.

        Raises:
            MessageError: it is not the operator's statement, or older than one that was seen.
        """
        if self._credentials is None:
            return  # it believes anyone
        newer = self._credentials.with_federator_key(statement)
        if newer is self._credentials:
            return
        try:
            self._store.keep({Kept.FEDERATOR_KEY: statement})
        except DataError as error:
            log.warning("federator_key_not_stored", cause=str(error))  # the broker has it, too
        self._credentials, self._federator_key = newer, _key_to_believe(newer)
        self._newest.clear()  # whoever had stolen the older key may have left no number above what he said
        log.info("federator_key_rotated", client_id=self.client_id, sequence=newer.federator_key_sequence)

    def believe(self, credentials: Credentials) -> None:
        """Believe the operator by these credentials from now on, and the federator as before."""
        if self._credentials is not None:
            newer = {"enrolment_key": credentials.enrolment_key, "succession": credentials.succession}
            self._credentials = self._credentials.model_copy(update=newer)

    def _with_stored_key(self, credentials: Credentials | None) -> Credentials | None:
        stored = self._store.kept(Kept.FEDERATOR_KEY)
        if credentials is None or stored is None:
            return credentials
        try:
            return credentials.with_federator_key(stored)
        except MessageError:
            return credentials  # written since, or by another operator

    def _check_signature(self, envelope: Envelope, topic: str, *, repeated: bool) -> None:
        key = self._federator_key
        if key is not None and not envelope.is_signed_by(key, topic, repeated=repeated):
            raise MessageError(ReceiptCode.BAD_SIGNATURE, "not signed by the federator these credentials name")

    def is_for_us(self, receipt: UpdateReceipt | MembershipReceipt | ErasureNotice) -> bool:
        return (receipt.federation, receipt.client_id) == (self.federation, self.client_id)

    def is_of_this_session(self, receipt: MembershipReceipt) -> bool:
        """Whether a receipt answers a join or a leave of this session, by its bytes.

        A sequence number would not do: another process of this name, with another key, may have begun in the same
        millisecond. Whoever takes the answer to the other's join has not joined, and all its updates are refused.
        """
        return receipt.payload_digest in self._claims


def _key_to_believe(credentials: Credentials | None) -> bytes | None:
    """Return whose signature makes a message believed; None where anyone is. It is asked for with every message."""
    return None if credentials is None else credentials.federator_public_key


def _with_ticket_of(key: SigningKey, update: ModelUpdate) -> ModelUpdate:
    """The update with its ticket signed by this key, if it has one."""
    body = update.body
    if not isinstance(body, MaskedVector):
        return update
    ticket = sign_ticket_anew(key, body.ticket)
    return update.model_copy(update={"body": body.model_copy(update={"ticket": ticket})})


def _what_is_older(sequence: int, newest: int) -> str:
    """Say what makes it older than what was heard: its epoch, a claim of the federation, or its number in that."""
    (epoch, number), (newest_epoch, newest_number) = epoch_and_number(sequence), epoch_and_number(newest)
    if epoch < newest_epoch:
        return f"of epoch {epoch}; {newest_epoch} was heard already"
    return f"message {number} of epoch {epoch}; {newest_number} was heard already"
