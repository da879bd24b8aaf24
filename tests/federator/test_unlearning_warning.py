"""Whoever runs a federation hears in time that unlearning takes longer than who is forgotten is told."""

import pytest
from structlog.testing import capture_logs

from foltr.core.protocol.membership import Forget
from foltr.core.protocol.topics import ClientTopic
from foltr.federator.deciding.state import FederationState
from foltr.federator.gathering import warn_if_late
from foltr.federator.job import UnlearningPolicy
from foltr.federator.pace import PacePolicy
from foltr.federator.plan import FederationPlan
from foltr.federator.round import RoundPolicy

DAY_S = 86_400.0
DAILY = PacePolicy(2, DAY_S, DAY_S)
AT_ONCE = UnlearningPolicy(every_s=0.0, swap_every_s=0.0, after=1, deadline_s=2 * DAY_S)
POLICY = RoundPolicy(1, 2, 0.0, 60.0)


def warnings(logs):
    return [line for line in logs if line["event"] == "unlearning_deadline_at_risk"]


@pytest.mark.parametrize(("pace", "n_steps", "is_late"), [(DAILY, 20, True), (DAILY, 19, False), (None, 5000, False)])
def test_a_step_of_devices_that_come_by_takes_one_and_a_half_periods(pace, n_steps, is_late):
    """A day before the job, and 20 steps of a day and a half: the month is over. Connected devices answer at once."""
    state = FederationState(FederationPlan("mail", 1, POLICY, pace=pace))
    with capture_logs() as logs:
        warn_if_late(UnlearningPolicy(), state, n_steps, DAY_S)
    found = [(line["n_steps"], line["period_s"], line["takes_days"], line["deadline_days"]) for line in warnings(logs)]
    assert found == ([(20, 86_400, 31.0, 30.0)] if is_late else [])


@pytest.mark.parametrize(
    ("plan", "n_warnings"),
    [({"pace": DAILY}, 1), ({"pace": PacePolicy(2)}, 0), ({}, 0)],
    ids=["daily", "once a minute", "connected"],
)
async def test_a_federator_says_so_when_it_starts(serve, plan, n_warnings):
    """Of the hundred rounds that are soon stored, at the pace that devices were told last."""
    with capture_logs() as logs:
        await serve(POLICY, **plan)
    assert [line["n_steps"] for line in warnings(logs)] == [100] * n_warnings


async def test_and_when_a_job_begins(serve, unsigned):
    """By the steps that it has: two of a day and a half, for a deadline of two days."""
    served = await serve(POLICY, pace=DAILY, unlearning=AT_ONCE)
    devices = [unsigned("alice"), unsigned("bob")]
    await served.join(devices)
    for number in (1, 2):
        for device in devices:
            served.update(device, number, number - 1)
        await served.turn()
    with capture_logs() as logs:
        served.receive(devices[1], ClientTopic.FORGET, Forget(federation="mail", client_id="bob"))
        await served.turn()
    assert [line["event"] for line in logs if line["event"] == "unlearning_started"] == ["unlearning_started"]
    assert [line["n_steps"] for line in warnings(logs)] == [2]
