"""A leader shares its round with a worker: it reads what that has stored, and waits for it at a deadline."""

import pytest
from support.leader_and_worker import states

from foltr.broker.buffer import IntakeLimits
from foltr.core.protocol.membership import Status
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.states import RoundState, TakesUpdates
from foltr.core.protocol.topics import ClientTopic
from foltr.federator.round import RoundPolicy
from foltr.federator.worker_sharing import WORKERS_LATE_S
from foltr.storage.ingest import look_at_workers
from foltr.storage.queries import list_clients


async def test_workers_do_not_wait_for_who_is_connected(share, monkeypatch):
    """Statuses, also wrong ones, are stored while workers take updates: they say nothing that an update goes by."""
    both, (a, b, _) = await share(RoundPolicy(2, 3, 0, 60))
    n_taken_back = 0
    take_back = both.leader.sharing.stop

    async def counting(state):
        nonlocal n_taken_back
        n_taken_back += 1
        await take_back(state)

    await both.lead()
    monkeypatch.setattr(both.leader.sharing, "stop", counting)
    n_answers = len(both.leader.receipts.sent)
    for device, online, sequence in ((a, False, 20), (b, False, 20), (b, True, 10)):  # the last one is a replay
        status = Status(federation="mail", client_id=device.client_id, online=online)
        both.says(device, ClientTopic.STATUS, status, sequence)
        await both.lead()
    both.gives(a)
    await both.work()
    rows = {row.client_id: row.online for row in await list_clients(both.leader.db, "mail")}
    assert (rows["a"], rows["b"], rows["c"]) == (False, False, True)
    assert [one.code for one in both.receipts.sent] == [ReceiptCode.ACCEPTED]
    assert (n_taken_back, len(both.leader.receipts.sent)) == (0, n_answers)


@pytest.mark.parametrize("called_by", ["join", "dropped", "deadline"])
async def test_what_is_answered_is_no_matter_of_statuses(share, monkeypatch, called_by):
    """A leader takes updates back where a join, or a message that there is no room for, came beside statuses."""
    both, (a, b, _) = await share(RoundPolicy(2, 3, 0, 60))
    await both.lead()
    both.says(a, ClientTopic.STATUS, Status(federation="mail", client_id="a", online=False), 20)
    if called_by == "join":
        both.joins(b, 21)
    elif called_by == "dropped":
        monkeypatch.setattr(both.leader.actor.intake, "_limits", IntakeLimits(max_waiting_per_sender=1))
        both.says(a, ClientTopic.STATUS, Status(federation="mail", client_id="a", online=True), 21)
    else:
        both.clock.at += 61
    taken = []
    take_back = both.leader.sharing.stop

    async def noting(state):
        taken.append(len(both.leader.receipts.sent))
        await take_back(state)

    monkeypatch.setattr(both.leader.sharing, "stop", noting)
    await both.lead()
    assert len(taken) == 1
    assert not {row.client_id: row.online for row in await list_clients(both.leader.db, "mail")}["a"]


async def test_a_leader_takes_a_turn_an_hour_though_nothing_arrives(share, monkeypatch):
    """Else no alarm would be raised for an erasure that is late while a round of a day goes on."""
    both, _ = await share(RoundPolicy(2, 2, 0, 86_400))
    turns = []

    async def turn(now):
        turns.append(now)

    await both.lead()
    monkeypatch.setattr(both.leader.actor, "turn", turn)
    await both.lead()
    both.clock.at += 3_601
    await both.lead()
    assert turns == [both.clock.at]


@pytest.mark.parametrize("served_url", ["sqlite", "postgresql"], indirect=True)
async def test_a_leader_closes_a_round_from_what_a_worker_has_stored(share):
    """The last update fills the round: the leader sees the count, reads the rows and makes the model."""
    both, (a, b, _) = await share(RoundPolicy(2, 2, 0, 60))
    both.gives(a)
    await both.work()
    await both.lead()
    assert (await states(both))[-1] is RoundState.COLLECTING
    assert both.leader.actor.state.current_round.n_clients == 1
    both.gives(b, update_id="1" * 32)
    await both.work()
    assert dict(both.receipts.codes()) == {"accepted": 2}
    await both.lead()
    assert (await states(both))[-2:] == [RoundState.COMPLETED, RoundState.COLLECTING]
    assert both.leader.actor.rounds.model.version == 1
    watermarks = both.leader.actor.state.members
    assert [watermarks.counted_through(name) for name in "abc"] == [100, 100, 0]


async def test_the_answer_to_a_join_has_the_mark_that_a_worker_stored(share):
    """The leader takes updates back first, and reads what counts."""
    both, (a, _, _) = await share(RoundPolicy(3, 3, 0, 60))
    both.gives(a)
    await both.work()
    both.joins(a)
    await both.lead()
    assert both.leader.receipts.last("a").counted_through == 100
    assert (await look_at_workers(both.leader.db, "mail")).takes_updates is TakesUpdates.WORKERS


async def test_a_round_waits_at_its_deadline_for_a_worker_that_may_have_updates(share):
    """Until the worker says that it has none from before, or for two seconds; with a quorum likewise."""
    both, (a, b, _) = await share(RoundPolicy(1, 3, 30, 60))
    both.gives(a)
    await both.work()
    both.clock.at += 29
    both.gives(b)
    both.clock.at += 2
    await both.lead()
    assert (await states(both))[-1] is RoundState.COLLECTING
    assert len(await states(both)) == 1
    await both.work()
    await both.lead()
    assert (await states(both))[0] is RoundState.COMPLETED
    assert len(await states(both)) == 2
    assert dict(both.receipts.codes()) == {"accepted": 2}
    both.clock.at += 61
    await both.lead()
    assert len(await states(both)) == 2
    both.clock.at += WORKERS_LATE_S
    await both.lead()
    assert (await states(both))[1:] == [RoundState.ABANDONED, RoundState.COLLECTING]
