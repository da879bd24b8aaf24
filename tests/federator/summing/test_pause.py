"""How long rounds are held back after others have failed."""

import math
from datetime import UTC, datetime
from types import SimpleNamespace

from support.secure_policies import policy

from foltr.core.protocol.states import PAUSING, AbandonReason
from foltr.federator.summing.pause import Pause, held_until, released_at
from foltr.storage.sum_records import FailedRounds

ENDED_AT = datetime.fromtimestamp(1000.0, UTC)


def failed(n_rounds, reason=AbandonReason.SUM_IMPLAUSIBLE):
    return FailedRounds(n_rounds, 1, reason, ENDED_AT)


def test_the_pause_doubles_up_to_a_day():
    """A minute after the first; where devices were too few six hours at most, or it would be at the same hour again."""
    for n_rounds, pause_s in [(1, 60), (2, 120), (3, 240), (11, 61_440), (12, 86_400), (16, 86_400)]:
        for reason in PAUSING:
            most_s = 21_600 if reason is AbandonReason.TOO_FEW_CLIENTS else 86_400
            assert held_until(failed(n_rounds, reason), now=1000.0) == 1000.0 + min(pause_s, most_s), n_rounds


def test_a_clock_that_was_set_back_holds_back_no_longer():
    """The round ended in the future, then: the pause is counted from now."""
    assert held_until(failed(2), now=400.0) == 400.0 + 120.0


def test_devices_hear_of_a_round_while_half_of_its_time_is_left():
    """Of one from 1000 to 1100; where a pause ends later than it does, of one of those after it."""
    for until, heard_at in [(0, 0), (1050, 1050), (1051, 1100), (1099, 1100), (1100, 1100), (1500, 1500)]:
        assert released_at(until, closes_at=1100.0, max_time_s=100.0) == heard_at, until


class Ended:
    """A store in which the newest rounds have ended so."""

    def __init__(self, ended):
        self.ended = ended

    async def count_failed_rounds(self, _policy_hash):
        return self.ended


async def test_a_pause_wakes_the_federator_when_it_ends_and_then_no_more():
    """A moment that has passed would wake it again and again."""
    terms = SimpleNamespace(lacks_verify_key=False, policy=policy())
    times = {"opened_at": 1000.0, "closes_at": 11_000.0, "policy": SimpleNamespace(max_time_s=10_000.0)}
    current = SimpleNamespace(number=2, terms=terms, **times)
    pause = Pause(Ended(failed(1)))
    assert pause.wake_at(current) == -math.inf
    await pause.find_pause(current, now=1000.0)
    assert (pause.wake_at(current), pause.holds(1059.0)) == (1060.0, True)
    await pause.find_pause(current, now=1060.0)
    assert (pause.wake_at(current), pause.holds(1060.0)) == (math.inf, False)


async def test_of_a_round_without_a_secure_sum_nothing_is_held_back():
    """Nor where there is no round."""
    pause = Pause(Ended(failed(1)))
    for current in (None, SimpleNamespace(number=2, terms=None)):
        await pause.find_pause(current, now=1000.0)
        assert (pause.wake_at(current), pause.holds(1000.0)) == (math.inf, False)
