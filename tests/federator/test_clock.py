"""The federator's clock: wall-clock seconds that never step."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import numpy as np
import pytest
from structlog.testing import capture_logs
from support.federator_without_network import HandClock

from foltr.federator import clock as clock_module
from foltr.federator.clock import ClockWatch, SteadyClock, to_datetime


@pytest.fixture
def machine(monkeypatch):
    """The machine's two clocks."""
    machine = SimpleNamespace(wall=1_000.0, ticks=50.0)
    clocks = SimpleNamespace(time=lambda: machine.wall, monotonic=lambda: machine.ticks)
    monkeypatch.setattr(clock_module, "time", clocks)
    return machine


def test_setting_the_wall_clock_moves_no_deadline(machine):
    """It starts at wall-clock time and counts monotonic seconds, so a changed wall clock has no effect."""
    clock = SteadyClock()
    assert clock.now() == 1_000.0
    machine.wall -= 3600
    assert clock.now() == 1_000.0
    machine.ticks += 5
    assert clock.now() == 1_005.0


def test_who_begins_to_lead_reads_the_wall_clock_anew(machine):
    """A standby whose machine slept for two hours, which no monotonic clock counts, is not two hours late."""
    clock = SteadyClock()
    machine.wall += 7200
    assert clock.now() == 1_000.0
    clock.read()
    assert clock.now() == 8_200.0


def test_a_time_that_was_stored_is_the_time_that_was_announced(machine):
    """Or a device would take a round for one that began again, and send a second update to it."""
    machine.wall = 1_764_288_000.0
    clock = SteadyClock()
    for machine.ticks in np.random.default_rng(3).uniform(50.0, 5000.0, 200):
        assert to_datetime(clock.now()).timestamp() == clock.now()


def test_seconds_become_an_aware_moment():
    """The database takes moments in UTC, to the microsecond."""
    assert to_datetime(1_000.25) == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=1_000.25)
    assert to_datetime(1e9).utcoffset() == timedelta(0)


def test_what_is_apart_is_told_once() -> None:
    """By how much, ahead or behind; what both agree on within a second is nothing."""
    clock = HandClock()
    watch = ClockWatch(clock)
    with capture_logs() as logs:
        for at in (1000.9, 1002.0, 1005.0, 999.5, 990.0):
            clock.at = at
            watch.compare(datetime.fromtimestamp(1000.0, UTC))
    told = [(line["event"], line.get("ahead_s")) for line in logs]
    assert told == [("clock_skew_detected", 2.0), ("clock_skew_resolved", None), ("clock_skew_detected", -10.0)]
