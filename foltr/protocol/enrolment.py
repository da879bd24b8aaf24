"""The operator signs enrolments, which devices carry, the roster of those that are void, and orders.

A device shows its enrolment when it joins, so enrolling needs no connection to anything, and no message grows
with the number of devices. The roster names only what was revoked; it is retained by the broker and kept in the
federator's database, and an older one never replaces a newer one.
"""

from foltr.errors import MessageError
from foltr.protocol.codec import encode, open_envelope
from foltr.protocol.fields import MAX_CHUNKED_BYTES
from foltr.protocol.membership import Enrolment
from foltr.protocol.orders import ForgetClient, LiftQuarantine, Order, QuarantineClient, Revocation, Roster, SetDeadline
from foltr.protocol.receipts import ReceiptCode
from foltr.protocol.signing import SigningKey
from foltr.protocol.topics import Topics


def issue_enrolment(
    key: SigningKey, federation: str, client_id: str, public_key: bytes, serial: int, issued_at: float
) -> bytes:
    """An enrolment as a device carries it: a signed envelope. ``issued_at`` is seconds since the epoch."""
    enrolment = Enrolment(
        federation=federation, client_id=client_id, public_key=public_key, serial=serial, issued_at=issued_at
    )
    return encode(enrolment, Topics(federation).enrolment(client_id), serial, key)


def read_enrolment(payload: bytes, enrolment_key: bytes, federation: str, client_id: str) -> Enrolment:
    """The enrolment a device shows.

    Raises:
        MessageError: ``not_enrolled``: it is not this operator's, or for another client or federation;
            ``malformed`` or ``unsupported_version``: it cannot be read.
    """
    envelope = open_envelope(payload)
    if not envelope.is_signed_by(enrolment_key, Topics(federation).enrolment(client_id)):
        raise MessageError(
            ReceiptCode.NOT_ENROLLED, "the enrolment is not one of this client signed by this federation's operator"
        )
    enrolment = envelope.read(Enrolment)
    if (enrolment.federation, enrolment.client_id) != (federation, client_id):
        raise MessageError(ReceiptCode.NOT_ENROLLED, "the enrolment is another client's")
    return enrolment


def issue_roster(
    key: SigningKey, federation: str, version: int, issued_at: float, n_enrolled: int, revoked: dict[str, int]
) -> bytes:
    """The roster as it is published. ``revoked``: client_id to the highest serial that is void."""
    roster = Roster(
        federation=federation,
        version=version,
        issued_at=issued_at,
        n_enrolled=n_enrolled,
        revoked=[Revocation(client_id=client_id, serial=serial) for client_id, serial in sorted(revoked.items())],
    )
    return encode(roster, Topics(federation).roster, version, key)


def read_roster(payload: bytes, enrolment_key: bytes, federation: str) -> Roster:
    """The roster in ``payload``; MessageError ``bad_signature`` or ``malformed`` if it is not the operator's."""
    # Some 40 bytes for each revoked device: it may outgrow other messages.
    envelope = open_envelope(payload, MAX_CHUNKED_BYTES)
    topics = Topics(federation)
    if not envelope.is_signed_by(enrolment_key, topics.roster):
        raise MessageError(ReceiptCode.BAD_SIGNATURE, "the roster is not signed by this federation's operator")
    roster = envelope.read(Roster)
    if roster.federation != federation:
        raise MessageError(ReceiptCode.WRONG_FEDERATION, f"a roster of {roster.federation}")
    return roster


def issue_order(key: SigningKey, order: Order, nonce: int) -> bytes:
    """An order of the operator to the federator."""
    return encode(order, Topics(order.federation).operator, nonce, key)


def read_order(payload: bytes, enrolment_key: bytes, federation: str) -> tuple[Order, int]:
    """The order and its nonce; MessageError if it is none, or not the operator's."""
    envelope = open_envelope(payload)
    if not envelope.is_signed_by(enrolment_key, Topics(federation).operator):
        raise MessageError(ReceiptCode.BAD_SIGNATURE, "the order is not signed by this federation's operator")
    order: Order
    match envelope.kind:
        case QuarantineClient.kind_name:
            order = envelope.read(QuarantineClient)
        case LiftQuarantine.kind_name:
            order = envelope.read(LiftQuarantine)
        case ForgetClient.kind_name:
            order = envelope.read(ForgetClient)
        case _:
            order = envelope.read(SetDeadline)
    if order.federation != federation:
        raise MessageError(ReceiptCode.WRONG_FEDERATION, f"an order for {order.federation}")
    return order, envelope.nonce
