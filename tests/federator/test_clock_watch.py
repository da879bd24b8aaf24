"""A clock that is apart from the database's is told once, and once that it is so no more."""

from datetime import UTC, datetime

from structlog.testing import capture_logs
from support.federator_without_network import HandClock

from foltr.federator.clock import ClockWatch


def test_what_is_apart_is_told_once() -> None:
    """By how much, ahead or behind; what both agree on within a second is nothing."""
    clock = HandClock()
    watch = ClockWatch(clock)
    with capture_logs() as logs:
        for at in (1000.9, 1002.0, 1005.0, 999.5, 990.0):
            clock.at = at
            watch.compare(datetime.fromtimestamp(1000.0, UTC))
    told = [(line["event"], line.get("ahead_s")) for line in logs]
    assert told == [("clocks_apart", 2.0), ("clocks_agree", None), ("clocks_apart", -10.0)]
