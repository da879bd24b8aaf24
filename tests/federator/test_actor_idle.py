"""Rounds of a federation that nobody uses: none is abandoned for it, and nothing else about them changes."""

from dataclasses import replace

from support.voting_devices import ONES, STEPWISE, forget

from foltr.core.protocol.membership import Status
from foltr.core.protocol.states import Strategy
from foltr.core.protocol.topics import ClientTopic
from foltr.federator.round import RoundPolicy
from foltr.storage.queries import list_events, list_rounds

POLICY = RoundPolicy(1, 9, 0.0, 60.0)


def goes(served, device, *, online: bool) -> None:
    served.receive(device, ClientTopic.STATUS, Status(federation="mail", client_id=device.client_id, online=online))


async def passed(served, n_deadlines: int) -> None:
    for _ in range(n_deadlines):
        served.clock.at += 60.5
        await served.turn()


async def test_while_nobody_is_online_a_round_begins_anew_at_each_deadline(serve, unsigned):
    """A night without devices leaves one open round, whose deadline is ahead, and no event."""
    served = await serve(POLICY)
    alice = unsigned("alice")
    await served.join([alice])
    goes(served, alice, online=False)
    await served.turn()
    n_events = len(await list_events(served.db, "mail"))
    await passed(served, 20)
    (row,) = await list_rounds(served.db, "mail")
    assert (row.round, row.state) == (1, "collecting")
    assert row.opened_at.timestamp() == served.clock.at
    assert len(await list_events(served.db, "mail")) == n_events
    goes(served, alice, online=True)
    served.update(alice)
    await served.turn()
    assert served.receipts.codes() == {"accepted": 1}
    assert [(row.round, row.state) for row in await list_rounds(served.db, "mail")] == [
        (1, "completed"),
        (2, "collecting"),
    ]


async def test_an_idle_round_outlives_a_restart_and_makes_way_for_other_settings(serve):
    """The same federator goes on with it; one with other limits opens a round that has them."""
    first = await serve(POLICY)
    await passed(first, 2)
    second = await serve(POLICY)
    await passed(second, 2)
    assert [row.round for row in await list_rounds(second.db, "mail")] == [1]
    third = await serve(replace(POLICY, min_clients=2))
    await passed(third, 3)
    rows = await list_rounds(third.db, "mail")
    assert [(row.round, row.state, row.min_clients) for row in rows] == [(1, "abandoned", 1), (2, "collecting", 2)]


async def test_a_round_that_asks_some_makes_way_for_one_that_asks_whoever_comes(serve, unsigned):
    """Those it asks may never come back; the next one was opened while nobody was online, and begins anew."""
    served = await serve(replace(POLICY, max_clients=1, over_selection=0.0))
    devices = [unsigned(name) for name in ("alice", "bob", "carol")]
    await served.join(devices)
    await passed(served, 1)
    asked = served.actor.state.round.selection
    assert [asked.includes(device.client_id) for device in devices].count(True) == 1
    for device in devices:
        goes(served, device, online=False)
    await served.turn()
    await passed(served, 5)
    rows = await list_rounds(served.db, "mail")
    assert [(row.round, row.n_eligible, row.state) for row in rows] == [
        (1, 0, "abandoned"),
        (2, 3, "abandoned"),
        (3, 0, "collecting"),
    ]
    others = [device for device in devices if not asked.includes(device.client_id)]
    served.update(others[0], 3, 0)
    await served.turn()
    assert served.receipts.codes() == {"accepted": 1}


async def test_where_there_can_be_no_anchor_a_round_begins_anew_too(voting, restarted):
    """Somebody who was erased is in the newest model, and nobody is there to unlearn it with: no row for each round."""
    served, devices = await voting(anchor=False, unlearning=STEPWISE[Strategy.RELEARN])
    for device in devices.values():
        served.update(device, 1, 0, body=ONES)
    await passed(served, 1)
    await forget(served, devices.pop("a"))
    for device in devices.values():
        goes(served, device, online=False)
    await served.turn()
    served = await restarted(served, anchor=True)
    assert (served.actor.state.asks_for_votes, served.actor.state.anchor) == (True, None)
    n_rounds = len(await list_rounds(served.db, "mail"))
    await passed(served, 5)
    assert len(await list_rounds(served.db, "mail")) == n_rounds
