"""A federator regularly tells all devices that it is online; the broker reports when it is gone."""

from typing import Annotated, ClassVar

from pydantic import Field, StringConstraints

from foltr.core.protocol.fields import PRINTABLE, InFederation, Timestamp


class FederatorStatus(InFederation):
    """Federator to all, retained, every ``interval_s``: I am here. ``online=False`` is also its last will.

    Its sequence has the federator's epoch, and rises with its connections (`foltr.core.protocol.signing.BeatSequence`).
    So neither a replaced federator nor a late last will can report the living one as away. ``at`` is seconds since the
    epoch by the federator's clock; that of a last will is the beginning of its connection. Devices do not judge by it,
    since their clocks may be wrong.
    """

    kind_name: ClassVar[str] = "federator_status"
    online: bool
    at: Timestamp
    interval_s: Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False)]
    software_version: Annotated[str, StringConstraints(max_length=64, pattern=PRINTABLE)]
