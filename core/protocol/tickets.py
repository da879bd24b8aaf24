"""The ticket of a masked update: its purpose, its vector's digest, and its seeds, sealed to the helpers.

Helpers see tickets and never a vector. A ticket has a separate signature, so that they can check whose it is.
"""

from typing import Annotated, ClassVar

from pydantic import Field

from foltr.core.protocol.fields import Count, OfClient, Seal, Sha256, UpdateId
from foltr.core.protocol.policies import N_MAX_HELPERS, N_MIN_HELPERS

MAX_TICKET_BYTES = 2048


class UnsealedTicket(OfClient):
    """A ticket without its seals, which are bound to exactly this.

    Attributes:
        participation: 1 for a client's first, and higher each time; it only rises.
        digest: SHA-256 of the masked vector's bytes and the proof behind them.
    """

    round: Count
    cohort: Count
    policy_hash: Sha256
    update_id: UpdateId
    participation: Annotated[int, Field(ge=1, le=2**31 - 1)]
    digest: Sha256


class Ticket(UnsealedTicket):
    """Device to helpers, through the federator.

    Attributes:
        seals: of each helper in the policy's order, the seed of its mask.
    """

    kind_name: ClassVar[str] = "ticket"
    longest_list: ClassVar[int] = N_MAX_HELPERS
    seals: Annotated[list[Seal], Field(min_length=N_MIN_HELPERS, max_length=N_MAX_HELPERS)]
