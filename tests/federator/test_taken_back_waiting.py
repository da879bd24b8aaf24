"""Models are rolled back while erasures wait: for the operator's order, devices, the swap, or since just now."""

from dataclasses import replace

import pytest
from support.voting_devices import (
    BACK,
    NAMES,
    ONES,
    STEPWISE,
    answer,
    done,
    forget,
    order,
    origins,
    play,
    said,
    unlearn,
)

from foltr.core.protocol.membership import Forget, Status
from foltr.core.protocol.orders import AllowReset, OrderAnswer
from foltr.core.protocol.states import Strategy
from foltr.core.protocol.topics import ClientTopic
from foltr.federator.job import UnlearningPolicy
from foltr.federator.round import RoundPolicy
from foltr.storage.erasure.gathering import waiting_reset
from foltr.storage.erasure.unlearning_jobs import list_jobs
from foltr.storage.models import latest_model
from foltr.storage.queries import get_round
from foltr.storage.rounds import latest_round

BY_ORDER = [
    UnlearningPolicy(strategy, step_s=1.0, every_s=0.0, swap_every_s=0.0, min_coverage=0.0)
    for strategy in (Strategy.RELEARN, Strategy.ROLLBACK, Strategy.FED_ERASER)
]
OTHERS = NAMES[1:]
ALLOW = AllowReset(federation="mail", job=2)


async def states(served) -> list[str]:
    return [str(job.state) for job in await list_jobs(served.db, "mail")]


async def hold(served, devices) -> None:
    """Two rounds on the first model as anchor, and an erasure whose job would put that in service, as nobody learns."""
    await play(served, devices)
    await play(served, devices)
    await forget(served, devices["a"])
    for _ in range(9):
        served.clock.at += 1.1
        await served.turn()
    assert (await waiting_reset(served.db, "mail")).job == 2


async def vote(served, devices, names, value: int) -> None:
    """Updates with votes that wait for the next turn."""
    opened = await latest_round(served.db, "mail")
    for name in names:
        spoken = said(served.actor.state.anchor.version, value)
        served.update(devices[name], opened.number, opened.base_version, body=ONES, vote=spoken)


async def take_back_and_unlearn(served, devices) -> None:
    """The round ends by its deadline, the first model's weights are served again, and a new job does its work."""
    served.clock.at += 60.0
    await served.turn()
    assert (await origins(served))[3] == (3, 0, 0)
    await unlearn(served, devices, "a")
    await done(served)


async def is_clean(served) -> None:
    """The newest model is of a job and holds nobody erased, and devices compare with it."""
    newest = await latest_model(served.db, "mail")
    assert newest.unlearning_job is not None
    assert newest.tainted_at is None
    assert served.shown.anchor.version == served.shown.model.version == newest.version


@pytest.mark.parametrize(
    "policy",
    [BY_ORDER[0], *(pytest.param(policy, marks=pytest.mark.nightly) for policy in BY_ORDER[1:])],
    ids=[str(policy.strategy) for policy in BY_ORDER],
)
async def test_a_job_that_is_held_begins_once_nothing_is_lost_by_it(voting, operator, policy) -> None:
    """What it would have cost was taken back by the votes: no order is needed any more, nor taken."""
    served, devices = await voting(unlearning=policy)
    await hold(served, devices)
    await play(served, devices, "----", names=OTHERS)
    assert (await origins(served))[3] == (3, 0, 0)
    assert await waiting_reset(served.db, "mail") is None
    await unlearn(served, devices, "a")
    await done(served)
    assert await states(served) == ["failed", "done"]
    await is_clean(served)
    await order(served, operator, ALLOW, 1)
    (answered,) = [one for one in served.receipts.sent if isinstance(one, OrderAnswer)]
    assert answered.code == "unknown_job"


@pytest.mark.parametrize(
    "policy",
    [BACK, *(pytest.param(policy, marks=pytest.mark.nightly) for policy in STEPWISE.values())],
    ids=lambda policy: str(policy.strategy),
)
async def test_a_job_that_waits_for_its_swap_is_given_up(voting, policy) -> None:
    """It is made of rounds that lead nowhere: the one that follows is put in service."""
    served, devices = await voting(unlearning=policy)
    await play(served, devices)
    await play(served, devices)
    await vote(served, devices, "bcd", -1)
    await forget(served, devices["a"])
    for _ in range(10):
        answer(served, devices, "a")
        await served.turn()
    (job,) = await list_jobs(served.db, "mail")
    assert (job.state, job.step) == ("running", 2), "it has caught up, and updates wait for the end of their round"
    await take_back_and_unlearn(served, devices)
    assert await states(served) == ["failed", "done"]
    await is_clean(served)


async def test_a_job_that_is_paused_is_given_up(voting) -> None:
    """It waits for devices no more: nothing is left to be learned again."""
    served, devices = await voting(unlearning=replace(STEPWISE[Strategy.RELEARN], step_s=10.0, patience_s=20.0))
    await play(served, devices)
    await play(served, devices)
    for device in devices.values():
        served.receive(device, ClientTopic.STATUS, Status(federation="mail", client_id=device.client_id, online=False))
    await forget(served, devices["a"])
    for _ in range(5):
        served.clock.at += 11.0
        await served.turn()
    assert await states(served) == ["paused"]
    await vote(served, devices, OTHERS, -1)
    await take_back_and_unlearn(served, devices)
    assert await states(served) == ["failed", "done"]
    await is_clean(served)


@pytest.mark.parametrize(
    ("votes", "newest"),
    [
        ("---++", 3),
        ("----+", 0),
        *(pytest.param(*each, marks=pytest.mark.nightly) for each in (("--+++", 3), ("+----", 0))),
    ],
)
async def test_who_is_erased_in_the_round_that_ends_has_no_vote_in_it(voting, votes: str, newest: int) -> None:
    """The votes of the others decide, and the clicks of those count again if models are rolled back."""
    served, devices = await voting(RoundPolicy(1, 6, 60.0, 60.0), unlearning=BACK)
    await play(served, devices)
    await play(served, devices)
    for name, said_so in zip(NAMES, votes, strict=True):
        await vote(served, devices, name, "-0+".index(said_so) - 1)
    device = devices["a"]
    served.receive(device, ClientTopic.FORGET, Forget(federation="mail", client_id="a"))
    served.clock.at += 60.0
    await served.turn()
    third = await get_round(served.db, "mail", 3)
    assert (third.state, third.reason) == (("completed", None) if newest else ("abandoned", "model_rolled_back"))
    watermarks = {name: served.actor.state.members.counted_through(name) for name in OTHERS}
    assert set(watermarks.values()) == {300 if newest else 200}
    await unlearn(served, devices, "a")
    await done(served)
    await is_clean(served)
    await play(served, devices, names=OTHERS)
    assert (await latest_model(served.db, "mail")).tainted_at is None
