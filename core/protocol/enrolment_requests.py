"""A device that enrols itself with a one-time token asks, and the operator's desk answers.

A token is a separate Ed25519 key, which the operator made for one name and handed over in a file; the desk knows its
public half. The request is signed with it, so reading a request does not let anybody use the token, and names the key
that the device made itself. The answer's secret part is sealed to a second key of the device.
"""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from foltr.core.protocol.fields import (
    Detail,
    InFederation,
    PublicKey,
    Serial,
    Sha256,
    Timestamp,
    TokenId,
)
from foltr.core.protocol.signing import SIGNATURE_BYTES

MAX_REQUEST_BYTES = 1024
# Credentials with two certificates and a policy take some 10 kB.
MAX_SEALED_BYTES = 128 * 1024


class EnrolmentCode(StrEnum):
    """The outcome of a request; all but the first are final for this token and this key."""

    ENROLLED = "enrolled"
    TOKEN_USED = "token_used"  # noqa: S105 (a code)
    TOKEN_EXPIRED = "token_expired"  # noqa: S105
    TOKEN_REVOKED = "token_revoked"  # noqa: S105
    TOKEN_UNKNOWN = "token_unknown"  # noqa: S105
    NAME_CHANGED = "name_changed"
    NAME_FORGOTTEN = "name_forgotten"
    UNREADABLE = "unreadable"

    @property
    def meaning(self) -> str:
        """Return its meaning for the device's user and for the page of codes."""
        return _MEANINGS[self]


_MEANINGS = {
    EnrolmentCode.ENROLLED: "the device is enrolled; the answer has its credentials, sealed",
    EnrolmentCode.TOKEN_USED: "the token was used before, for another key",
    EnrolmentCode.TOKEN_EXPIRED: "the token was not used in time",
    EnrolmentCode.TOKEN_REVOKED: "the operator has revoked the token",
    EnrolmentCode.TOKEN_UNKNOWN: "the operator's folder has no such token",
    EnrolmentCode.NAME_CHANGED: "the name was enrolled or revoked after the token was made",
    EnrolmentCode.NAME_FORGOTTEN: "the client of this name was forgotten, so the name is not used again",
    EnrolmentCode.UNREADABLE: "the desk cannot read the request: do both run the same version?",
}


class EnrolmentRequest(InFederation):
    """Device to desk: enrol the owner of ``public_key`` under the name that the token is for.

    The envelope is signed with the token's key.

    Attributes:
        public_key: Ed25519, of the key that the device signs with from then on.
        reply_key: X25519; the answer's secret part is sealed to it.
        proof: a signature by the device's key, which proves that the device has it.
    """

    kind_name: ClassVar[str] = "enrolment_request"
    token: TokenId
    public_key: PublicKey
    reply_key: PublicKey
    proof: Annotated[bytes, Field(min_length=SIGNATURE_BYTES, max_length=SIGNATURE_BYTES)]


class EnrolmentAnswer(InFederation):
    """Desk to device, signed with the enrolment key: the outcome of a request.

    Attributes:
        digest: SHA-256 of the request's bytes.
        sealed: the credentials without a private key, as JSON, to be opened by the device; empty if refused.
    """

    kind_name: ClassVar[str] = "enrolment_answer"
    digest: Sha256
    code: Annotated[EnrolmentCode, Field(strict=False)]
    detail: Detail = ""
    sealed: Annotated[bytes, Field(max_length=MAX_SEALED_BYTES)] = b""


class DeskHead(InFederation):
    """Desk to itself, retained and signed with the enrolment key: how far enrolment has come.

    An operator's folder that knows of fewer serials is an older copy.

    Attributes:
        next_serial: the serial that the next enrolment gets.
        written_at: seconds since the epoch.
    """

    kind_name: ClassVar[str] = "desk_head"
    next_serial: Serial
    written_at: Timestamp
