"""Every message that crosses a process boundary, with its units and shapes.

A message is a frozen model; on the wire it is a msgpack map ``{"v": schema version, "kind": name,
"body": msgpack of the fields}``. The body is an opaque byte string inside the envelope so that it can be
signed as it stands. Bytes are checked where they enter (`foltr.codec`) and trusted afterwards.
"""

import hashlib
from enum import StrEnum
from typing import Annotated, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

SCHEMA_VERSION = 1
# No single weight of a ranker over features in [0, 1] moves this far in a round; what does would end learning.
MAX_ABS_DELTA = 1e6
# Brokers cut off packets at 1-2 MB by default; larger bodies will be chunked, not sent whole.
MAX_MESSAGE_BYTES = 256 * 1024

# A name is one level of an MQTT topic, so the separators and wildcards of MQTT cannot be in it.
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
# 32 hex digits: a UUID without dashes.
UpdateId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
# Bounded so that no count overflows a signed 64-bit SQL column, nor a sum of a million of them.
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
# Text for people. Printable: PostgreSQL stores no NUL, and terminals obey escape sequences.
_PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$"
Detail = Annotated[str, StringConstraints(max_length=500, pattern=_PRINTABLE)]
Timestamp = Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]


class ReceiptCode(StrEnum):
    """Why a message was taken or refused. Stable: clients of other versions rely on the spelling."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    ALREADY_CONTRIBUTED = "already_contributed"
    LATE = "late"
    STALE = "stale"
    UNKNOWN_ROUND = "unknown_round"
    UNKNOWN_CLIENT = "unknown_client"
    CLIENT_MISMATCH = "client_mismatch"
    WRONG_FEDERATION = "wrong_federation"
    MALFORMED = "malformed"
    WRONG_SHAPE = "wrong_shape"
    OUT_OF_RANGE = "out_of_range"
    NOT_FINITE = "not_finite"
    TOO_LARGE = "too_large"
    UNSUPPORTED_VERSION = "unsupported_version"
    BUSY = "busy"
    JOINED = "joined"
    LEFT = "left"


class DeviceReaction(StrEnum):
    """What a device does with its pending update once it has the receipt."""

    FORGET_UPDATE = "forget_update"  # it counts: the interactions in it are spent
    RETRAIN = "retrain"  # it does not count: its interactions go into a later update
    SEND_AGAIN = "send_again"  # not decided yet: send the same update_id again
    JOIN_AGAIN = "join_again"  # not a member: join, then send the same update_id again
    DISCARD = "discard"  # it can never count, nor can its interactions: drop both and log it


REACTIONS: dict[ReceiptCode, DeviceReaction] = {
    ReceiptCode.ACCEPTED: DeviceReaction.FORGET_UPDATE,
    ReceiptCode.DUPLICATE: DeviceReaction.FORGET_UPDATE,
    ReceiptCode.ALREADY_CONTRIBUTED: DeviceReaction.RETRAIN,
    ReceiptCode.LATE: DeviceReaction.RETRAIN,
    ReceiptCode.STALE: DeviceReaction.RETRAIN,
    ReceiptCode.UNKNOWN_ROUND: DeviceReaction.RETRAIN,
    ReceiptCode.UNKNOWN_CLIENT: DeviceReaction.JOIN_AGAIN,
    ReceiptCode.CLIENT_MISMATCH: DeviceReaction.DISCARD,
    ReceiptCode.WRONG_FEDERATION: DeviceReaction.DISCARD,
    ReceiptCode.MALFORMED: DeviceReaction.DISCARD,
    ReceiptCode.TOO_LARGE: DeviceReaction.DISCARD,
    ReceiptCode.WRONG_SHAPE: DeviceReaction.DISCARD,
    ReceiptCode.OUT_OF_RANGE: DeviceReaction.DISCARD,
    ReceiptCode.NOT_FINITE: DeviceReaction.DISCARD,
    # The interactions stay: they can be sent once the device's software is newer.
    ReceiptCode.UNSUPPORTED_VERSION: DeviceReaction.RETRAIN,
    ReceiptCode.BUSY: DeviceReaction.SEND_AGAIN,
}


class Message(BaseModel):
    """Base of all messages: frozen, strict, no unknown fields."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")
    kind_name: ClassVar[str]


class Join(Message):
    """Device to federator: take me into the federation. Idempotent; sent at every connection."""

    kind_name: ClassVar[str] = "join"
    federation: Name
    client_id: Name
    sdk_version: Annotated[str, StringConstraints(max_length=64, pattern=_PRINTABLE)]


class Leave(Message):
    """Device to federator: I contribute no more. What was contributed stays."""

    kind_name: ClassVar[str] = "leave"
    federation: Name
    client_id: Name


class Status(Message):
    """Device to federator, retained; ``online=False`` is also the device's last will."""

    kind_name: ClassVar[str] = "status"
    federation: Name
    client_id: Name
    online: bool


class LinearRankerSpec(Message):
    """A linear ranker: the score of a document is the dot product of its features and the weights."""

    kind: Literal["linear"] = "linear"
    n_features: Annotated[int, Field(ge=1, le=60_000)]


class PdgdTraining(Message):
    """How a device trains: PDGD (fpdgd-2021, Algorithm 1), one step per interaction."""

    kind: Literal["pdgd"] = "pdgd"
    learning_rate: Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)] = 0.1
    serp_length: Annotated[int, Field(ge=1, le=1000)] = 10
    # An update holds at least min_interactions, and of a backlog the oldest max_interactions.
    min_interactions: Annotated[int, Field(ge=1, le=100_000)] = 5
    max_interactions: Annotated[int, Field(ge=1, le=100_000)] = 5

    @model_validator(mode="after")
    def _bounds_are_ordered(self) -> "PdgdTraining":
        if self.max_interactions < self.min_interactions:
            raise ValueError(
                f"max_interactions ({self.max_interactions}) is below min_interactions ({self.min_interactions})"
            )
        return self


class ModelAnnouncement(Message):
    """Federator to all, retained: the newest global model.

    ``weights`` is a little-endian float32 vector of ``ranker.n_features`` entries.
    """

    kind_name: ClassVar[str] = "model"
    federation: Name
    version: Count
    ranker: LinearRankerSpec
    weights: bytes

    @model_validator(mode="after")
    def _weights_fit_the_ranker(self) -> "ModelAnnouncement":
        _check_vector_length(self.weights, self.ranker.n_features)
        return self


class RoundAnnouncement(Message):
    """Federator to all, retained: the newest round and whether it takes updates.

    ``opened_at`` and ``closes_at`` are seconds since the epoch by the federator's clock; a device needs
    neither to take part, so its own clock may be wrong.
    """

    kind_name: ClassVar[str] = "round"
    federation: Name
    round: Count
    open: bool
    base_version: Count
    opened_at: Timestamp
    closes_at: Timestamp
    training: PdgdTraining


class DenseDelta(Message):
    """Update body: local weights minus global weights, little-endian float32, ``dim`` entries."""

    kind: Literal["dense"] = "dense"
    dim: Annotated[int, Field(ge=1, le=60_000)]
    values: bytes

    @model_validator(mode="after")
    def _values_fit_dim(self) -> "DenseDelta":
        _check_vector_length(self.values, self.dim)
        return self


class ModelUpdate(Message):
    """Device to federator: what the device learned in one round; resent unchanged until receipted.

    This is all that leaves a device after a round: the delta and how many interactions made it.
    """

    kind_name: ClassVar[str] = "update"
    federation: Name
    client_id: Name
    update_id: UpdateId
    round: Count
    base_version: Count
    n_interactions: Annotated[int, Field(ge=1, le=100_000)]
    # A union once there is a second kind of body; `kind` is already its tag.
    body: DenseDelta


class UpdateReceipt(Message):
    """Federator to one device, sent after the SQL commit: the only acknowledgement there is.

    ``update_id`` is None where the update could not be read far enough to know it. ``payload_digest`` then says
    which bytes are meant: anyone may have sent them, and a device must not drop a good update for another's junk.
    """

    kind_name: ClassVar[str] = "update_receipt"
    federation: Name
    client_id: Name
    update_id: UpdateId | None
    payload_digest: Annotated[bytes, Field(min_length=16, max_length=16)] | None = None
    code: Annotated[ReceiptCode, Field(strict=False)]
    detail: Detail = ""
    retry_after_s: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] | None = None


class MembershipReceipt(Message):
    """Federator to one device: the answer to a join or a leave (``joined``, ``left``, or why not)."""

    kind_name: ClassVar[str] = "membership_receipt"
    federation: Name
    client_id: Name
    code: Annotated[ReceiptCode, Field(strict=False)]
    detail: Detail = ""


MESSAGE_TYPES: dict[str, type[Message]] = {
    message_type.kind_name: message_type
    for message_type in (
        Join,
        Leave,
        Status,
        ModelAnnouncement,
        RoundAnnouncement,
        ModelUpdate,
        UpdateReceipt,
        MembershipReceipt,
    )
}


def payload_digest(payload: bytes) -> bytes:
    """16 bytes that stand for a message that could not be read: the beginning of its SHA-256."""
    return hashlib.sha256(payload).digest()[:16]


def pack_vector(values: npt.ArrayLike) -> bytes:
    """The wire form of a vector: little-endian float32."""
    return np.ascontiguousarray(values, dtype="<f4").tobytes()


def unpack_vector(data: bytes) -> npt.NDArray[np.float32]:
    """A read-only float32 view of a wire vector, without a copy."""
    return np.frombuffer(data, dtype="<f4")


def _check_vector_length(data: bytes, dim: int) -> None:
    if len(data) != 4 * dim:
        raise ValueError(f"{len(data)} bytes for {dim} float32 values; expected {4 * dim}")
