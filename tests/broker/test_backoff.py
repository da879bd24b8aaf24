"""How long a link waits, by what ended its connections."""

import pytest

from foltr.broker import backoff
from foltr.broker.backoff import LIMIT_S, SUSPECTED_LIMIT_S, TAKEN_OVER_FIRST_S, TAKEN_OVER_LIMIT_S, Backoff
from foltr.broker.failures import FailureCause, FailureKind


@pytest.fixture(autouse=True)
def longest_pauses(monkeypatch):
    """Each pause is the longest that could be drawn."""
    monkeypatch.setattr(backoff.random, "uniform", lambda _low, high: high)


REFUSED = FailureCause(FailureKind.UNREACHABLE, "connection refused")
ENDED = FailureCause(FailureKind.UNREACHABLE, "the connection ended")
TAKEN_OVER = FailureCause(FailureKind.TAKEN_OVER, "another process has connected as this user")


def pauses(outages, cause, lasted_s, n, *, in_order=True):
    """How long it waits after each of ``n`` connections that stood so long; None: that were not made."""
    found, now = [], 0.0
    for _ in range(n):
        up_since, now = now, now + (lasted_s or 0.0)
        outages.note(cause, now, None if lasted_s is None else up_since, in_order=in_order)
        found.append(outages.pause_s())
        now += found[-1]
    return found


def test_pauses_grow_while_there_is_no_broker():
    """Twice as long each time, up to half a minute."""
    assert pauses(Backoff(0.0), REFUSED, None, 9) == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, LIMIT_S, LIMIT_S, LIMIT_S]


def test_a_connection_that_lasted_begins_anew_and_one_that_did_not_goes_on():
    """But not far: a few short outages do not add up to half a minute."""
    assert pauses(Backoff(0.0), ENDED, 41.0, 6) == [0.5] * 6
    assert pauses(Backoff(0.0), ENDED, 11.0, 3) == [0.5] * 3
    assert pauses(Backoff(0.0), ENDED, 1.0, 3) == [0.5, 1.0, 2.0]


def test_whoever_was_thrown_out_stays_away_for_ever_longer():
    """Each return throws the other one out. A connection as long as its pauses are is none that lasted."""
    expected = [TAKEN_OVER_FIRST_S, 60.0, 120.0, 240.0, TAKEN_OVER_LIMIT_S, TAKEN_OVER_LIMIT_S]
    for lasted_s in (0.1, TAKEN_OVER_LIMIT_S):
        assert pauses(Backoff(0.0), TAKEN_OVER, lasted_s, 6) == expected
    assert pauses(Backoff(0.0), TAKEN_OVER, 2 * TAKEN_OVER_LIMIT_S + 1.0, 3) == [TAKEN_OVER_FIRST_S] * 3


def test_a_broker_that_does_not_say_so_is_seen_through():
    """It lets in each time, and no connection lasts: the eighth time that is called what it looks like."""
    outages = Backoff(0.0)
    said = [outages.note(ENDED, 50.0 * i + 20.0, 50.0 * i, in_order=True) for i in range(10)]
    assert [cause.failure_kind for cause in said] == [FailureKind.UNREACHABLE] * 7 + [FailureKind.TAKEN_OVER] * 3
    assert said[7].in_words.endswith("as if another process connects as this user (the connection ended)")
    assert pauses(Backoff(0.0), ENDED, 1.0, 12)[7:] == [TAKEN_OVER_FIRST_S, *[SUSPECTED_LIMIT_S] * 4]


def test_another_process_is_mentioned_early():
    """After three connections that ended soon, while the fourth is young; pauses stay as short as they were."""
    outages = Backoff(0.0)
    for i in range(3):
        assert not outages.shares_session(1.0)
        outages.note(ENDED, 2.0 * i + 1.0, 2.0 * i, in_order=True)
    assert outages.shares_session(0.0)
    assert outages.shares_session(39.0)
    assert not outages.shares_session(41.0)
    assert outages.pause_s() <= 2.0


def test_a_connection_that_was_lost_is_no_broker_that_is_missing():
    """What to do is not to start one, until the next attempt has shown that there is none."""
    outages = Backoff(0.0)
    for lasted_s, in_order in ((1.0, True), (1000.0, True), (1000.0, False)):
        lost = outages.note(ENDED, 2000.0, 2000.0 - lasted_s, in_order=in_order)
        assert (lost.failure_kind, lost.in_words) == (FailureKind.UNREACHABLE, "the connection ended")
        assert lost.next_step.startswith("It connects again by itself. If connections go on ending: Processes with the")
    assert outages.note(REFUSED, 2001.0, None, in_order=True) == REFUSED
    special = FailureCause(FailureKind.UNREACHABLE, "its certificate is out of date", "renew it")
    assert outages.note(special, 2003.0, 2002.0, in_order=True) == special


def test_an_outage_is_no_other_process():
    """Where there is no broker in between, connections that end soon are its restarts."""
    outages = Backoff(0.0)
    for i in range(20):
        assert outages.note(ENDED, 10.0 * i + 1.0, 10.0 * i, in_order=True).failure_kind is FailureKind.UNREACHABLE
        if i % 3 == 2:
            assert outages.note(REFUSED, 10.0 * i + 2.0, None, in_order=True).failure_kind is FailureKind.UNREACHABLE


def test_a_network_that_fails_is_no_other_process():
    """It resets connections: whoever closes them in order is the broker."""
    assert max(pauses(Backoff(0.0), ENDED, 1.0, 20, in_order=False)) == 2.0


def test_another_process_is_suspected_where_connections_end_soon():
    """And as long as there was one; not where there is no connection at all."""
    outages = Backoff(0.0)
    outages.note(REFUSED, 1.0, None, in_order=True)
    assert not outages.suspects_another
    outages.note(ENDED, 62.0, 1.0, in_order=True)
    assert not outages.suspects_another
    outages.note(ENDED, 72.0, 62.0, in_order=True)
    assert outages.suspects_another
    outages.note(TAKEN_OVER, 73.0, 72.5, in_order=True)
    outages.note(ENDED, 173.0, 73.0, in_order=True)
    assert outages.suspects_another


@pytest.mark.parametrize("cause", [REFUSED, TAKEN_OVER], ids=["away", "taken over"])
def test_an_outage_is_said_once_and_then_rarely(cause):
    """The first time, the fifth, and every twentieth."""
    outages, said = Backoff(0.0), []
    for n in range(1, 45):
        outages.note(cause, float(n), None if cause is REFUSED else n - 0.5, in_order=True)
        if outages.is_worth_a_line:
            said.append(n)
    assert said == [1, 5, 20, 40]
