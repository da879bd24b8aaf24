"""Models are rolled back where somebody is erased: the unlearned ranker comes of the rounds that lead somewhere."""

from dataclasses import replace

import numpy as np
import pytest
from support.deaths import dying_at
from support.voting_devices import (
    BACK,
    NAMES,
    ONES,
    STEPWISE,
    D,
    answer,
    done,
    forget,
    order,
    origins,
    play,
    ruin,
    said,
    unlearn,
    weights_of,
)

from foltr.core.aggregation.rule_spec import read_rule
from foltr.core.failpoints import Failpoint
from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.membership import Forget, Status
from foltr.core.protocol.orders import AllowReset, OrderAnswer
from foltr.core.protocol.states import Pacing, Strategy
from foltr.core.protocol.topics import ClientTopic
from foltr.core.protocol.updates import DenseDelta
from foltr.federator.closing.collected_updates import load_recipes
from foltr.federator.closing.replay import replay_round
from foltr.federator.job import UnlearningPolicy
from foltr.federator.round import RoundPolicy
from foltr.storage.erasure.gathering import waiting_reset
from foltr.storage.erasure.unlearning_jobs import list_jobs
from foltr.storage.models import get_anchor, latest_model, list_models
from foltr.storage.queries import get_round
from foltr.storage.rounds import latest_round

BY_ORDER = UnlearningPolicy(step_s=1.0, every_s=0.0, swap_every_s=0.0, min_coverage=0.0)
OTHERS = NAMES[1:]


async def states(served) -> list[str]:
    return [str(job.state) for job in await list_jobs(served.db, "mail")]


async def hold(served, devices) -> None:
    """Two rounds on the first model as anchor, and an erasure whose job would put that in service: nobody learns."""
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
    "strategy",
    [Strategy.RELEARN, *(pytest.param(each, marks=pytest.mark.nightly) for each in Strategy if each != "relearn")],
)
async def test_a_job_that_is_held_begins_once_nothing_is_lost_by_it(voting, operator, strategy) -> None:
    """What it would have cost was taken back by the votes: no order is needed any more, nor taken."""
    served, devices = await voting(unlearning=replace(BY_ORDER, strategy=strategy))
    await hold(served, devices)
    await play(served, devices, "----", names=OTHERS)
    assert (await origins(served))[3] == (3, 0, 0)
    assert await waiting_reset(served.db, "mail") is None
    await unlearn(served, devices, "a")
    await done(served)
    assert await states(served) == ["failed", "done"]
    await is_clean(served)
    await order(served, operator, AllowReset(federation="mail", job=2), 1)
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
    """It no longer waits for devices: nothing is left to be learned again."""
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


async def test_who_taught_what_is_served_is_unlearned_without_what_was_taken_back(voting) -> None:
    """The others' updates of live rounds make the model, bit for bit; what was taken back is in it for nobody."""
    served, devices = await voting(unlearning=BACK)
    await play(served, devices)
    await play(served, devices, "+++++")  # model 1 is the anchor
    await play(served, devices, by=-50.0)
    await play(served, devices, "-----")  # model 4 is model 1 again
    await play(served, devices)  # model 5
    assert await origins(served) == [(0, None, None), (1, 0, None), (2, 1, None), (3, 2, None), (4, 1, 1), (5, 4, None)]
    await forget(served, devices["a"])
    await unlearn(served, devices)
    (row,) = await done(served)
    assert (row.first_round, row.n_rounds) == (1, 4)
    mean = sum(np.eye(D)[ord(name) % D] for name in "bcde") / 4
    np.testing.assert_array_equal(await weights_of(served, 6), (2 * mean).astype(np.float32))
    assert served.shown.anchor.version == served.shown.model.version == 6
    withdrawn = [model.version for model in await list_models(served.db, "mail") if model.withdrawn_at is not None]
    assert withdrawn == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("dies_at", [Failpoint.IN_RESTORATION_TRANSACTION, Failpoint.MODEL_ROLLED_BACK])
async def test_a_death_on_the_way_leaves_no_job_of_what_was_taken_back(voting, restarted, dies_at) -> None:
    """Before the commit it goes on, and fails with the next decision; after it those in it wait again."""
    served, devices = await voting(unlearning=STEPWISE[Strategy.RELEARN])
    await play(served, devices, names="bcde")
    await play(served, devices, "++++", names="bcde")
    await play(served, devices)
    await forget(served, devices["a"])
    with dying_at(dies_at, "federator.rounds", "storage.anchors"):
        await play(served, devices, "----", names="bcde")
    following = await restarted(served)
    assert (4, 1, 1) in await origins(served)
    await unlearn(following, devices, "a")
    (row,) = await done(following)
    assert (row.job, [job.state for job in await list_jobs(served.db, "mail")]) == (2, ["failed", "done"])


async def test_rounds_repeat_where_models_were_taken_back_under_another_rule(voting, restarted) -> None:
    """What `adaptive` remembers goes along with the models while another rule makes them, in a replay as well."""
    adaptive = RoundPolicy(1, 5, 60.0, 60.0, rule=read_rule("adaptive"))
    served, devices = await voting(adaptive)
    for votes in ("", "+++++", ""):
        await play(served, devices, votes)
    served = await restarted(served, policy=RoundPolicy(1, 5, 60.0, 60.0))
    for votes in ("", "-----", "", "-----"):
        await play(served, devices, votes)
    served = await restarted(served, policy=adaptive)
    for votes in ("", "", ""):
        await play(served, devices, votes)
    assert len([row for row in await origins(served) if row[2] is not None]) == 2
    recipes = await load_recipes(served.db, "mail")
    newest = (await latest_model(served.db, "mail")).round
    assert (await replay_round(served.db, recipes, newest)).differs == ()


async def test_of_an_anchor_that_a_swap_replaces_nothing_is_remembered(voting) -> None:
    """It was made before the erased client came, so that its weights stay; its rule's memory is nobody's any more."""
    served, devices = await voting(RoundPolicy(1, 5, 60.0, 60.0, rule=read_rule("adaptive")), unlearning=BACK)
    await play(served, devices, names="bcde")
    await play(served, devices, " ++++")
    assert (await get_anchor(served.db, "mail", 1)).defence_state is not None
    await forget(served, devices["a"])
    await unlearn(served, devices, "a")
    await done(served)
    assert served.shown.anchor.version == served.shown.model.version == 3
    assert (await get_anchor(served.db, "mail", 1)).defence_state is None


async def test_a_buffered_round_takes_nothing_that_was_made_on_what_was_taken_back(voting) -> None:
    """It is as new as the buffer asks for, and adds what the restored model is to be rid of."""
    policy = RoundPolicy(1, 5, 60.0, 60.0, pacing=Pacing.BUFFERED, staleness_limit=5)
    served, devices = await voting(policy)
    await ruin(served, devices)
    served.receipts.sent.clear()
    body = DenseDelta(dim=D, values=pack_vector([1.0] * D))
    served.update(devices["a"], 4, 2, body=body)
    served.update(devices["b"], 4, 0, body=body)
    await served.turn()
    assert dict(served.receipts.codes()) == {"stale": 1, "accepted": 1}
    stale = next(one for one in served.receipts.sent if one.code == "stale")
    assert stale.detail == "trained on model 2, which was rolled back since"


async def test_a_job_is_not_given_up_for_a_round_that_makes_no_model(voting) -> None:
    """The newest model was restored long ago; that a round is given up since has nothing to do with it."""
    krum = read_rule("krum", byzantine=1, fallback="abandon")
    served, devices = await voting(RoundPolicy(1, 5, 60.0, 60.0, rule=krum), unlearning=STEPWISE[Strategy.RELEARN])
    await play(served, devices)
    await play(served, devices, "+++++")
    await play(served, devices)
    await play(served, devices, "-----")
    await forget(served, devices["a"])
    assert [job.state for job in await list_jobs(served.db, "mail")] == ["running"]
    await play(served, devices, names="bc")
    assert (await get_round(served.db, "mail", 5)).reason == "too_few_for_rule"
    assert [job.state for job in await list_jobs(served.db, "mail")] == ["running"]
    await unlearn(served, devices, "a")
    await done(served)
