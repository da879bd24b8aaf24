"""A federator's clock: seconds since the epoch that never step.

Deadlines are stored, so they are wall-clock times; but a wall clock may be set while a round is open. So the wall clock
is read once, and the monotonic clock counts from there. A process that has waited to lead reads it again before it
begins: its machine may have slept, which the monotonic clock does not count.
"""

import time
from datetime import UTC, datetime
from typing import Final, Protocol

import structlog


class Clock(Protocol):
    """A federator's source of time; tests set theirs by hand."""

    def now(self) -> float:
        """Seconds since the epoch."""


class SteadyClock:
    """Wall-clock seconds, counted monotonically since the last `read`."""

    def __init__(self) -> None:
        self.read()

    def read(self) -> None:
        """Read the wall clock; only before anything was timed."""
        self._offset = time.time() - time.monotonic()

    def now(self) -> float:
        # Databases keep microseconds. A time that changed a little by being stored would be another time to devices.
        return round(time.monotonic() + self._offset, 6)


def to_datetime(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


log = structlog.get_logger(__name__)

MOST_APART_S: Final = 1.0


class ClockWatch:
    """Logs once when the clocks differ, and once when they agree again."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._has_told = False

    def compare(self, database_now: datetime) -> None:
        """Compare this process's clock with the database's."""
        ahead_s = self._clock.now() - database_now.timestamp()
        is_apart = abs(ahead_s) > MOST_APART_S
        if is_apart and not self._has_told:
            log.warning(
                "clock_skew_detected",
                ahead_s=round(ahead_s, 1),
                hint="this process's clock differs from the database's, but leader and workers must agree on what "
                "was in time. Set the machine's clock (NTP), and restart this process",
            )
        elif self._has_told and not is_apart:
            log.info("clock_skew_resolved")
        self._has_told = is_apart
