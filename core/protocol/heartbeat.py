"""A federator tells all devices, again and again, that it is there; the broker says so when it is no more."""

from typing import Annotated, ClassVar

from pydantic import Field, StringConstraints

from foltr.core.protocol.fields import PRINTABLE, InFederation, Timestamp


class FederatorStatus(InFederation):
    """Federator to all, retained, every ``interval_s``: I am here. ``online=False`` is also its last will.

    Its sequence has the federator's epoch, and rises with its connections (`foltr.core.protocol.signing.BeatSequence`):
    so neither a federator that another one has replaced nor a last will that comes late can say that the living one is
    away. ``at`` is seconds since the epoch by the federator's clock, of a last will when its connection began; nobody
    judges by it, for a device's own clock may be wrong.
    """

    kind_name: ClassVar[str] = "federator_status"
    online: bool
    at: Timestamp
    interval_s: Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)]
    software_version: Annotated[str, StringConstraints(max_length=64, pattern=PRINTABLE)]
