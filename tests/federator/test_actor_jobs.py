"""A job gives way to another, or waits for an order: none puts the first model in service by itself."""

from dataclasses import replace
from unittest.mock import patch

import pytest
from support.federator_without_network import Served
from support.unlearning_steps import STEP, answer, end_step, forget

from foltr.broker.link import InboundMessage
from foltr.core.protocol.fields import pack_vector, unpack_vector
from foltr.core.protocol.orders import AllowReset, OrderAnswer
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.states import Strategy
from foltr.core.protocol.trainings import EvolutionTraining, PdgdTraining
from foltr.core.protocol.updates import DenseDelta, EvolutionPair
from foltr.federator.gathering import is_ordered_reset
from foltr.federator.job import UnlearningPolicy
from foltr.federator.job_driver import Unlearner
from foltr.federator.round import RoundPolicy
from foltr.storage.erasure.erasures import list_erasures
from foltr.storage.erasure.gathering import find_reset
from foltr.storage.erasure.unlearning_jobs import list_jobs
from foltr.storage.models import latest_model
from foltr.storage.orders import list_orders
from foltr.storage.queries import list_events

N_FEATURES = 4
KEY = SigningKey(b"federator" + bytes(23))
NAMES = ("alice", "bob", "carol")
AT_ONCE = UnlearningPolicy(Strategy.FED_ERASER, every_s=0.0, swap_every_s=0.0, step_s=10.0, min_coverage=0.0)
COST = (
    "job 1 puts the first model in service, and what 2 updates of 2 clients taught in rounds 1 to 1, and since, is lost"
)


@pytest.fixture
async def taught(serve, operator):
    """Starts an actor whose model has learned from three devices in its first round, by a method without kept lists."""

    async def start(training=EvolutionTraining(), **policy) -> tuple[Served, list]:  # noqa: B008 (frozen)
        served = await serve(
            RoundPolicy(1, 3, 0.0, 60.0),
            n_features=N_FEATURES,
            key=KEY,
            enrolment_key=operator.key.public,
            training=training,
            unlearning=replace(AT_ONCE, **policy),
        )
        devices = [operator.enrol(name) for name in NAMES]
        await served.join(devices)
        await learn(served, devices, 1, 0)
        return served, devices

    return start


async def learn(served, devices, number: int, base: int) -> None:
    """A round that all of them contribute to."""
    steps = served.plan.training.kind == "foltr-es"
    for i, device in enumerate(devices):
        pair = EvolutionPair(seed=i, plus=1.0, minus=0.0)
        delta = DenseDelta(dim=N_FEATURES, values=pack_vector([1.0, 0, 0, i]))
        served.update(device, number, base, body=pair if steps else delta)
    await served.turn()
    assert (await latest_model(served.db, "mail")).version == base + 1
    served.receipts.sent.clear()


async def say(served, statement) -> OrderAnswer:
    served.actor.receive(InboundMessage("foltr/v1/mail/operator", statement.payload, retained=False))
    await served.turn()
    return next(one for one in reversed(served.receipts.sent) if isinstance(one, OrderAnswer))


async def order(served, operator, job: int, number: int = 1) -> OrderAnswer:
    return await say(served, operator.says(AllowReset(federation="mail", job=job), number))


async def state(served) -> tuple[list[str], int]:
    """Of all jobs, and the newest model's version."""
    jobs = [job.state for job in await list_jobs(served.db, "mail")]
    return jobs, (await latest_model(served.db, "mail")).version


async def held(served) -> list[str]:
    return [
        event.detail for event in await list_events(served.db, "mail") if event.kind == "unlearning_approval_required"
    ]


async def test_a_reset_waits_for_the_operators_order(taught, operator, restarted):
    """Over restarts, told once; the order is answered with what it costs, and only what nobody taught is left."""
    served, devices = await taught()
    await forget(served, devices[0])
    assert await state(served) == ([], 1)
    served.clock.at += 90 * 86_400.0
    served = await restarted(served)
    served = await restarted(served)
    assert (await state(served), await held(served)) == (([], 1), [COST])
    answer = await order(served, operator, 1)
    assert (answer.reply, answer.detail) == ("obeyed", COST)
    await served.turn()
    assert await state(served) == (["done"], 2)
    assert not unpack_vector((await latest_model(served.db, "mail")).weights).any()
    assert {row.state for row in await list_erasures(served.db, "mail")} == {"done"}
    assert [row.detail for row in await list_orders(served.db, "mail")] == [COST]


async def test_an_order_that_was_obeyed_holds_over_a_restart(taught, operator, restarted):
    """It is stored in one transaction with its effect, also where no job has begun by then; asked again, nothing is."""
    served, devices = await taught(swap_every_s=3600.0)
    await forget(served, devices[0])
    await order(served, operator, 1)
    assert await state(served) == (["done"], 2)
    await learn(served, devices[1:], 3, 2)
    await forget(served, devices[1])
    served.clock.at += 3601.0
    await served.turn()
    assert await state(served) == (["done"], 3)
    assert (await order(served, operator, 1, 2)).code == "unknown_job"
    served = await restarted(
        served, unlearning=replace(served.plan.unlearning, swap_every_s=7200.0)
    )  # the job that is ordered waits for its time
    assert (await order(served, operator, 2, 3)).reply == "obeyed"
    assert await state(served) == (["done"], 3)
    served = await restarted(served)
    assert await state(served) == (["done"], 3)
    assert (await find_reset(served.db, "mail", 2)).ordered_at is not None
    served.clock.at += 3600.0
    await served.turn()
    assert await state(served) == (["done", "done"], 4)


async def test_an_order_for_a_job_that_does_not_wait_is_refused(taught, operator):
    """Its number is used up, and nothing is lost."""
    served, devices = await taught()
    early = await order(served, operator, 1)
    assert (early.reply, early.code) == ("refused", "unknown_job")
    await forget(served, devices[0])
    answer = await order(served, operator, 7, 2)
    assert (answer.code, "it is job 1 that waits" in answer.detail) == ("unknown_job", True)
    assert await state(served) == ([], 1)


async def test_where_nothing_is_signed_a_setting_takes_the_place_of_the_order(taught, restarted):
    """It holds from the restart with it on."""
    served, devices = await taught()
    await forget(served, devices[0])
    assert await state(served) == ([], 1)
    served = await restarted(served, unlearning=replace(served.plan.unlearning, may_reset=True))
    await served.turn()
    assert await state(served) == (["done"], 2)


async def test_a_clean_model_is_gone_back_to_where_nothing_can_be_learned_anew(taught, operator):
    """Not to the first one: what was taught before the client came is kept, and no order is needed."""
    served, devices = await taught()
    before = await latest_model(served.db, "mail")
    newcomer = operator.enrol("dora")
    await served.join([newcomer])
    await learn(served, [*devices[:2], newcomer], 2, 1)
    await forget(served, newcomer)
    await served.turn()
    after = await latest_model(served.db, "mail")
    assert (await state(served), after.weights) == ((["done"], 3), before.weights)
    (job,) = await list_jobs(served.db, "mail")
    assert (job.strategy, job.start_version, job.n_steps) == ("rollback", 1, 0)


async def test_a_job_in_which_nobody_learns_anything_does_not_reset_either(taught, operator, restarted):
    """Devices have nothing to answer with: the model would be the first one, as if there were no steps."""
    served, devices = await taught(PdgdTraining())
    await forget(served, devices[0])
    for _ in range(5):
        served.clock.at += 11.0
        await served.turn()
    assert await state(served) == (["failed"], 1)
    (said,) = await held(served)
    assert said.startswith("job 2 puts the first model in service, and what 2 updates of 2 clients")
    served = await restarted(served)
    assert await state(served) == (["failed"], 1)
    assert (await order(served, operator, 2)).reply == "obeyed"
    for _ in range(5):
        served.clock.at += 11.0
        await served.turn()
    assert await state(served) == (["failed", "done"], 2)


@pytest.mark.parametrize(
    ("values", "is_excused"), [({}, True), ({"start_version": 2}, False), ({"coverage_sum": 0.1}, False)], ids=str
)
async def test_an_order_to_reset_excuses_no_model_but_the_first(taught, operator, values, is_excused):
    """One that has learned too little is another model, and so is that of before the client."""
    served, devices = await taught()
    await forget(served, devices[0])
    assert (await order(served, operator, 1)).reply == "obeyed"
    await served.turn()
    (job,) = await list_jobs(served.db, "mail")
    store = served.actor._store  # noqa: SLF001 (what it decides by)
    assert await is_ordered_reset(store, replace(job, **values)) is is_excused


@pytest.mark.parametrize("order_kind", ["quarantine", "revocation"])
async def test_what_an_excluded_client_has_answered_does_not_count(taught, operator, order_kind):
    """As its update in an open round does not; it is waited for no more either, and asked in no later step."""
    served, devices = await taught(PdgdTraining())
    await learn(served, devices, 2, 1)
    await forget(served, devices[2])
    excluded = operator.quarantines("bob", 1) if order_kind == "quarantine" else operator.revokes("bob", 1)
    answer(served, devices[1], [0, 0, 0, 666.0])
    assert (await say(served, excluded)).reply == "obeyed"
    await end_step(served, [devices[0]], [1.0, 0, 0, 0])
    assert served.retained.topics[STEP].step == 2
    answer(served, devices[1], [0, 0, 0, 666.0])
    await end_step(served, [devices[0]], [1.0, 0, 0, 0])
    assert await state(served) == (["done"], 3)
    assert unpack_vector((await latest_model(served.db, "mail")).weights).tolist() == [2.0, 0.0, 0.0, 0.0]


async def test_a_federator_that_dies_as_it_gives_up_learns_anew(taught, restarted):
    """It does not try the same again: devices answer for an erasure in two jobs only, and the second is to learn."""
    served, devices = await taught(PdgdTraining(), strategy=Strategy.ROLLBACK, min_coverage=0.9)
    begin, begun = Unlearner._begin, []  # noqa: SLF001 (what is between its two calls)

    async def die_at_the_second(unlearner):
        if begun:
            raise OSError("killed")
        begun.append(await begin(unlearner))

    async def cover_too_little():
        await forget(served, devices[2])
        answer(served, devices[0], [1.0, 0, 0, 0])
        for _ in range(3):
            served.clock.at += 11.0
            await served.turn()

    with patch.object(Unlearner, "_begin", die_at_the_second), pytest.raises(OSError, match="killed"):
        await cover_too_little()
    assert await jobs(served) == [("rollback", "failed")]
    served = await restarted(served)
    assert await jobs(served) == [("rollback", "failed"), ("relearn", "running")]
    served = await restarted(served, unlearning=replace(served.plan.unlearning, strategy=Strategy.FED_ERASER))
    assert (await jobs(served))[-1] == ("relearn", "running")


async def jobs(served) -> list[tuple[str, str]]:
    return [(job.strategy, job.state) for job in await list_jobs(served.db, "mail")]
