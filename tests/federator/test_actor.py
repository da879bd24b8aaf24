"""The single writer, with a real database and a clock that is set by hand: what its turns do in which order."""

import asyncio

from support.waiting import until

from foltr.broker.buffer import IntakeLimits
from foltr.broker.link import InboundMessage
from foltr.core.protocol.topics import Topics
from foltr.federator.round import RoundPolicy
from foltr.storage.models import list_models
from foltr.storage.queries import list_events, list_rounds

TOPICS = Topics("mail")


async def test_what_arrived_before_the_deadline_counts_however_much_it_is(serve, unsigned):
    """More than one batch waits when the deadline has passed: none of it is told that it came late."""
    served = await serve(RoundPolicy(1, 5_000, 0.0, 60.0))
    crowd = [unsigned(f"client-{i:04d}") for i in range(900)]
    await served.join(crowd)
    served.clock.at += 59.9
    for device in crowd:
        served.update(device)
    served.clock.at += 0.2
    late = unsigned("late")
    served.update(late)
    await served.turn()
    assert served.receipts.codes() == {"accepted": 900}
    assert [(row.state, row.n_updates) for row in await list_rounds(served.db, "mail")] == [
        ("completed", 900),
        ("collecting", 0),
    ]


async def test_a_crowd_of_strangers_does_not_keep_the_operator_out(serve, operator):
    """Every place that strangers share is full; the roster still gets in, and so does a member's update."""
    small = IntakeLimits(max_waiting_per_sender=5, burst=20)
    served = await serve(RoundPolicy(1, 9, 30.0, 60.0), limits=small, enrolment_key=operator.key.public)
    alice, bob = operator.enrol("alice"), operator.enrol("bob")
    await served.join([alice, bob])
    served.flood(6_000)
    served.actor.receive(InboundMessage(TOPICS.roster, operator.roster(1, alice=1), retained=False))
    served.update(bob)
    served.update(alice)
    while len(served.actor.intake):
        await served.turn()
    (adopted,) = await list_events(served.db, "mail", kind="roster_adopted")
    assert adopted.detail == "version 1, 1 revoked"
    codes = {receipt.client_id: receipt.code.value for receipt in served.receipts.sent}
    assert (codes["alice"], codes["bob"]) == ("revoked", "accepted")
    (full,) = await list_events(served.db, "mail", kind="intake_full")
    assert "most from unknown clients" in full.detail


async def test_a_published_model_is_noted_once_and_does_not_keep_the_loop_busy(serve, operator):
    """With the next commit, or in a moment where there is none; afterwards the actor waits again."""
    served = await serve(RoundPolicy(1, 1, 0.0, 60.0), enrolment_key=operator.key.public)
    served.actor.batches.model_published(0)
    running = asyncio.create_task(served.actor.run())

    async def is_noted():
        return (await list_models(served.db, "mail"))[0].published_at is not None

    await until(is_noted)
    n_turns = 0
    take_turn = served.actor.turn

    async def counted(now):
        nonlocal n_turns
        n_turns += 1
        await take_turn(now)

    served.actor.turn = counted
    for _ in range(100):  # turns of an event loop
        await asyncio.sleep(0)
    assert n_turns <= 1
    served.actor.stop()
    await running


async def test_a_full_round_lasts_its_least_time_also_after_a_restart(serve, unsigned, restarted):
    """Then it ends with what it has; a device that comes too late hears so at once, and takes part in the next."""
    served = await serve(RoundPolicy(1, 2, 10.0, 60.0))
    devices = [unsigned(name) for name in "abc"]
    await served.join(devices)
    for device in devices:
        served.update(device)
    await served.turn()
    assert served.receipts.codes() == {"accepted": 2, "late": 1}
    assert [row.state for row in await list_rounds(served.db, "mail")] == ["collecting"]
    seed = served.actor.state.selection_seed
    served = await restarted(served)
    assert served.actor.state.selection_seed == seed
    served.clock.at += 9.0
    await served.turn()
    assert [row.state for row in await list_rounds(served.db, "mail")] == ["collecting"]
    served.clock.at += 1.5
    await served.turn()
    rows = await list_rounds(served.db, "mail")
    assert [(row.state, row.n_updates) for row in rows] == [("completed", 2), ("collecting", 0)]
    served.update(devices[2], 2, 1)
    await served.turn()
    assert served.receipts.codes() == {"accepted": 1}
