"""The operator's orders to the federator, numbered 1, 2, 3 … in the operator's folder, and the federator's answers.

An order's number is the sequence number of its envelope. The federator carries them out in this order, each once, and
stores each with its outcome; a refused order uses up its number too. Orders do not depend on clocks.
"""

from enum import StrEnum
from typing import Annotated, ClassVar, get_args

from pydantic import Field

from foltr.core.protocol.fields import (
    Count,
    Detail,
    InFederation,
    KeySequence,
    OfClient,
    PublicKey,
    Salt,
    SequenceNumber,
    Serial,
    Sha256,
    Tombstone,
)
from foltr.core.protocol.receipts import ReceiptCode

ORDER_LIMIT = 2**31 - 1
Challenge = Annotated[bytes, Field(min_length=16, max_length=16)]


class SetDeadline(InFederation):
    """Operator to federator: give this round ``max_time_s`` seconds from its opening instead of the set time."""

    kind_name: ClassVar[str] = "set_deadline"
    round: Count
    max_time_s: Annotated[float, Field(gt=0, le=30 * 86_400, allow_inf_nan=False)]


class RevokeClient(OfClient):
    """Operator to federator: every enrolment of this client with a serial below ``void_below`` is void."""

    kind_name: ClassVar[str] = "revoke_client"
    void_below: Annotated[int, Field(ge=2, le=2**31 - 1)]


class QuarantineClient(OfClient):
    """Operator to federator: accept no update of this client until `LiftQuarantine`. It stays a member."""

    kind_name: ClassVar[str] = "quarantine_client"
    reason: Annotated[Detail, Field(min_length=1)]


class LiftQuarantine(OfClient):
    """Operator to federator: accept this client's updates again."""

    kind_name: ClassVar[str] = "lift_quarantine"


class DismissProposals(OfClient):
    """Operator to federator: do not quarantine this client for the findings so far; its proposals are closed."""

    kind_name: ClassVar[str] = "dismiss_proposals"


class ForgetClient(OfClient):
    """Operator to federator: forget this client, as if it had asked itself (`Forget`).

    ``serial`` is of its newest enrolment: a client enrolled later under the same name is not meant.
    """

    kind_name: ClassVar[str] = "forget_client"
    serial: Serial


class ForgetTombstone(InFederation):
    """Operator to federator: the tombstone of an obeyed `ForgetClient`; it means the same and names nobody.

    ``replaces`` is the digest of the order that it replaces. A federator that has not carried that out, because its
    database was restored, forgets the client with this tombstone.
    """

    kind_name: ClassVar[str] = "forget_tombstone"
    salt: Salt
    tombstone: Tombstone
    serial: Serial
    replaces: Sha256


class VoidOrder(InFederation):
    """Operator to federator: do nothing under this number.

    ``replaces`` is the digest of the order that it replaces, which named a client that was forgotten since, or allowed
    a reset in a database that was restored since. None if the order was lost with the folder.
    """

    kind_name: ClassVar[str] = "void_order"
    replaces: Sha256 | None = None


class RotateKey(InFederation):
    """Operator to federator: sign with ``new_key`` from now on; `FederatorKey` announces it to devices."""

    kind_name: ClassVar[str] = "rotate_key"
    sequence: KeySequence
    old_key: PublicKey
    new_key: PublicKey


class RotateEnrolmentKey(InFederation):
    """Operator to federator: orders are signed with ``new_key`` from now on; `Succession` announces it to others."""

    kind_name: ClassVar[str] = "rotate_enrolment_key"
    sequence: KeySequence
    old_key: PublicKey
    new_key: PublicKey


class AllowReset(InFederation):
    """Operator to federator: unlearning job ``job`` may put the first model in service, despite the loss."""

    kind_name: ClassVar[str] = "allow_reset"
    job: Annotated[int, Field(ge=1, le=2**31 - 1)]


class AskNewest(InFederation):
    """Operator to federator: name the newest order that you have carried out. A question, it has no number.

    ``challenge`` is random, and comes back in the answer, so that a replayed answer does not pass for this one.
    """

    kind_name: ClassVar[str] = "ask_newest"
    challenge: Challenge


class OrderReply(StrEnum):
    """The outcome of an order."""

    OBEYED = "obeyed"  # it has had its effect, now or when it came for the first time
    REFUSED = "refused"  # it has none, and never will; its number is used up
    MISSING = "missing"  # orders before it have not come: send those after `OrderAnswer.newest`
    DIVERGED = "diverged"  # another order was carried out under this number: of another folder, or one restored since
    UNREAD = "unread"  # no order of this federation's operator
    NEWEST = "newest"  # answers `AskNewest`


class OrderAnswer(InFederation):
    """Federator to operator, after the SQL commit: the outcome of an order.

    Attributes:
        number: of the order; 0 without one.
        digest: SHA-256 of the answered bytes.
        challenge: of the answered question.
        newest: the newest order that was carried out or refused; 0 before the first. ``newest_digest`` is of its bytes.
        roster_version: of the known roster.
        newest_serial: the highest known serial of an enrolment.
    """

    kind_name: ClassVar[str] = "order_answer"
    number: SequenceNumber
    digest: Sha256
    reply: Annotated[OrderReply, Field(strict=False)]
    code: Annotated[ReceiptCode, Field(strict=False)] | None = None
    detail: Detail = ""
    challenge: Challenge | None = None
    newest: Count
    newest_digest: Sha256 | None = None
    roster_version: Count = 0
    newest_serial: Serial = 0


Order = (
    SetDeadline
    | RevokeClient
    | QuarantineClient
    | LiftQuarantine
    | DismissProposals
    | ForgetClient
    | ForgetTombstone
    | VoidOrder
    | RotateKey
    | RotateEnrolmentKey
    | AllowReset
)
ORDER_TYPES: dict[str, type[Order]] = {order.kind_name: order for order in get_args(Order)}


def named_client(order: Order) -> str | None:
    """Return the client that an order names, or None."""
    return getattr(order, "client_id", None)
