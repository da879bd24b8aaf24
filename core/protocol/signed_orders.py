"""Orders and their answers as bytes: the operator signs orders, the federator answers."""

import hashlib
from dataclasses import dataclass

from foltr.core.errors import MessageError
from foltr.core.protocol.codec import Envelope, encode, open_envelope
from foltr.core.protocol.operator_keys import TrustedOperatorKey, document_digest, signed_by_operator
from foltr.core.protocol.orders import ORDER_LIMIT, ORDER_TYPES, AskNewest, Order, OrderAnswer
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.topics import Topics


@dataclass(frozen=True)
class SignedOrder:
    """An order as its operator signed it; ``digest`` is SHA-256 of the bytes."""

    number: int
    order: Order
    payload: bytes

    @property
    def digest(self) -> bytes:
        return digest_of(self.payload)


def digest_of(payload: bytes) -> bytes:
    """Return the digest by which an answer names the bytes of an order."""
    return hashlib.sha256(payload).digest()


def issue_order(key: SigningKey, order: Order, number: int) -> SignedOrder:
    """Sign an order under its number."""
    return SignedOrder(number, order, encode(order, Topics(order.federation).operator, number, key))


def issue_question(key: SigningKey, federation: str, challenge: bytes) -> bytes:
    """Return the signed question for the newest order."""
    question = AskNewest(federation=federation, challenge=challenge)
    return encode(question, Topics(federation).operator, 0, key)


def read_order(payload: bytes, enrolment_key: TrustedOperatorKey, federation: str) -> SignedOrder | AskNewest:
    """Return the order, or the question, in ``payload``; MessageError if it is neither, or not the operator's."""
    envelope = open_envelope(payload)
    if not signed_by_operator(envelope, enrolment_key, Topics(federation).operator, document_digest(payload)):
        raise MessageError(ReceiptCode.BAD_SIGNATURE, "the order is not signed by this federation's operator")
    read = envelope.read(AskNewest) if envelope.kind == AskNewest.kind_name else _order_in(envelope)
    if read.federation != federation:
        raise MessageError(ReceiptCode.WRONG_FEDERATION, f"an order for {read.federation}")
    if isinstance(read, AskNewest):
        return read
    if not 1 <= envelope.sequence <= ORDER_LIMIT:
        raise MessageError(ReceiptCode.MALFORMED, f"orders are numbered from 1 to {ORDER_LIMIT}")
    return SignedOrder(envelope.sequence, read, payload)


def _order_in(envelope: Envelope) -> Order:
    kind = ORDER_TYPES.get(envelope.kind)
    if kind is None:
        raise MessageError(ReceiptCode.MALFORMED, f"the kind {envelope.kind!r} is not an order")
    return envelope.read(kind)


def number_of(payload: bytes) -> int | None:
    """Return the number that an order claims, unchecked; None if it cannot be read."""
    try:
        return open_envelope(payload).sequence
    except MessageError:
        return None


def read_answer(payload: bytes, federation: str, *federator_keys: bytes) -> OrderAnswer:
    """Return the answer in ``payload``; MessageError if it is not an answer signed by one of these keys."""
    envelope = open_envelope(payload)
    topic = Topics(federation).operator_answers
    if not any(envelope.is_signed_by(key, topic) for key in federator_keys):
        raise MessageError(ReceiptCode.BAD_SIGNATURE, "the answer is not signed by this federation's federator")
    answer = envelope.read(OrderAnswer)
    if answer.federation != federation:
        raise MessageError(ReceiptCode.WRONG_FEDERATION, f"an answer in {answer.federation}")
    return answer
