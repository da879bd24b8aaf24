"""A document of the operator is numbered, signed with the enrolment key for its own topic, and retained there.

The number is its version, and the message's sequence: a higher one replaces a lower one. Policies
(`foltr.core.protocol.signed_policies`) and feature schemas (`foltr.core.protocol.signed_schemas`) are such documents.
"""

from typing import Protocol, TypeVar

from foltr.core.errors import MessageError
from foltr.core.protocol.codec import encode, open_envelope
from foltr.core.protocol.fields import Message
from foltr.core.protocol.operator_keys import Believed, document_digest, signed_by_operator
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.signing import SigningKey

M = TypeVar("M", bound=Message)


class SignedDocument(Protocol):
    """A document whose signature was checked, as it is kept and passed on."""

    @property
    def version(self) -> int: ...

    @property
    def signed(self) -> bytes: ...


def issue_document(key: SigningKey, message: Message, topic: str, version: int) -> bytes:
    """Sign a document for its topic."""
    return encode(message, topic, version, key)


def read_document(payload: bytes, enrolment_key: Believed, topic: str, expected: type[M], what: str) -> M:
    """Read a document.

    Args:
        what: what the words of a refusal call it.

    Raises:
        MessageError: ``bad_signature``: the operator has not signed it for this topic; ``malformed``.
    """
    envelope = open_envelope(payload)
    if not signed_by_operator(envelope, enrolment_key, topic, document_digest(payload)):
        raise MessageError(ReceiptCode.BAD_SIGNATURE, f"the {what} is not signed by this federation's operator")
    return envelope.read(expected)
