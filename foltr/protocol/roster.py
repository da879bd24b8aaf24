"""What the operator tells everybody, retained at the broker: whose enrolments are void, and the federator's key."""

from typing import Annotated, ClassVar

from pydantic import Field

from foltr.protocol.fields import Count, Message, Name, PublicKey
from foltr.protocol.orders import KeySequence, Salt, Tombstone


class Revocation(Message):
    """Every enrolment of ``client_id`` with a serial below ``void_below`` is void."""

    kind_name: ClassVar[str] = "revocation"
    client_id: Name
    void_below: Annotated[int, Field(ge=2, le=2**31 - 1)]


class Roster(Message):
    """Operator to federator and all, retained: a snapshot of the log of orders. A higher version replaces a lower.

    Attributes:
        through: the newest order that is in it.
        salt: of the tombstones; whoever reads the roster can tell whether a name that they guess was forgotten.
        forgotten: the tombstones of clients that were forgotten by order; their names are not used again.
    """

    kind_name: ClassVar[str] = "roster"
    # Read only once the operator's signature is checked.
    longest_list: ClassVar[int] = 1_000_000
    federation: Name
    version: Annotated[int, Field(ge=1, le=2**31 - 1)]
    through: Count
    revoked: list[Revocation]
    salt: Salt
    forgotten: list[Tombstone]


class FederatorKey(Message):
    """Operator to devices, retained: from now on ``new_key`` is the federator's. A higher sequence replaces a lower."""

    kind_name: ClassVar[str] = "federator_key"
    federation: Name
    sequence: KeySequence
    old_key: PublicKey
    new_key: PublicKey
