"""The federator of a replay decides by the service's rules, and counts no list twice."""

import numpy as np
import pytest

from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.updates import DenseDelta
from foltr.federator.round import Record, UpdateHeader
from foltr_research.simulation.config import SimulationConfig
from foltr_research.simulation.logged_clicks.devices import Update
from foltr_research.simulation.logged_clicks.federator import ReplayedFederator
from foltr_research.simulation.logged_clicks.settings import RoundSettings, plan_of


def federator(**settings):
    plan = plan_of(SimulationConfig(), RoundSettings.read({"min_clients": 2, **settings}), 2)
    return ReplayedFederator(plan, np.zeros(2, np.float32), 1, 0.0)


def update(client, round_=1, base=0, after=0, through=3, values=(1.0, 0.0)):
    body = DenseDelta(dim=2, values=np.array(values, "<f4").tobytes())
    header = UpdateHeader(client, f"{client}-{through}", round_, base, after, through)
    return Update(header, body, 3, (), None, None)


@pytest.mark.parametrize("pacing", ["buffered", "deadline"])
def test_the_same_update_counts_once(pacing):
    """Delivered again in its round, in a later one, or after a newer one of its client."""
    of = federator(pacing=pacing)
    assert isinstance(of.decide(update("a"), 1.0), Record)
    assert of.decide(update("a"), 2.0).code is ReceiptCode.DUPLICATE
    assert isinstance(of.decide(update("b"), 3.0), Record)
    assert of.end_due(3.0).staleness == [0, 0]
    np.testing.assert_array_equal(of.newest.values, [1.0, 0.0])
    expected = ReceiptCode.OVERLAPS if pacing == "buffered" else ReceiptCode.LATE
    assert of.decide(update("a"), 4.0).code is expected
    assert isinstance(of.decide(update("a", round_=2, base=1, after=3, through=6), 5.0), Record)
    assert not isinstance(of.decide(update("a", round_=2, base=1, after=0, through=6), 6.0), Record)


def test_after_a_round_without_a_model_the_same_lists_may_count():
    """Its watermarks go back, and its updates are taken back by their devices."""
    of = federator(max_time_s=10)
    taken = update("a")
    assert isinstance(of.decide(taken, 1.0), Record)
    assert of.end_due(9.9) is None
    ended = of.end_due(10.0)
    assert ended.taken_back == [taken]
    assert not ended.made_model
    assert (of.newest.version, of.newest.round) == (0, 2)
    assert isinstance(of.decide(update("a", round_=2), 11.0), Record)


def test_a_round_without_updates_begins_again():
    """No rounds are made while all users are away."""
    of = federator(max_time_s=10)
    assert of.wake_at() == 10.0
    assert of.end_due(10.0) is None
    assert (of.newest.round, of.wake_at()) == (1, 20.0)


def test_a_stale_update_makes_a_smaller_step():
    """By the service's weight: two models behind, 3 ** -0.5 of its length."""
    of = federator(min_clients=1)
    for number, base in ((1, 0), (2, 1)):
        of.decide(update(f"fresh-{number}", number, base, values=(0.0, 1.0)), float(number))
        of.end_due(float(number))
    of.decide(update("late", 1, 0), 3.0)
    assert of.end_due(3.0).staleness == [2]
    np.testing.assert_allclose(of.newest.values, [3**-0.5, 2.0], rtol=1e-6)
