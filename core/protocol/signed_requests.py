"""Requests to be enrolled, the desk's answers and its head, as signed bytes."""

import hashlib

from foltr.core.errors import MessageError
from foltr.core.protocol.codec import encode, open_envelope
from foltr.core.protocol.enrolment_requests import (
    MAX_REQUEST_BYTES,
    DeskHead,
    EnrolmentAnswer,
    EnrolmentCode,
    EnrolmentRequest,
)
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.signing import SigningKey, verify
from foltr.core.protocol.topics import Topics
from foltr.core.secure.sealing import seal

_PROOF_LABEL = b"foltr enrolment proof 1\n"
_SEAL_LABEL = b"foltr enrolment answer 1\n"


def issue_request(
    token_key: SigningKey, federation: str, token: str, device_key: SigningKey, reply_key: bytes
) -> bytes:
    """Return a request's bytes: always the same for the same keys."""
    request = EnrolmentRequest(
        federation=federation,
        token=token,
        public_key=device_key.public,
        reply_key=reply_key,
        proof=device_key.sign(_proven(federation, token, reply_key)),
    )
    return encode(request, Topics(federation).enrolment_request(token), 0, token_key)


def read_request(payload: bytes, federation: str, token: str) -> EnrolmentRequest:
    """Return the request for a token; `is_token_holders` checks its signature.

    Raises:
        MessageError: it is not a request, or for another token or federation.
    """
    request = open_envelope(payload, MAX_REQUEST_BYTES).read(EnrolmentRequest)
    if (request.federation, request.token) != (federation, token):
        raise MessageError(ReceiptCode.WRONG_FEDERATION, "the request is for another token")
    return request


def is_token_holders(payload: bytes, request: EnrolmentRequest, token_key: bytes) -> bool:
    """Whether the holder of the token signed this request, and the device has the key that it names."""
    topic = Topics(request.federation).enrolment_request(request.token)
    proven = _proven(request.federation, request.token, request.reply_key)
    return open_envelope(payload).is_signed_by(token_key, topic) and verify(request.public_key, proven, request.proof)


def issue_answer(
    enrolment_key: SigningKey, federation: str, token: str, request: bytes, code: EnrolmentCode, sealed: bytes = b""
) -> bytes:
    """Return a signed answer to these bytes of a request."""
    digest = hashlib.sha256(request).digest()
    answer = EnrolmentAnswer(federation=federation, digest=digest, code=code, detail=code.meaning, sealed=sealed)
    return encode(answer, Topics(federation).enrolment_answer(token), 0, enrolment_key)


def read_answer(payload: bytes, enrolment_key: bytes, federation: str, token: str, request: bytes) -> EnrolmentAnswer:
    """Return the answer in ``payload``; MessageError if the operator did not sign it, or it answers another request."""
    envelope = open_envelope(payload)
    if not envelope.is_signed_by(enrolment_key, Topics(federation).enrolment_answer(token)):
        raise MessageError(ReceiptCode.BAD_SIGNATURE, "the answer is not signed by this federation's operator")
    answer = envelope.read(EnrolmentAnswer)
    if answer.federation != federation or answer.digest != hashlib.sha256(request).digest():
        raise MessageError(ReceiptCode.REPLAYED, "an answer to another request")
    return answer


def seal_for_device(content: bytes, reply_key: bytes, request: bytes) -> bytes:
    """Seal data for the sender of this request only. ValueError if its key is unusable for that."""
    return seal(content, reply_key, answer_info(request))


def answer_info(request: bytes) -> bytes:
    """Return the purpose of the seal in an answer: 32 bytes that no other request has."""
    return hashlib.sha256(_SEAL_LABEL + request).digest()


def issue_head(enrolment_key: SigningKey, head: DeskHead) -> bytes:
    """Return the signed head, to be retained."""
    return encode(head, Topics(head.federation).desk_head, head.next_serial, enrolment_key)


def read_head(payload: bytes, enrolment_key: bytes, federation: str) -> DeskHead:
    """Return the head in ``payload``; MessageError if it is not this operator's."""
    envelope = open_envelope(payload, MAX_REQUEST_BYTES)
    if not envelope.is_signed_by(enrolment_key, Topics(federation).desk_head):
        raise MessageError(ReceiptCode.BAD_SIGNATURE, "the head is not signed by this federation's operator")
    return envelope.read(DeskHead)


def _proven(federation: str, token: str, reply_key: bytes) -> bytes:
    return _PROOF_LABEL + f"{federation}\n{token}\n".encode() + reply_key
