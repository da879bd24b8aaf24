"""When a job begins: requests are gathered, and the models that take the newest one's place are limited in rate."""

from dataclasses import replace
from datetime import UTC, datetime
from unittest.mock import AsyncMock, patch

import pytest
from structlog.testing import capture_logs
from support.federator_without_network import Served
from support.unlearning_steps import forget, unlearn

from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.states import Strategy
from foltr.core.protocol.updates import DenseDelta
from foltr.federator.job import UnlearningPolicy
from foltr.federator.round import RoundPolicy
from foltr.federator.store import FederationStore
from foltr.storage.erasure.erasures import list_erasures
from foltr.storage.erasure.unlearning_jobs import list_jobs
from foltr.storage.queries import list_events

N_FEATURES = 4
KEY = SigningKey(b"federator" + bytes(23))
DAY = 86_400.0
HOUR = 3600.0
ROUND_S = 1e6
SYBILS = tuple(f"sybil-{i}" for i in range(10))


@pytest.fixture
async def taught(serve, unsigned):
    """Starts an actor whose model has learned from one honest device and some sybils, each in a round."""

    async def start(names=SYBILS, **policy) -> tuple[Served, list]:
        unlearning = UnlearningPolicy(Strategy.FED_ERASER, step_s=10.0, min_coverage=0.0, **policy)
        rounds = RoundPolicy(1 + len(names), 1 + len(names), 0.0, ROUND_S)
        served = await serve(rounds, n_features=N_FEATURES, key=KEY, unlearning=unlearning)
        devices = [unsigned(name) for name in ("honest", *names)]
        await served.join(devices)
        for device in devices:
            served.update(device, 1, 0, body=DenseDelta(dim=N_FEATURES, values=pack_vector([1.0, 0, 0, 0])))
        await served.turn()
        return served, devices

    return start


async def jobs(served) -> list[str]:
    return [job.state for job in await list_jobs(served.db, "mail")]


async def states(served) -> set[str]:
    return {row.state for row in await list_erasures(served.db, "mail")}


async def test_ten_sybils_cost_one_job(taught, restarted):
    """However they spread their requests over the day, and whoever restarts in between."""
    served, devices = await taught()
    for i, sybil in enumerate(devices[1:]):
        await forget(served, sybil)
        assert await jobs(served) == []
        served.clock.at += DAY / 11
        if i % 3 == 1:
            served = await restarted(served)
    assert await states(served) == {"waiting"}
    served.clock.at += DAY / 11 + 1.0
    await served.turn()
    assert await jobs(served) == ["running"]
    await unlearn(served, devices, [1.0, 0, 0, 0])
    assert (await jobs(served), await states(served)) == (["done"], {"done"})


async def test_a_swap_is_not_followed_by_another_one_at_once(taught, restarted):
    """Not within the hour, though enough wait and the federator was restarted; what is erased is so at once."""
    served, devices = await taught(after=2)
    await forget(served, devices[1])
    served = await restarted(served)
    assert await jobs(served) == []
    await forget(served, devices[2])
    await unlearn(served, devices, [1.0, 0, 0, 0])
    assert await jobs(served) == ["done"]
    for sybil in devices[3:6]:
        served.clock.at += HOUR / 5
        await forget(served, sybil)
        served = await restarted(served)
    assert await jobs(served) == ["done"]
    assert await states(served) == {"done", "waiting"}
    served.clock.at += 2 * HOUR / 5 - 1.0
    await served.turn()
    assert await jobs(served) == ["done"]
    served.clock.at += 2.0
    await served.turn()
    assert await jobs(served) == ["done", "running"]


async def test_a_job_is_called_off_if_nobody_waits_for_it_any_more(taught):
    """What is stored decides, when it would begin."""
    served, devices = await taught()
    await forget(served, devices[1])
    served.clock.at += DAY + 1.0
    with patch.object(FederationStore, "waiting_erasures", AsyncMock(return_value=[])):
        await served.turn()
    assert (await jobs(served), served.actor.finished) == ([], False)


async def test_after_the_last_round_nobody_is_waited_for(taught, restarted):
    """No round is disturbed any more, and the federator ends with the job."""
    served, devices = await taught(every_s=30 * DAY)
    served.plan = replace(served.plan, stop_after_round=2)
    served = await restarted(served)
    await forget(served, devices[1])
    assert await jobs(served) == []
    served.clock.at += ROUND_S + 1.0
    await served.turn()
    assert await jobs(served) == ["running"]
    assert not served.actor.finished
    await unlearn(served, devices, [1.0, 0, 0, 0])
    assert await jobs(served) == ["done"]
    assert served.actor.finished


async def test_a_deadline_that_has_passed_is_told_of_once(taught, restarted):
    """By an event and an error in the log, once for each erasure, also by a federator that starts again."""
    served, devices = await taught(deadline_s=HOUR)
    await forget(served, devices[1])
    notice = served.receipts.sent[-1]
    due_at = datetime.fromtimestamp(served.clock.at + HOUR, UTC)
    assert (notice.code, notice.detail) == ("forgetting", f"the model without it is due by {due_at:%Y-%m-%d %H:%M} UTC")
    served.clock.at += HOUR - 1.0
    await served.turn()
    assert await overdue(served) == []
    served.clock.at += 62.0
    with capture_logs() as lines:
        await served.turn()
        served = await restarted(served)
        served.clock.at += 62.0
        await served.turn()
    said = [(line["log_level"], line["n"]) for line in lines if line["event"] == "erasure_overdue"]
    assert said == [("error", 1)]
    assert len(await overdue(served)) == 1
    await forget(served, devices[2])
    served.clock.at += HOUR + 62.0
    await served.turn()
    assert len(await overdue(served)) == 2
    served.clock.at += DAY
    await served.turn()
    await unlearn(served, devices, [1.0, 0, 0, 0])
    assert (await jobs(served), await states(served)) == (["done"], {"done"})
    served = await restarted(served)
    assert len(await overdue(served)) == 2


async def overdue(served) -> list[str]:
    return [event.detail for event in await list_events(served.db, "mail") if event.kind == "erasure_overdue"]
