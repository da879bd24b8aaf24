"""When a device comes by next: no clock keeps it away for ever, and who was forgotten comes no more."""

import contextlib
import random
from collections.abc import Iterator

import pytest

from foltr.core.protocol.paces import latest_pause_s
from foltr.edge_client.participation import Participation
from foltr.edge_client.store.store import DeviceStore
from foltr.edge_client.visits import Visits

NOW, PERIOD_S = 2_000_000_000.0, 3600.0


@pytest.fixture
def store() -> Iterator[DeviceStore]:
    opened = DeviceStore(":memory:", client_id="device-7", federation="mail", max_interactions=10)
    opened.put_pace(PERIOD_S, NOW + 60.0)
    with contextlib.closing(opened):
        yield opened


def visits_of(store: DeviceStore, clock: list[float]) -> Visits:
    participation = Participation("device-7", None, random.Random(1))  # noqa: S311
    return Visits("mail", "device-7", store, participation, random.Random(1), lambda: clock[0])  # noqa: S311


def test_a_clock_that_is_set_back_while_a_device_rests_does_not_keep_it_away(store) -> None:
    """A device that started years ahead, and hears the time then, comes within one and a half periods of that."""
    clock = [NOW]
    visits = visits_of(store, clock)
    visits.end_visit()
    assert 0.0 < visits.rest_s() <= latest_pause_s(PERIOD_S)
    clock[0] -= 20 * 365 * 86_400.0
    assert 0.0 < visits.rest_s() <= latest_pause_s(PERIOD_S)
    rest_s = visits.rest_s()
    clock[0] += 60.0
    assert visits.rest_s() == pytest.approx(rest_s - 60.0)
    # So does the next process.
    assert visits_of(store, clock).rest_s() == visits.rest_s()


def test_who_was_forgotten_in_a_visit_draws_no_other(store) -> None:
    """The visit in which it hears that is its last, but for those that its application calls for."""
    visits = visits_of(store, [NOW])
    visits.begin_visit(0.0)
    visits.forget()
    visits.end_visit()
    assert visits.resting_until is None
    assert visits.rest_s() == float("inf")
