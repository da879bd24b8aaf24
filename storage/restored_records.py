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
        """Whether a model is one of those in between."""
        return self.restored_version < version < self.version


@dataclass(frozen=True, slots=True)
class Restoration:
    """Makes an older model's weights the newest again, and takes back the models since.

    Attributes:
        version: of the restored model.
        anchor_version: of the older one, the anchor.
        abandons: the open round, whose updates are for a withdrawn model.
        defence_state: the aggregation rule's memory from then on.
        reason: why an open unlearning job fails: it has replayed rounds that no longer count.
    """

    version: int
    anchor_version: int
    restored_at: datetime
    reason: str
    abandons: int | None = None
    next_opening: RoundOpening | None = None
    defence_state: bytes | None = None
    events: Sequence[NewEvent] = ()
