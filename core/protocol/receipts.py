"""The federator's answers to one device: codes, their meaning and effect, and the messages that carry them."""

from enum import StrEnum
from typing import Annotated, ClassVar, Self

from pydantic import Field

from foltr.core.protocol.events import EventKind
from foltr.core.protocol.fields import (
    ChunkIndex,
    Detail,
    OfClient,
    PayloadDigest,
    SequenceNumber,
    UpdateId,
    Watermark,
)


class DeviceReaction(StrEnum):
    """What a device does with its pending update when it gets the receipt.

    In every case the receipt's watermark says which of the device's interactions count: those up to it. So no reaction
    decides whether a click may be learned again.
    """

    SETTLE = "settle"  # it is answered: interactions above the watermark go into a later update
    SEND_AGAIN = "send_again"  # not decided yet: send the same update_id again
    STOP = "stop"  # the client will be forgotten, and so will its clicks


# The kinds of event for a refusal, by what was refused.
_UPDATE, _MESSAGE, _ROSTER, _ORDER, _POLICY = (
    EventKind.UPDATE_REJECTED,
    EventKind.MESSAGE_REFUSED,
    EventKind.ROSTER_REFUSED,
    EventKind.ORDER_REFUSED,
    EventKind.POLICY_REFUSED,
)


class ReceiptCode(StrEnum):
    """Why a message was accepted or refused. Stable: clients of other versions rely on the spelling.

    Attributes:
        reaction: what a device does that gets this code for an update; None if the code answers no update.
        explanation: what an operator, or a device's owner, should know; `docs/errors.md` is made from it.
        events: the kinds of event that may carry it; a code without any goes only to the device and leaves no row.
    """

    reaction: DeviceReaction | None
    explanation: str
    events: tuple[EventKind, ...]

    @property
    def joins_first(self) -> bool:
        """Whether a device that gets this code joins again before anything else."""
        return self in (ReceiptCode.UNKNOWN_CLIENT, ReceiptCode.NOT_ENROLLED)

    # The defaults are for type checkers, to which `ReceiptCode("late")` looks like this call.
    def __new__(
        cls, value: str, reaction: DeviceReaction | None = None, explanation: str = "", *events: EventKind
    ) -> Self:
        code = str.__new__(cls, value)
        code._value_ = value
        code.reaction = reaction
        code.explanation = explanation
        code.events = events
        return code

    ACCEPTED = "accepted", DeviceReaction.SETTLE, "The update is stored and counts in its round."
    DUPLICATE = "duplicate", DeviceReaction.SETTLE, "This update was stored before; it counts once.", _UPDATE
    ALREADY_CONTRIBUTED = (
        "already_contributed",
        DeviceReaction.SETTLE,
        "The round has another update of this client.",
        _UPDATE,
    )
    # Perhaps the notice of a withdrawal was lost, or the federation's database was restored.
    OVERLAPS = (
        "overlaps",
        DeviceReaction.SETTLE,
        "The update does not begin where the client's counted interactions end; the receipt says where that is.",
        _UPDATE,
    )
    LATE = (
        "late",
        DeviceReaction.SETTLE,
        "The round was over, full or past its deadline when the update arrived.",
        _UPDATE,
    )
    STALE = (
        "stale",
        DeviceReaction.SETTLE,
        "The update was trained on another model than the round's, on one too old, or on too many interactions.",
        _UPDATE,
    )
    UNKNOWN_ROUND = (
        "unknown_round",
        DeviceReaction.SETTLE,
        "This round has not been opened; was the database restored from a backup?",
        _UPDATE,
        _ORDER,
    )
    UNKNOWN_JOB = "unknown_job", None, "No unlearning job of this number waits for the operator's order.", _ORDER
    UNKNOWN_CLIENT = (
        "unknown_client",
        DeviceReaction.SEND_AGAIN,
        "The client has not joined; it joins by itself and sends the update again.",
        _UPDATE,
        _MESSAGE,
        _ORDER,
    )
    CLIENT_MISMATCH = (
        "client_mismatch",
        DeviceReaction.SETTLE,
        "The message names another client than its topic.",
        _UPDATE,
        _MESSAGE,
    )
    WRONG_FEDERATION = (
        "wrong_federation",
        DeviceReaction.SETTLE,
        "The message names another federation than its topic.",
        _UPDATE,
        _MESSAGE,
        _ROSTER,
        _ORDER,
        _POLICY,
    )
    MALFORMED = (
        "malformed",
        DeviceReaction.SETTLE,
        "The bytes are not a message of this protocol; the detail says where.",
        _UPDATE,
        _MESSAGE,
        _ROSTER,
        _ORDER,
        _POLICY,
    )
    WRONG_SHAPE = (
        "wrong_shape",
        DeviceReaction.SETTLE,
        "The update, or its norm proof, is of another kind or size than this federation asks for.",
        _UPDATE,
        _MESSAGE,
        _POLICY,
    )
    OUT_OF_RANGE = (
        "out_of_range",
        DeviceReaction.SETTLE,
        "A value is beyond the possible range.",
        _UPDATE,
        _MESSAGE,
    )
    MISPLACED = (
        "misplaced",
        DeviceReaction.SETTLE,
        "A masked update's ticket is for another round, cohort, policy, update, vector or proof: no helper takes it.",
        _UPDATE,
    )
    NOT_FINITE = "not_finite", DeviceReaction.SETTLE, "The update holds NaN or infinity.", _UPDATE, _MESSAGE
    TOO_LARGE = (
        "too_large",
        DeviceReaction.SETTLE,
        "The message is larger than the protocol allows, or than the ranker needs.",
        _UPDATE,
        _MESSAGE,
        _ROSTER,
        _ORDER,
        _POLICY,
    )
    # Once a side is upgraded, the same bytes may be taken.
    UNSUPPORTED_VERSION = (
        "unsupported_version",
        DeviceReaction.SEND_AGAIN,
        "The peer speaks another version of the protocol; upgrade the older of the two.",
        _UPDATE,
        _MESSAGE,
        _ROSTER,
        _ORDER,
        _POLICY,
    )
    BAD_SIGNATURE = (
        "bad_signature",
        DeviceReaction.SETTLE,
        "The signature is missing or not this client's: a forgery, or another key than was enrolled.",
        _UPDATE,
        _MESSAGE,
        _ROSTER,
        _ORDER,
        _POLICY,
    )
    NOT_ENROLLED = (
        "not_enrolled",
        DeviceReaction.SEND_AGAIN,
        "The client shows no enrolment signed by this federation's operator: `foltr device enrol`.",
        _MESSAGE,
        _ROSTER,
        _ORDER,
    )
    REVOKED = (
        "revoked",
        DeviceReaction.SETTLE,
        "The client's enrolment was revoked, or a newer one has replaced it.",
        _UPDATE,
        _MESSAGE,
        _ORDER,
    )
    # The next round's update asks again: so a device learns that its quarantine was lifted.
    QUARANTINED = (
        "quarantined",
        DeviceReaction.SETTLE,
        "The operator has excluded this client's updates, until it lifts the quarantine.",
        _UPDATE,
    )
    REPLAYED = (
        "replayed",
        DeviceReaction.SETTLE,
        "The message is older than one already seen from this client.",
        _UPDATE,
        _MESSAGE,
        _ROSTER,
        _ORDER,
        _POLICY,
    )
    # Sent unasked to all who contributed to the round.
    ROUND_ABANDONED = (
        "round_abandoned",
        DeviceReaction.SETTLE,
        "The round ended without a model, so the update does not count; its interactions go into a later one.",
    )
    NOT_SELECTED = (
        "not_selected",
        DeviceReaction.SETTLE,
        "The round asked other clients; the selection can be checked from its seed.",
        _UPDATE,
    )
    INCOMPLETE = (
        "incomplete",
        DeviceReaction.SEND_AGAIN,
        "Chunks of a large update are missing; the receipt lists them.",
    )
    BUSY = (
        "busy",
        DeviceReaction.SEND_AGAIN,
        "The federator is overloaded, or this client sends too much; nothing is lost.",
        EventKind.INTAKE_FULL,
        _UPDATE,
    )
    ERASING = (
        "erasing",
        DeviceReaction.STOP,
        "The client has left the federation; its rows and its data key are being deleted.",
    )
    FORGETTING = (
        "forgetting",
        DeviceReaction.STOP,
        "The client's data is erased; a model without it is still being made.",
    )
    FORGOTTEN = (
        "forgotten",
        DeviceReaction.STOP,
        "The client was forgotten; its name is not used again, and its receipt is available.",
        _UPDATE,
        _MESSAGE,
    )
    JOINED = "joined", None, "The client is a member."
    LEFT = "left", None, "The client has left."


# A receipt with a longer pause is invalid.
LONGEST_RETRY_S = 86_400


class UpdateReceipt(OfClient):
    """Federator to one device, sent after the SQL commit: the only acknowledgement.

    ``update_id`` is None if the update could not be read far enough to know it. ``payload_digest`` then identifies the
    bytes: anyone may have sent them, and a device must not drop a good update for another's junk.

    ``counted_through`` is the client's watermark: its interactions up to this one are in updates that count, or never
    will be. None if the federator knows no client of this name.
    """

    kind_name: ClassVar[str] = "update_receipt"
    longest_list: ClassVar[int] = 1000
    is_flat: ClassVar[bool] = True
    update_id: UpdateId | None
    payload_digest: PayloadDigest | None = None
    code: Annotated[ReceiptCode, Field(strict=False)]
    detail: Detail = ""
    counted_through: Watermark | None = None
    retry_after_s: Annotated[float, Field(ge=0, le=LONGEST_RETRY_S, allow_inf_nan=False)] | None = None
    # With ``incomplete``: the chunks that have not arrived.
    missing: Annotated[list[ChunkIndex], Field(max_length=1000)] | None = None


class MembershipReceipt(OfClient):
    """Federator to one device: the answer to a join or a leave (``joined``, ``left``, or why not).

    ``payload_digest`` identifies the answered message by its bytes: another process of the same name, perhaps with
    another key, may have sent one with the same sequence number. With ``replayed``, later numbers must be above
    ``newest_sequence``. ``counted_through`` is as in `UpdateReceipt`.
    """

    kind_name: ClassVar[str] = "membership_receipt"
    code: Annotated[ReceiptCode, Field(strict=False)]
    payload_digest: PayloadDigest | None = None
    newest_sequence: SequenceNumber | None = None
    counted_through: Watermark | None = None
    detail: Detail = ""


class ErasureNotice(OfClient):
    """Federator to one device, once it is stored: the progress of its erasure, or why it is refused.

    ``erasing``: the client is out, and its stored data is being deleted. ``forgetting``: everything is erased except
    its influence on the model. ``forgotten``: that too; ``receipt`` is the signed document
    (`foltr.core.erasure.receipt`). With each the device deletes its data for the federation.
    """

    kind_name: ClassVar[str] = "erasure_notice"
    code: Annotated[ReceiptCode, Field(strict=False)]
    receipt: Annotated[bytes, Field(max_length=65_536)] | None = None
    detail: Detail = ""
