"""Which rounds a job goes through, by the one schedule of the service and the simulator."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foltr.core.errors import SettingsError
from foltr.core.protocol.states import Strategy
from foltr.core.unlearning.schedule import (
    FEWEST_INTERACTIONS,
    LEAST_STEPS,
    MOST_OF_A_LONG_STEP,
    ReplayProgress,
    Schedule,
)
from foltr.edge_client.store.store import KEPT_INTERACTIONS
from foltr.edge_client.training.unlearning_limits import UnlearningLimits


def thesis(interval: int, strategy: Strategy = Strategy.FED_ERASER) -> Schedule:
    """The schedule as the thesis has it: the interval is what it is, however few steps there are."""
    return Schedule(strategy, interval, least_steps=1)


def test_rounds_are_so_far_apart_by_number():
    for stored, interval, gone_through in [
        (range(1, 12), 5, [1, 6, 11]),
        (range(1, 4), 1, [1, 2, 3]),
        ([1, 2, 9, 10, 11], 3, [1, 9]),
        # Thinned already: nothing more is passed over.
        ([1, 11, 21, 25, 26], 10, [1, 11, 21]),
        ([], 3, []),
    ]:
        course = ReplayProgress.over([*stored], interval)
        assert course.ahead(stored) == (course, gone_through), (stored, interval, gone_through)
        found = []
        while ahead := course.ahead(stored)[1]:
            assert ahead == gone_through[len(found) :], (stored, interval, gone_through)
            found.append(ahead[0])
            course = course.past(ahead[0])
        assert found == gone_through, (stored, interval, gone_through)


def test_every_so_many_rounds_from_the_first_on():
    """As the thesis numbers them; an interval of nothing replays for ever, and nobody learns from nothing."""
    assert thesis(10).begin(range(1, 42))[1] == [1, 11, 21, 31, 41]
    assert thesis(5).begin(range(7, 21))[1] == [7, 12, 17]
    assert thesis(5).begin(range(9, 9))[1] == []
    assert len(thesis(10).begin(range(1, 10_001))[1]) == 1_000
    for wrong in [{"interval": 0}, {"local_interactions": 0}, {"least_steps": 0}]:
        with pytest.raises(SettingsError, match=next(iter(wrong))):
            Schedule(Strategy.FED_ERASER, **wrong)


def test_a_job_has_a_hundred_steps_where_history_allows():
    for n_stored, interval in [(0, 1), (99, 1), (250, 2), (1_000, 10), (9_999, 10)]:
        schedule = Schedule(Strategy.ROLLBACK, interval=10)
        assert schedule.interval_over(n_stored) == interval, (n_stored, interval)
        assert len(schedule.begin(range(1, n_stored + 1))[1]) >= min(n_stored, LEAST_STEPS), (n_stored, interval)


def test_clients_learn_from_three_fifths():
    """As the thesis' three of five; a long step has those of its rounds, within bounds; a setting says otherwise."""
    assert [Schedule(Strategy.ROLLBACK).interactions_of(n, 10) for n in (1, 2, 5, 100)] == [3, 3, 3, 60]
    assert Schedule(Strategy.FED_ERASER, local_interactions=2).interactions_of(5, 10) == 2
    assert [Schedule(Strategy.RELEARN).interactions_of(5, interval) for interval in (1, 3, 10)] == [5, 15, 50]
    assert Schedule(Strategy.RELEARN).interactions_of(1, 2) == FEWEST_INTERACTIONS
    assert Schedule(Strategy.RELEARN).interactions_of(50_000, 10) == MOST_OF_A_LONG_STEP
    assert Schedule(Strategy.RELEARN, local_interactions=4).interactions_of(5, 10) == 4


def test_a_job_in_long_steps_ends_within_a_day_of_devices():
    """200 steps a day, 50 for each interaction: a long history has longer steps; a thinned one counts by number."""
    for n_stored, n_steps in [(99, 99), (1_000, 100), (1_999, 143), (10_000, 150), (10**6, 150)]:
        schedule = Schedule(Strategy.RELEARN, interval=10)
        assert len(schedule.begin(range(1, n_stored + 1))[1]) == n_steps <= UnlearningLimits().steps_a_day
        local_interactions = schedule.interactions_of(5, schedule.interval_over(n_stored))
        assert n_steps * local_interactions <= KEPT_INTERACTIONS * UnlearningLimits().steps_a_click, (n_stored, n_steps)
    thinned = [*range(1, 9_000, 10), *range(9_000, 10_001)]
    ahead = Schedule(Strategy.RELEARN, interval=10).begin(thinned)[1]
    assert LEAST_STEPS // 2 <= len(ahead) <= 150


def test_the_interval_doubles_for_rounds_that_came_meanwhile():
    """Those of the beginning are gone through as foretold, those since at twice the interval, then at four times."""
    course = ReplayProgress.over([1, 2, 3], 1)
    for number in (1, 2, 3):
        assert course.ahead([*range(1, 8)])[1][0] == number
        course = course.past(number)
    course, ahead = course.ahead([*range(1, 8)])
    assert (course.interval, course.horizon, ahead) == (2, 7, [5, 7])
    course, ahead = course.past(5).past(7).ahead([*range(1, 16)])
    assert (course.interval, course.horizon, ahead) == (4, 15, [11, 15])
    assert course.past(15).ahead([*range(1, 17)]) == (course.past(15), [])


@given(stored=st.sets(st.integers(1, 200), max_size=60), interval=st.integers(1, 12), n_come=st.integers(0, 5))
def test_a_job_ends_however_fast_live_rounds_come(stored, interval, n_come):
    """With so many new rounds at every step it rises through the stored ones, in steps of at least the interval."""
    stored = sorted(stored)
    course, found, newest = ReplayProgress.over(stored, interval), [], max(stored, default=0)
    for _ in range(2_000):
        course, ahead = course.ahead(stored)
        if not ahead:
            break
        found.append(ahead[0])
        course = course.past(ahead[0])
        stored += range(newest + 1, newest + 1 + n_come)
        newest += n_come
    else:
        raise AssertionError("the job does not end")
    assert all(later - earlier >= interval for earlier, later in pairwise(found))
    assert found[:1] == stored[:1]
