"""What becomes of an unlearning job where something else happens at the same time."""

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from support.backups import back_up, restore
from support.federator_without_network import TOPICS
from support.unlearning_steps import forget

from foltr.broker.link import InboundMessage
from foltr.core.protocol.fields import pack_vector, unpack_vector
from foltr.core.protocol.membership import Status
from foltr.core.protocol.orders import AllowReset, LiftQuarantine, OrderAnswer, QuarantineClient, RevokeClient
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.states import Strategy
from foltr.core.protocol.topics import ClientTopic
from foltr.core.protocol.trainings import EvolutionTraining, PdgdTraining
from foltr.core.protocol.updates import DenseDelta, EvolutionPair, UnlearningUpdate
from foltr.federator.gathering import is_ordered_reset
from foltr.federator.job import UnlearningPolicy
from foltr.federator.job_driver import Unlearner
from foltr.federator.round import RoundPolicy
from foltr.storage.erasure.erasures import list_erasures
from foltr.storage.erasure.unlearning_jobs import list_jobs, pause_job
from foltr.storage.errors import WriterFencedError
from foltr.storage.models import latest_model
from foltr.storage.queries import list_events

N_FEATURES = 4
KEY = SigningKey(b"federator" + bytes(23))
NAMES = ("alice", "bob", "carol", "dave")
STEP = "foltr/v1/mail/unlearning/round"
RELEARN = UnlearningPolicy(every_s=0.0, swap_every_s=0.0, step_s=10.0, patience_s=30.0)
BACK = replace(RELEARN, strategy=Strategy.ROLLBACK)


@pytest.fixture
async def joined(serve, operator):
    """Starts an actor, and has devices of an operator join."""

    async def start(unlearning=RELEARN, names=NAMES, **plan):
        served = await serve(
            RoundPolicy(1, len(names), 60.0, 60.0),
            n_features=N_FEATURES,
            key=KEY,
            enrolment_key=operator.key.public,
            unlearning=unlearning,
            **plan,
        )
        devices = {name: operator.enrol(name) for name in names}
        await served.join(devices.values())
        return served, devices

    return start


def delta(*values):
    return DenseDelta(dim=N_FEATURES, values=pack_vector([*values, *[0.0] * (N_FEATURES - len(values))]))


async def play(served, devices, numbers):
    """Rounds in which all send, each into a direction of its own."""
    for number in numbers:
        base = (await latest_model(served.db, "mail")).version
        for name, device in devices.items():
            i = NAMES.index(name)
            pair = EvolutionPair(seed=10 * number + i, plus=0.9, minus=0.1 * i)
            body = pair if served.plan.training.kind == "foltr-es" else delta(*np.eye(N_FEATURES)[i])
            served.update(device, number, base, body=body)
        await served.turn()
        served.clock.at += served.plan.policy.min_time_s
        await served.turn()


async def answer(served, devices, values=(1.0,)):
    """Have these devices answer the open step."""
    step = served.retained.topics[STEP]
    for device in devices:
        said = {"federation": "mail", "job": step.job, "step": step.step, "n_interactions": 5}
        update = UnlearningUpdate(client_id=device.client_id, body=delta(*values), **said)
        served.receive(device, ClientTopic.UNLEARNING, update)
    await served.turn()


async def order(served, operator, what, number) -> OrderAnswer:
    served.actor.receive(InboundMessage(TOPICS.operator, operator.says(what, number).payload, retained=False))
    await served.turn()
    return next(one for one in reversed(served.receipts.sent) if isinstance(one, OrderAnswer))


async def turns(served, n, seconds=11.0):
    """So many turns, with time between them for a step that nobody answers."""
    for _ in range(n):
        served.clock.at += seconds
        await served.turn()


async def jobs(served):
    return [(job.strategy, job.state) for job in await list_jobs(served.db, "mail")]


async def erasures(served):
    return [row.state for row in await list_erasures(served.db, "mail")]


@pytest.mark.parametrize("order_kind", ["quarantine", "revocation"])
async def test_what_an_excluded_client_has_answered_does_not_count(joined, operator, order_kind):
    """As its update in an open round does not; it is waited for no more either, and asked in no later step."""
    served, devices = await joined(names=NAMES[:3])
    await play(served, devices, (1, 2))
    await forget(served, devices["carol"])
    await answer(served, [devices["bob"]], (0.0, 0.0, 0.0, 666.0))
    if order_kind == "quarantine":
        said = QuarantineClient(federation="mail", client_id="bob", reason="it lies")
    else:
        said = RevokeClient(federation="mail", client_id="bob", void_below=99)
    assert (await order(served, operator, said, 1)).reply == "obeyed"
    await answer(served, [devices["alice"]])
    assert served.retained.topics[STEP].step == 2
    await answer(served, [devices["bob"]], (0.0, 0.0, 0.0, 666.0))
    await answer(served, [devices["alice"]])
    await served.turn()
    assert await erasures(served) == ["done"]
    assert unpack_vector((await latest_model(served.db, "mail")).weights).tolist() == [2.0, 0.0, 0.0, 0.0]


async def test_a_step_whose_last_member_is_excluded_is_over(joined, operator):
    """It waits for nobody; who is let out of quarantine is asked in the steps that follow."""
    served, devices = await joined(names=NAMES[:2])
    await play(served, devices, (1, 2))
    await forget(served, devices["bob"])
    assert served.retained.topics[STEP].step == 1
    said = QuarantineClient(federation="mail", client_id="alice", reason="it lies")
    await order(served, operator, said, 1)
    lifted = LiftQuarantine(federation="mail", client_id="alice")
    await order(served, operator, lifted, 2)
    (job,) = await list_jobs(served.db, "mail")
    assert job.step >= 1


@pytest.mark.parametrize("order_kind", ["quarantine", "revocation"])
async def test_an_excluded_client_is_forgotten_as_any_other(joined, operator, order_kind):
    """It asks for it itself, and the others unlearn it."""
    served, devices = await joined(names=NAMES[:3])
    await play(served, devices, (1,))
    said = QuarantineClient(federation="mail", client_id="bob", reason="it lies")
    if order_kind == "revocation":
        said = RevokeClient(federation="mail", client_id="bob", void_below=99)
    await order(served, operator, said, 1)
    await forget(served, devices["bob"])
    await answer(served, [devices["alice"], devices["carol"]])
    await served.turn()
    assert await erasures(served) == ["done"]


@pytest.mark.parametrize(
    ("values", "is_excused"), [({}, True), ({"start_version": 2}, False), ({"coverage_sum": 0.1}, False)], ids=str
)
async def test_an_order_to_reset_excuses_no_model_but_the_first(joined, operator, values, is_excused):
    """One that has learned too little is another model, and so is that of before the client."""
    served, devices = await joined(training=EvolutionTraining())
    await play(served, devices, (1, 2, 3))
    await forget(served, devices["dave"])
    assert (await order(served, operator, AllowReset(federation="mail", job=1), 1)).reply == "obeyed"
    await turns(served, 1)
    (job,) = await list_jobs(served.db, "mail")
    store = served.actor._store  # noqa: SLF001 (what it decides by)
    assert await is_ordered_reset(store, replace(job, **values)) is is_excused


async def test_a_federator_that_dies_as_it_gives_up_learns_anew(joined, restarted):
    """It does not try the same again: devices answer for an erasure in two jobs only, and the second is to learn."""
    served, devices = await joined(BACK)
    await play(served, devices, (1, 2, 3))
    begin, begun = Unlearner._begin, []  # noqa: SLF001 (what is between its two calls)

    async def die_at_the_second(unlearner):
        if begun:
            raise OSError("killed")
        begun.append(await begin(unlearner))

    async def cover_too_little():
        await forget(served, devices["dave"])
        for _ in range(3):
            await answer(served, [devices["alice"]])
            await turns(served, 1)

    with patch.object(Unlearner, "_begin", die_at_the_second), pytest.raises(OSError, match="killed"):
        await cover_too_little()
    assert await jobs(served) == [("rollback", "failed")]
    served = await restarted(served)
    assert await jobs(served) == [("rollback", "failed"), ("relearn", "running")]
    await turns(served, 2)
    served = await restarted(served, unlearning=replace(BACK, strategy=Strategy.FED_ERASER))
    assert (await jobs(served))[-1] == ("relearn", "running")


async def test_a_job_goes_on_as_it_was_planned_under_other_settings(joined, restarted):
    """Strategy, interval and interactions are the job's; those of today are for the next one."""
    served, devices = await joined()
    await play(served, devices, (1, 2, 3))
    await forget(served, devices["dave"])
    others = [devices[name] for name in NAMES[:3]]
    before = served.retained.topics[STEP]
    await answer(served, others)
    other = replace(BACK, interval=3)
    served = await restarted(served, unlearning=other, training=PdgdTraining(max_interactions=9))
    step = served.retained.topics[STEP]
    assert (step.job, step.step, step.local_interactions) == (1, 2, before.local_interactions)
    for _ in range(2):
        await answer(served, others)
    await served.turn()
    assert (await jobs(served), await erasures(served)) == ([("relearn", "done")], ["done"])


@pytest.mark.parametrize("phase", ["gathering", "held", "asking"])
async def test_of_two_federators_the_first_does_nothing_more(joined, operator, phase, restarted):
    """The one that has taken over goes on, whatever the first had open."""
    unlearning = replace(RELEARN, every_s=100.0) if phase == "gathering" else RELEARN
    training = {"training": EvolutionTraining()} if phase == "held" else {}
    first, devices = await joined(unlearning, names=NAMES[:2], **training)
    await play(first, devices, (1,))
    await forget(first, devices["bob"])
    second = await restarted(first)
    allow = AllowReset(federation="mail", job=1)
    goes_on = {
        "gathering": lambda served: turns(served, 1, 110.0),
        "held": lambda served: order(served, operator, allow, 1),
        "asking": lambda served: answer(served, [devices["alice"]]),
    }[phase]
    with pytest.raises(WriterFencedError):
        await goes_on(first)
    second.clock.at = first.clock.at
    await second.turn()
    await goes_on(second)
    if phase == "gathering":
        await answer(second, [devices["alice"]])
    await second.turn()
    assert await erasures(second) == ["done"]


@pytest.mark.parametrize("state", ["waiting", "running", "paused"])
async def test_a_job_goes_on_after_a_restart(joined, state, restarted):
    """Whatever it was doing: it was gathered, or at its second step, or waited for devices."""
    old = replace(RELEARN, strategy=Strategy.FED_ERASER, every_s=1e6 if state == "waiting" else 0.0)
    served, devices = await joined(old, names=NAMES[:3])
    await play(served, devices, (1, 2))
    await forget(served, devices["carol"])
    others = [devices[name] for name in NAMES[:2]]
    if state != "waiting":
        await answer(served, others)
    if state == "paused":
        await pause_job(served.db, "mail", served.actor.epoch, 1, "no device is online")
    served = await restarted(served, unlearning=RELEARN)
    for _ in range(3):
        if served.retained.topics[STEP] is not None:
            await answer(served, others)
    await served.turn()
    assert await erasures(served) == ["done"]
    assert (await list_jobs(served.db, "mail"))[0].step == 2


@pytest.mark.parametrize("phase", ["gathering", "held", "asking"])
async def test_a_job_goes_on_in_a_restored_database(joined, operator, phase, restarted):
    """What happened since the backup is forgotten, the job begins where it was then, and its alarm is raised again."""
    unlearning = replace(RELEARN, every_s=100.0 if phase == "gathering" else 0.0, deadline_s=50.0)
    training = {"training": EvolutionTraining()} if phase == "held" else {}
    served, devices = await joined(unlearning, names=NAMES[:3], **training)
    await play(served, devices, (1, 2))
    await forget(served, devices["carol"])
    backup = await back_up(served.db)
    others = [devices[name] for name in NAMES[:2]]
    for is_restored in (False, True):
        await turns(served, 1, 121.0)
        if phase == "held":
            said = AllowReset(federation="mail", job=1)
            assert (await order(served, operator, said, 1)).reply == "obeyed"
        for _ in range(4):
            if served.retained.topics[STEP] is not None:
                await answer(served, others)
        await served.turn()
        assert await erasures(served) == ["done"]
        kinds = [event.kind for event in await list_events(served.db, "mail")]
        assert kinds.count("erasure_overdue") == 1
        if not is_restored:
            await served.actor.close()
            await restore(served.db, backup)
            served = await restarted(served)


async def test_a_device_that_was_off_during_the_whole_job_contributes_again(joined):
    """What it learned from the model that was withdrawn counts no more; it is told the watermark that holds."""
    served, devices = await joined(names=NAMES[:3])
    await play(served, devices, (1,))
    away = Status(federation="mail", client_id="alice", online=False)
    served.receive(devices["alice"], ClientTopic.STATUS, away)
    await forget(served, devices["carol"])
    await answer(served, [devices["bob"]])
    await turns(served, 2)
    assert await erasures(served) == ["done"]
    open_now = served.actor.state.current_round.number
    served.receipts.sent.clear()
    served.update(devices["alice"], open_now, 1, body=delta(1.0))
    await served.turn()
    assert served.receipts.codes() == {"stale": 1}
    served.update(devices["alice"], open_now, 2, update_id="f" * 32, body=delta(1.0))
    await served.turn()
    assert served.receipts.codes() == {"stale": 1, "accepted": 1}


async def test_a_device_that_comes_back_is_heard_in_the_open_step(joined):
    """Nobody waits for it; and who answers nothing, as its limits are used up, is waited for once."""
    served, devices = await joined(names=NAMES[:4])
    await play(served, devices, (1, 2, 3))
    away = Status(federation="mail", client_id="alice", online=False)
    served.receive(devices["alice"], ClientTopic.STATUS, away)
    await forget(served, devices["dave"])
    await answer(served, [devices["alice"], devices["bob"]])  # carol answers nothing
    assert served.retained.topics[STEP].step == 1
    await turns(served, 1)
    (job,) = await list_jobs(served.db, "mail")
    assert (job.step, job.coverage_sum) == (1, 2 / 3)
    await answer(served, [devices["bob"]])
    assert served.retained.topics[STEP].step == 3
