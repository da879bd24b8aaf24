"""The operator's signed statements: devices' enrolments, the roster of void ones, and the federator's new key.

A device shows its enrolment when it joins, so enrolling needs no connection, and no message grows with the number of
devices. The roster names only what was revoked; the broker retains it and the federator's database stores it, and an
older one never replaces a newer one.
"""

from foltr.core.errors import MessageError
from foltr.core.protocol.codec import encode, open_envelope
from foltr.core.protocol.fields import MAX_CHUNKED_BYTES
from foltr.core.protocol.membership import Enrolment
from foltr.core.protocol.operator_keys import (
    OperatorKeys,
    TrustedOperatorKey,
    document_digest,
    enrolment_digest,
    read_signed_by_operator,
    signed_by_operator,
)
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.roster import FederatorKey, Roster
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.topics import Topics


def issue_enrolment(
    key: SigningKey,
    federation: str,
    client_id: str,
    public_key: bytes,
    serial: int,
    issued_at: float,
    *,
    secure: bool = False,
) -> bytes:
    """Return a device's enrolment: a signed envelope. ``issued_at`` is seconds since the epoch."""
    enrolment = Enrolment(
        federation=federation,
        client_id=client_id,
        public_key=public_key,
        serial=serial,
        issued_at=issued_at,
        secure=secure,
    )
    return encode(enrolment, Topics(federation).enrolment(client_id), serial, key)


def read_enrolment(payload: bytes, enrolment_key: TrustedOperatorKey, federation: str, client_id: str) -> Enrolment:
    """The enrolment a device shows.

    Raises:
        MessageError: ``not_enrolled``: it is not this operator's, or for another client or federation;
            ``malformed`` or ``unsupported_version``: it cannot be read.
    """
    envelope = open_envelope(payload)
    topic = Topics(federation).enrolment(client_id)
    digest = None
    if isinstance(enrolment_key, OperatorKeys) and not envelope.is_signed_by(enrolment_key.newest, topic):
        digest = enrolment_digest(envelope.read(Enrolment))
    if not signed_by_operator(envelope, enrolment_key, topic, digest):
        raise MessageError(
            ReceiptCode.NOT_ENROLLED, "the enrolment is not one of this client signed by this federation's operator"
        )
    enrolment = envelope.read(Enrolment)
    if (enrolment.federation, enrolment.client_id) != (federation, client_id):
        raise MessageError(ReceiptCode.NOT_ENROLLED, "the enrolment is another client's")
    return enrolment


def issue_roster(key: SigningKey, roster: Roster) -> bytes:
    """Return the signed roster; published in chunks if it is too large for one message."""
    return encode(roster, Topics(roster.federation).roster, roster.version, key)


def read_roster(payload: bytes, enrolment_key: TrustedOperatorKey, federation: str) -> Roster:
    """The roster in ``payload``; MessageError ``bad_signature`` or ``malformed`` if it is not the operator's."""
    # Some 40 bytes for each revoked device: it may outgrow other messages.
    topic = Topics(federation).roster
    return read_signed_by_operator(payload, enrolment_key, topic, Roster, "roster", max_bytes=MAX_CHUNKED_BYTES)


def issue_federator_key(key: SigningKey, statement: FederatorKey) -> bytes:
    """Return the signed statement that the federator has another key."""
    return encode(statement, Topics(statement.federation).federator_key, statement.sequence, key)


def read_federator_key(payload: bytes, enrolment_key: TrustedOperatorKey, federation: str) -> FederatorKey:
    """Read such a statement; MessageError if it is not the operator's. An older one may come again."""
    topic, digest = Topics(federation).federator_key, document_digest(payload)
    return read_signed_by_operator(payload, enrolment_key, topic, FederatorKey, "federator's key", digest=digest)
