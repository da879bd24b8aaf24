"""Tells a federator the time: seconds since the epoch that never step.

Deadlines are stored, so they are wall-clock times; but a wall clock may be set while a round is open. The
wall clock is read once, and from there on the monotonic clock counts. A process that has waited to lead, perhaps for
weeks or while its machine slept, which the monotonic clock does not count, reads it anew before it begins.
"""

import time
from datetime import UTC, datetime
from typing import Protocol


class Clock(Protocol):
    """What a federator reads the time from; tests set theirs by hand."""

    def now(self) -> float:
        """Seconds since the epoch."""


class SteadyClock:
    """Wall-clock seconds, counted monotonically since they were read last."""

    def __init__(self) -> None:
        self.read()

    def read(self) -> None:
        """Read the wall clock: nothing may have been timed yet."""
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        return time.monotonic() + self._offset


def to_datetime(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
