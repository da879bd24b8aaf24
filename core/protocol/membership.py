"""A device's messages about itself, from joining to being forgotten, and the operator's signed statement about it."""

from typing import Annotated, ClassVar

from pydantic import Field, StringConstraints

from foltr.core.protocol.fields import PRINTABLE, OfClient, PublicKey, Timestamp


class Join(OfClient):
    """Device to federator: take me into the federation. Idempotent; sent at every connection.

    ``enrolment`` is an `Enrolment` as the operator signed it (see `foltr.core.protocol.enrolment`); None if the
    federation accepts anyone.
    """

    kind_name: ClassVar[str] = "join"
    sdk_version: Annotated[str, StringConstraints(max_length=64, pattern=PRINTABLE)]
    enrolment: Annotated[bytes, Field(max_length=1024)] | None = None


class Leave(OfClient):
    """Device to federator: I stop contributing. What was contributed stays."""

    kind_name: ClassVar[str] = "leave"


class Status(OfClient):
    """Device to federator, retained; ``online=False`` is also the device's last will."""

    kind_name: ClassVar[str] = "status"
    online: bool


class Forget(OfClient):
    """Device to federator, retained until it is carried out: erase me, and unlearn what I contributed.

    It is valid for ever: a forgotten name is never used again.
    """

    kind_name: ClassVar[str] = "forget"


class Enrolment(OfClient):
    """Operator's statement: this key is this client's. Shown by the device when it joins.

    Attributes:
        serial: rises with every enrolment of a federation; a client's newer one replaces its older ones.
        secure: the federation has secure sums: this device sends only under a policy.
    """

    kind_name: ClassVar[str] = "enrolment"
    public_key: PublicKey
    serial: Annotated[int, Field(ge=1, le=2**31 - 1)]
    issued_at: Timestamp
    secure: bool = False
