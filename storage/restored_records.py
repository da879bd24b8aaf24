"""The plain values of models that are restored from an older one (see `foltr.storage.records`)."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from foltr.storage.records import NewEvent, RoundOpening


@dataclass(frozen=True, slots=True)
class RestoredVersion:
    """A model whose weights are those of an older one: the models between the two were taken back."""

    version: int
    restored_version: int

    def takes_back(self, version: int) -> bool:
        """Whether a model is one of those between."""
        return self.restored_version < version < self.version


@dataclass(frozen=True, slots=True)
class Restoration:
    """The weights of an older model are about to be the newest again, and the models since are taken back.

    Attributes:
        version: of the restored model.
        anchor_version: of the older one, the anchor.
        abandons: the open round, whose updates are for a model that goes.
        defence_state: what the rule of aggregation remembers from then on.
        reason: why an unlearning job that is open fails: it has gone through rounds that count no more.
    """

    version: int
    anchor_version: int
    restored_at: datetime
    reason: str
    abandons: int | None = None
    next_opening: RoundOpening | None = None
    defence_state: bytes | None = None
    events: Sequence[NewEvent] = ()
