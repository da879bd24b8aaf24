"""What a federator keeps from one turn to the next: refusals to store, erasures to do, retained messages to clear."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from foltr.broker.link import InboundMessage
from foltr.core.protocol.topics import Topics
from foltr.federator.clock import Clock
from foltr.federator.deciding.decisions import Decisions
from foltr.storage.records import NewEvent

# How many seconds of events a killed federator loses; promises are never lost.
HELD_S = 2.0


class DeferredRefusals:
    """Refusals that were answered and are not stored yet; equal ones are one event, as within a batch.

    Attributes:
        due_at: when to store them, in epoch seconds; infinity without any.
    """

    def __init__(self) -> None:
        self._noted = Decisions()
        self.due_at = math.inf

    def add(self, events: Sequence[NewEvent], now: float) -> None:
        for event in events:
            self._noted.note(event)
        self.due_at = min(self.due_at, now + HELD_S)

    def drain(self) -> list[NewEvent]:
        """Return and clear them; the caller stores them."""
        events = self._noted.events
        self._noted, self.due_at = Decisions(), math.inf
        return events


# An erasure is several transactions and a key's file, and long for a client that sent much: fifty in one turn blocked
# everybody for minutes.
MOST_AT_ONCE: Final = 4
A_TURN_S: Final = 0.25


class ErasurePace:
    """How many erasures fit into a moment, by how long the last one took; at least one, or none would ever be done."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_took_s = 0.0

    @property
    def batch_size(self) -> int:
        """How many a turn takes."""
        is_quick = self._last_took_s * MOST_AT_ONCE <= A_TURN_S
        return MOST_AT_ONCE if is_quick else max(1, int(A_TURN_S / self._last_took_s))

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Measure how long the erasure in the body takes."""
        began = self._clock.now()
        try:
            yield
        finally:
            self._last_took_s = self._clock.now() - began


# Further ones are delivered at the next connection. Who was forgotten is unknown before the federator has started.
MOST_NAMES = 100_000


class DroppedRetained:
    """The names in such messages since the last `drain`."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._names: set[str] = set()

    def note(self, message: InboundMessage) -> None:
        """Note a message for which the intake had no room."""
        client_id, kind = self._topics.parse(message.topic) or ("", None)
        # An empty message clears a retained one.
        if kind is not None and kind.is_retained and message.payload and len(self._names) < MOST_NAMES:
            self._names.add(client_id)

    def drain(self) -> set[str]:
        """Return and clear the names."""
        names, self._names = self._names, set()
        return names
