"""The operator tells the federator whose enrolment is void, and gives orders."""

from typing import Annotated, ClassVar

from pydantic import Field

from foltr.protocol.fields import Count, Detail, Message, Name, Timestamp


class Revocation(Message):
    """Every enrolment of ``client_id`` up to ``serial`` is void."""

    kind_name: ClassVar[str] = "revocation"
    client_id: Name
    serial: Annotated[int, Field(ge=1, le=2**31 - 1)]


class Roster(Message):
    """Operator to federator and all, retained: which enrolments are void. A higher ``version`` replaces a lower."""

    kind_name: ClassVar[str] = "roster"
    # Read only once the operator's signature is checked.
    longest_list: ClassVar[int] = 1_000_000
    federation: Name
    version: Annotated[int, Field(ge=1, le=2**31 - 1)]
    issued_at: Timestamp
    n_enrolled: Count
    revoked: list[Revocation]


class SetDeadline(Message):
    """Operator to federator: give this round ``max_time_s`` seconds from its opening instead of what was set."""

    kind_name: ClassVar[str] = "set_deadline"
    federation: Name
    round: Count
    max_time_s: Annotated[float, Field(gt=0, le=30 * 86_400, allow_inf_nan=False)]


class QuarantineClient(Message):
    """Operator to federator: take no update of this client until `LiftQuarantine`. It stays a member."""

    kind_name: ClassVar[str] = "quarantine_client"
    federation: Name
    client_id: Name
    reason: Annotated[Detail, Field(min_length=1)]


class LiftQuarantine(Message):
    """Operator to federator: take this client's updates again."""

    kind_name: ClassVar[str] = "lift_quarantine"
    federation: Name
    client_id: Name


class ForgetClient(Message):
    """Operator to federator: forget this client, as if it had asked itself (`Forget`)."""

    kind_name: ClassVar[str] = "forget_client"
    federation: Name
    client_id: Name


Order = SetDeadline | QuarantineClient | LiftQuarantine | ForgetClient
