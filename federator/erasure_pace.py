"""Says how many clients a turn erases, so that nobody's update waits long for its answer."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from federator.clock import Clock

# An erasure is several transactions and a key's file, and long where a client sent much: fifty in one turn held up
# everybody for minutes.
MOST_AT_ONCE: Final = 4
A_TURN_S: Final = 0.25


class ErasurePace:
    """As many erasures as go in a moment, by how long the last one took; one at least, else it would never be done."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_took_s = 0.0

    @property
    def at_once(self) -> int:
        """How many a turn takes."""
        is_quick = self._last_took_s * MOST_AT_ONCE <= A_TURN_S
        return MOST_AT_ONCE if is_quick else max(1, int(A_TURN_S / self._last_took_s))

    @contextmanager
    def measured(self) -> Iterator[None]:
        """Note how long the erasure within takes."""
        began = self._clock.now()
        try:
            yield
        finally:
            self._last_took_s = self._clock.now() - began
