"""The single writer, with a real database and a clock that is set by hand: what its turns do in which order."""

import asyncio

from support.waiting import PATIENCE_S, until

from foltr.broker.buffer import IntakeLimits
from foltr.broker.link import InboundMessage
from foltr.core.protocol.states import Pacing
from foltr.core.protocol.topics import Topics
from foltr.federator.round import RoundPolicy
from foltr.storage.models import list_models
from foltr.storage.orders import list_orders
from foltr.storage.queries import list_contributions, list_events, list_rounds

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


async def test_what_a_full_buffer_has_no_room_for_counts_in_the_next(serve, unsigned):
    """The last update of one batch fills the round at its end: those of the next batch are not late."""
    policy = RoundPolicy(500, 500, 0.0, 60.0, pacing=Pacing.BUFFERED, staleness_limit=1)
    served = await serve(policy)
    crowd = [unsigned(f"client-{i:04d}") for i in range(600)]
    await served.join(crowd)
    for device in crowd:
        served.update(device)
    served.clock.at += 61  # the round is due, so all that waits is served in one turn
    await served.turn()
    assert served.receipts.codes() == {"accepted": 600}
    assert [(row.state, row.n_updates) for row in await list_rounds(served.db, "mail")] == [
        ("completed", 500),
        ("collecting", 100),
    ]


async def test_an_order_behind_the_update_that_fills_the_round_does_no_harm(serve, operator):
    """In the same batch, and in the one after: it is for a round that is over, which is an event and no crash."""
    served = await serve(RoundPolicy(1, 1, 0.0, 60.0), enrolment_key=operator.key.public)
    alice = operator.enrol("alice")
    await served.join([alice])
    served.update(alice)
    served.actor.receive(InboundMessage(TOPICS.operator, operator.orders(1, 5.0, 1).payload, False))
    await served.turn()
    assert served.receipts.codes() == {"accepted": 1}
    assert [row.outcome for row in await list_orders(served.db, "mail")] == ["refused"]
    events = await list_events(served.db, "mail", kind="order_refused")
    assert [(event.code, event.round) for event in events] == [("unknown_round", 2)]


async def test_an_order_and_an_update_that_end_the_round_share_a_batch(serve, operator):
    """The operator cuts the round short in the moment in which a quorum arrives."""
    served = await serve(RoundPolicy(1, 9, 30.0, 60.0), enrolment_key=operator.key.public)
    alice = operator.enrol("alice")
    await served.join([alice])
    served.clock.at += 10
    served.actor.receive(InboundMessage(TOPICS.operator, operator.orders(1, 10.0, 1).payload, False))
    served.clock.at -= 5
    served.update(alice)
    served.clock.at += 5
    await served.turn()
    first, second = await list_rounds(served.db, "mail")
    assert (first.state, first.n_updates, first.max_time_s, first.min_time_s) == ("completed", 1, 10.0, 10.0)
    assert (second.state, second.max_time_s) == ("collecting", 60.0)


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


async def test_members_and_the_selection_outlive_a_restart(serve, operator):
    """The next federator draws from the same seed, knows the keys, and goes on with the open round."""
    policy = RoundPolicy(1, 1, 0.0, 60.0, over_selection=0.0)
    plan = {"enrolment_key": operator.key.public}
    first = await serve(policy, **plan)
    devices = [operator.enrol(f"client-{i}") for i in range(5)]
    await first.join(devices)
    first.update(devices[0])
    await first.turn()
    selection = first.actor.state.round.selection
    assert (selection.n_selected, selection.n_eligible) == (1, 5)
    second = await serve(policy, **plan)
    assert second.actor.state.round.selection == selection
    assert second.actor.state.selection_seed == first.actor.state.selection_seed
    for device in devices:
        second.update(device, 2, 1)
    await second.turn()
    codes = second.receipts.codes()
    assert codes["accepted"] == 1
    assert [row.round for row in await list_contributions(second.db, "mail")] == [1, 2]


async def test_run_ends_when_it_is_told_to(serve):
    """What was taken is answered; the round stays open for the next federator."""
    served = await serve(RoundPolicy(1, 1, 0.0, 60.0))
    running = asyncio.create_task(served.actor.run())
    await asyncio.sleep(0)
    served.actor.stop()
    async with asyncio.timeout(PATIENCE_S):
        await running
    assert not served.actor.finished


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
