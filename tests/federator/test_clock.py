"""The federator's clock: wall-clock seconds that never step."""

import time
from datetime import UTC, datetime, timedelta

from foltr.federator.clock import SteadyClock, to_datetime


def test_it_starts_at_the_wall_clock():
    """Deadlines are stored, so they mean what people mean by the time."""
    before = time.time()
    assert before - 0.01 <= SteadyClock().now() <= time.time() + 0.01


def test_setting_the_wall_clock_moves_no_deadline(monkeypatch):
    """An administrator or NTP sets the clock back an hour: the clock goes on as before."""
    clock = SteadyClock()
    first = clock.now()
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 3600)
    assert 0 <= clock.now() - first < 1


def test_who_begins_to_lead_reads_the_wall_clock_anew(monkeypatch):
    """A standby whose machine slept for two hours, which no monotonic clock counts, is not two hours late."""
    clock = SteadyClock()
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 7200)
    assert abs(clock.now() - real()) < 1
    clock.read()
    assert abs(clock.now() - real() - 7200) < 1


def test_it_counts_monotonic_seconds(monkeypatch):
    """A second is a second, and it never goes back."""
    clock = SteadyClock()
    first = clock.now()
    real = time.monotonic
    monkeypatch.setattr(time, "monotonic", lambda: real() + 5)
    assert 5 <= clock.now() - first < 6


def test_seconds_become_an_aware_moment():
    """The database takes moments in UTC, to the microsecond."""
    assert to_datetime(0.0) == datetime(1970, 1, 1, tzinfo=UTC)
    assert to_datetime(1_000.25) == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=1_000.25)
    assert to_datetime(1e9).utcoffset() == timedelta(0)
