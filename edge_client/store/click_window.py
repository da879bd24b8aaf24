"""A recorded list waits for more clicks before it is learned and sent; once it is in an update they come too late.

Users read what they opened, come back, and open the next. More clicks replace a list's interaction, under a new number.
So numbers are in the order of the last clicks, and the lists that wait for more are the newest.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable


class ClickWindow:
    """The interactions of one device that wait for more clicks. Any thread may call every method.

    Args:
        clock: epoch seconds, because the wait goes on while the device is off.

    Attributes:
        length_s: how long an interaction waits after it was recorded; 0: it does not.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._waiting: deque[tuple[int, int]] = deque()
        self._n_ended = 0
        self.length_s = 0.0

    def now(self) -> int:
        """Return the moment to store with an interaction that is recorded now, in epoch seconds."""
        return int(self._clock())

    def begin(self, recorded: Iterable[tuple[int, int]]) -> None:
        """Begin again with these: interactions in the order of their numbers, and when each was recorded."""
        with self._lock:
            self._waiting = deque(recorded)

    def add(self, number: int, recorded_at: int) -> None:
        """Let one more wait, the newest."""
        with self._lock:
            if self.length_s:
                self._waiting.append((number, recorded_at))
                self.first()

    def first(self) -> int | None:
        """Return the number of the first interaction that waits; None if none does. All above it wait, too."""
        with self._lock:
            if not self.length_s:
                self._waiting.clear()
            now = self._clock()
            # A clock that was set back ends the wait, so that none is longer than the window.
            while self._waiting and not 0.0 <= now - self._waiting[0][1] < self.length_s:
                self._waiting.popleft()
                self._n_ended += 1
            return self._waiting[0][0] if self._waiting else None

    def n_ended(self) -> int:
        """Return how many no longer wait, for the caller to notice more."""
        self.first()
        return self._n_ended

    def ends_in_s(self) -> float:
        """Return after how many seconds the next one has waited; infinity if none waits."""
        with self._lock:
            waits = self.first() is not None
            return self._waiting[0][1] + self.length_s - self._clock() if waits else float("inf")
