"""How long rounds are held back after most norm proofs of a round have failed."""

from datetime import UTC, datetime

import pytest

from federator.summing.pause import held_until
from storage.sum_records import Disagreements

ENDED_AT = datetime.fromtimestamp(1000.0, UTC)


@pytest.mark.parametrize(
    ("n_rounds", "pause_s"), [(1, 60), (2, 120), (3, 240), (11, 61_440), (12, 86_400), (16, 86_400)]
)
def test_the_pause_doubles_up_to_a_day(n_rounds, pause_s):
    """A minute after the first."""
    assert held_until(Disagreements(n_rounds, ENDED_AT), now=1000.0) == 1000.0 + pause_s


def test_nothing_is_held_back_where_no_round_ended_so():
    """Whatever the clock says."""
    assert held_until(Disagreements(0, None), now=1000.0) == 0.0


def test_a_clock_that_was_set_back_holds_back_no_longer():
    """The round ended in the future, then: the pause is counted from now."""
    assert held_until(Disagreements(2, ENDED_AT), now=400.0) == 400.0 + 120.0
