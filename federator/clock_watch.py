"""Tells the operator when this process's clock and that of the database are apart.

A leader ends rounds by its clock, and workers say by theirs what came in time. Each reads the wall clock once, so a
machine whose clock was set since, or that slept, is apart from the others until the process is started again.
"""

from datetime import datetime
from typing import Final

import structlog

from federator.clock import Clock

log = structlog.get_logger(__name__)

MOST_APART_S: Final = 1.0


class ClockWatch:
    """Says once that the clocks are apart, and once that they are not any more."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._has_told = False

    def compare(self, database_now: datetime) -> None:
        """Compare this process's clock with what the database's has just shown."""
        ahead_s = self._clock.now() - database_now.timestamp()
        is_apart = abs(ahead_s) > MOST_APART_S
        if is_apart and not self._has_told:
            log.warning(
                "clocks_apart",
                ahead_s=round(ahead_s, 1),
                hint="this process's clock against the database's: leader and workers must agree on what came in time. "
                "Set the machine's clock (NTP), and start this process again",
            )
        elif self._has_told and not is_apart:
            log.info("clocks_agree")
        self._has_told = is_apart
