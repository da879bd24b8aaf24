"""What a device believes of its federator's being there, by beats and by silence."""

import pytest

from foltr.core.protocol.heartbeat import FederatorStatus
from foltr.edge_client.federator_watch import FederatorWatch


def beat(*, online=True, federation="mail", at=1e9):
    return FederatorStatus(federation=federation, online=online, at=at, interval_s=30.0, software_version="1")


@pytest.fixture
def watch():
    return FederatorWatch("mail", "device-7")


def test_nothing_is_known_before_something_is_heard(watch):
    """Neither at the start nor over a new connection: the broker may be another one."""
    assert watch.online(0.0) is None
    assert watch.absence(0.0) == "the federator of 'mail' has said nothing at this broker"
    watch.receive(beat(), 5.0)
    watch.begin_connection()
    assert watch.online(6.0) is None
    assert watch.absence(8.0) == "the federator of 'mail' has said nothing at this broker, last heard 3 s ago"


def test_a_beat_holds_until_three_are_missing(watch):
    """One may be late, and one lost with a connection."""
    watch.receive(beat(), 100.0)
    assert watch.online(100.0)
    assert watch.online(189.9)
    assert watch.absence(189.9) is None
    assert watch.online(190.0) is False
    assert watch.absence(190.0) == "the federator of 'mail' has been silent for 90 s"
    watch.receive(beat(), 200.0)
    assert watch.online(289.9)


def test_its_clock_does_not_matter(watch):
    """What counts is when a beat came, by the device's own monotonic clock; not what it says."""
    for at in (0.0, 1e9, 9e10):
        watch.receive(beat(at=at), 10.0)
        assert watch.online(11.0)


def test_a_last_will_is_believed_at_once(watch):
    """And taken back by the next beat."""
    watch.receive(beat(), 100.0)
    watch.receive(beat(online=False), 110.0)
    assert watch.online(110.0) is False
    assert watch.absence(112.0) == "the federator of 'mail' is away, last heard 12 s ago"
    watch.receive(beat(), 120.0)
    assert watch.online(120.0)


def test_it_is_logged_once_that_it_is_away_or_back(watch, caplog):
    """However often somebody looks, and however it came to be known."""
    caplog.set_level("INFO", logger="foltr.edge_client.federator_watch")
    watch.receive(beat(), 0.0)
    for now in (80.0, 90.0, 91.0):
        watch.look(now)
    watch.receive(beat(online=False), 92.0)
    watch.receive(beat(), 93.0)
    watch.receive(beat(), 94.0)
    said = [record.getMessage().split()[0] for record in caplog.records]
    assert said == ["federator_away", "federator_back"]


def test_another_federations_is_passed_over(watch):
    """As every announcement of another one is."""
    watch.receive(beat(federation="photos"), 0.0)
    assert watch.online(0.0) is None
