"""How many clients a turn erases follows from how long the last one took."""

import pytest
from support.federator_without_network import HandClock

from foltr.federator.eraser import A_TURN_S, MOST_AT_ONCE, ErasurePace


@pytest.mark.parametrize(
    ("took_s", "at_once"),
    [(0.0, MOST_AT_ONCE), (A_TURN_S / MOST_AT_ONCE, MOST_AT_ONCE), (A_TURN_S / 3, 3), (A_TURN_S / 1.5, 1), (60.0, 1)],
)
def test_as_many_as_go_in_a_moment_and_one_at_least(took_s, at_once):
    """The last one counts, also where it failed: the database may be slow."""
    clock = HandClock()
    pace = ErasurePace(clock)
    clock.at = 0.0

    def erase() -> None:
        with pace.measured():
            clock.at += took_s
            raise OSError("slow")

    with pytest.raises(OSError, match="slow"):
        erase()
    assert pace.batch_size == at_once
    with pace.measured():
        pass
    assert pace.batch_size == MOST_AT_ONCE
