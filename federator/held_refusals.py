"""Keeps the events of refusals until something else is stored, or for a moment: a flood of them waits for no disk."""

import math
from collections.abc import Sequence

from federator.deciding.decisions import Decisions
from storage.records import NewEvent

# A federator that is killed loses the events of so long, and nothing that anybody was promised.
HELD_S = 2.0


class HeldRefusals:
    """Refusals that were answered and are not stored yet; equal ones are one event, as within a batch.

    Attributes:
        due_at: when they are to be stored, in epoch seconds; infinity where there are none.
    """

    def __init__(self) -> None:
        self._noted = Decisions()
        self.due_at = math.inf

    def hold(self, events: Sequence[NewEvent], now: float) -> None:
        for event in events:
            self._noted.note(event)
        self.due_at = min(self.due_at, now + HELD_S)

    def take(self) -> list[NewEvent]:
        """Hand them over: whoever takes them stores them."""
        events = self._noted.events
        self._noted, self.due_at = Decisions(), math.inf
        return events
