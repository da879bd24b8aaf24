"""The answers of the federator to one device: codes, what each means and does, and the messages that carry them."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from foltr.protocol.fields import ChunkIndex, Detail, Message, Name, Nonce, UpdateId


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
    BAD_SIGNATURE = "bad_signature"
    NOT_ENROLLED = "not_enrolled"
    REVOKED = "revoked"
    QUARANTINED = "quarantined"
    REPLAYED = "replayed"
    NOT_SELECTED = "not_selected"
    INCOMPLETE = "incomplete"
    BUSY = "busy"
    FORGETTING = "forgetting"
    FORGOTTEN = "forgotten"
    JOINED = "joined"
    LEFT = "left"


class DeviceReaction(StrEnum):
    """What a device does with its pending update once it has the receipt."""

    FORGET_UPDATE = "forget_update"  # it counts: the interactions in it are spent
    RETRAIN = "retrain"  # it does not count: its interactions go into a later update
    SEND_AGAIN = "send_again"  # not decided yet: send the same update_id again
    SEND_CHUNKS = "send_chunks"  # parts of it are missing: send those
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
    # The clicks are the user's, whatever became of the device's key.
    ReceiptCode.BAD_SIGNATURE: DeviceReaction.RETRAIN,
    ReceiptCode.NOT_ENROLLED: DeviceReaction.JOIN_AGAIN,
    ReceiptCode.REVOKED: DeviceReaction.RETRAIN,
    # The next round's update asks again: that is how a device learns that it was let out.
    ReceiptCode.QUARANTINED: DeviceReaction.RETRAIN,
    ReceiptCode.REPLAYED: DeviceReaction.RETRAIN,
    ReceiptCode.NOT_SELECTED: DeviceReaction.RETRAIN,
    ReceiptCode.INCOMPLETE: DeviceReaction.SEND_CHUNKS,
    ReceiptCode.BUSY: DeviceReaction.SEND_AGAIN,
    # Whoever it was is to be forgotten, and so is what it clicked.
    ReceiptCode.FORGETTING: DeviceReaction.DISCARD,
    ReceiptCode.FORGOTTEN: DeviceReaction.DISCARD,
}


# What an operator, or a device's owner, should know of each; `docs/errors.md` is made from it.
EXPLANATIONS: dict[ReceiptCode, str] = {
    ReceiptCode.ACCEPTED: "The update is stored and counts in its round.",
    ReceiptCode.DUPLICATE: "This very update was stored before; it counts once.",
    ReceiptCode.ALREADY_CONTRIBUTED: "The round has another update of this client.",
    ReceiptCode.LATE: "The round was over, full or past its deadline when the update arrived.",
    ReceiptCode.STALE: "The update was trained on another model than the round's, or on one too old.",
    ReceiptCode.UNKNOWN_ROUND: "The round named has not been opened here; was the database restored from a backup?",
    ReceiptCode.UNKNOWN_CLIENT: "The client has not joined; it joins by itself and sends again.",
    ReceiptCode.CLIENT_MISMATCH: "The message names another client than its topic.",
    ReceiptCode.WRONG_FEDERATION: "The message names another federation than its topic.",
    ReceiptCode.MALFORMED: "The bytes are not a message of this protocol; the detail says where.",
    ReceiptCode.WRONG_SHAPE: "The update is of another kind or size than this federation asks for.",
    ReceiptCode.OUT_OF_RANGE: "A value is beyond what is possible, or more interactions are claimed than announced.",
    ReceiptCode.NOT_FINITE: "The update holds NaN or infinity.",
    ReceiptCode.TOO_LARGE: "The message is larger than the protocol allows, or than this federation's ranker needs.",
    ReceiptCode.UNSUPPORTED_VERSION: "The peer speaks another version of the protocol; upgrade the older of the two.",
    ReceiptCode.BAD_SIGNATURE: "No signature, or not this client's: a forgery, or another key than was enrolled.",
    ReceiptCode.NOT_ENROLLED: "The client shows no enrolment signed by this federation's operator: `foltr enrol`.",
    ReceiptCode.REVOKED: "The client's enrolment was revoked, or a newer one has replaced it.",
    ReceiptCode.QUARANTINED: "The operator keeps this client's updates out of the rounds until it is let out again.",
    ReceiptCode.REPLAYED: "The message is older than one already seen from this client.",
    ReceiptCode.NOT_SELECTED: "The round asked other clients; the selection can be checked from its seed.",
    ReceiptCode.INCOMPLETE: "Chunks of a large update are missing; the receipt lists them.",
    ReceiptCode.BUSY: "The federator has more to do than it can take, or this client sends too much; not a loss.",
    ReceiptCode.FORGETTING: "The client's data is erased; the model without it is still being made.",
    ReceiptCode.FORGOTTEN: "The client was forgotten; its name is not used again, and its receipt is still to be had.",
    ReceiptCode.JOINED: "The client is a member.",
    ReceiptCode.LEFT: "The client is a member no more.",
}


class UpdateReceipt(Message):
    """Federator to one device, sent after the SQL commit: the only acknowledgement there is.

    ``update_id`` is None where the update could not be read far enough to know it. ``payload_digest`` then says
    which bytes are meant: anyone may have sent them, and a device must not drop a good update for another's junk.
    """

    kind_name: ClassVar[str] = "update_receipt"
    longest_list: ClassVar[int] = 1000
    federation: Name
    client_id: Name
    update_id: UpdateId | None
    payload_digest: Annotated[bytes, Field(min_length=16, max_length=16)] | None = None
    code: Annotated[ReceiptCode, Field(strict=False)]
    detail: Detail = ""
    retry_after_s: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] | None = None
    # With ``incomplete``: the chunks that have not arrived.
    missing: Annotated[list[ChunkIndex], Field(max_length=1000)] | None = None


class MembershipReceipt(Message):
    """Federator to one device: the answer to a join or a leave (``joined``, ``left``, or why not).

    ``nonce`` is that of the message answered; with ``replayed`` ``newest_nonce`` says what to rise above.
    """

    kind_name: ClassVar[str] = "membership_receipt"
    federation: Name
    client_id: Name
    code: Annotated[ReceiptCode, Field(strict=False)]
    nonce: Nonce | None = None
    newest_nonce: Nonce | None = None
    detail: Detail = ""


class ErasureNotice(Message):
    """Federator to one device, once it is stored: how far its erasure is, or why there is none.

    ``forgetting``: all of it is erased but what is in the model. ``forgotten``: that too; ``receipt`` is the signed
    document (`foltr.erasure.receipt`). With both the device deletes what it keeps for the federation.
    """

    kind_name: ClassVar[str] = "erasure_notice"
    federation: Name
    client_id: Name
    code: Annotated[ReceiptCode, Field(strict=False)]
    receipt: Annotated[bytes, Field(max_length=65_536)] | None = None
    detail: Detail = ""
