"""The federator lets go of old updates: how many stay, a few at a time, and never under the feet of a job."""

import asyncio
from collections import Counter

import pytest
from sqlalchemy import select
from support.unlearning_steps import forget, unlearn
from support.waiting import until

from foltr.core.protocol.states import Strategy
from foltr.federator import retention
from foltr.federator.job import UnlearningPolicy
from foltr.federator.round import RoundPolicy
from foltr.storage.body_tables import body_parts, update_bodies
from foltr.storage.errors import PartsRefusedError
from foltr.storage.models import latest_model
from foltr.storage.queries import list_contributions

TWO = RoundPolicy(2, 2, 0.0, 60.0)
EVERY_FOURTH = UnlearningPolicy(Strategy.ROLLBACK, interval=4, every_s=0.0, swap_every_s=0.0)


@pytest.fixture(autouse=True)
def often(monkeypatch):
    """After every second round, two updates at a time."""
    monkeypatch.setattr(retention, "_ROUNDS_BETWEEN", 2)
    monkeypatch.setattr(retention, "_UPDATES_AT_ONCE", 2)


@pytest.fixture
async def thinning(serve, unsigned):
    """Starts an actor with two devices, which keeps the newest three rounds whole."""

    async def start(**plan):
        served = await serve(TWO, **({"history_rounds": 3, "unlearning": EVERY_FOURTH} | plan))
        devices = [unsigned("alice"), unsigned("bob")]
        await served.join(devices)
        return served, devices

    return start


async def play(served, devices, first, last):
    for number in range(first, last + 1):
        for device in devices:
            served.update(device, number, number - 1)
        await served.turn()


async def settle(served, turns=20):
    """Time passes without messages."""
    for _ in range(turns):
        served.clock.at += 0.1
        await served.turn()


async def dropped(served):
    """The first rounds of the parts that were dropped."""
    old = select(body_parts.c.first_round).where(body_parts.c.dropped_at.is_not(None)).order_by(body_parts.c.part)
    async with served.db.reading() as connection:
        return list(await connection.scalars(old))


async def whole_rounds(served, n_updates=2):
    """The rounds all of whose updates are there."""
    lines = await list_contributions(served.db, "mail")
    gone = {line.round for line in lines if line.body == "deleted"}
    counts = Counter(line.round for line in lines)
    assert set(counts.values()) == {n_updates}
    return [number for number in sorted(counts) if number not in gone]


async def test_old_rounds_keep_every_interval_th(thinning):
    """Of rounds 1 to 12 the newest three and the odd one are whole; what is said of the others stays."""
    served, devices = await thinning()
    await play(served, devices, 1, 12)
    await settle(served)
    assert await whole_rounds(served) == [1, 5, 9, 10, 11, 12]
    await play(served, devices, 13, 13)
    await settle(served)
    assert await whole_rounds(served) == [1, 5, 9, 10, 11, 12, 13]  # it looks after two rounds
    await play(served, devices, 14, 14)
    await settle(served)
    assert await whole_rounds(served) == [1, 5, 9, 12, 13, 14]


@pytest.mark.parametrize("served_url", ["postgresql"], indirect=True)
async def test_on_postgresql_parts_of_two_rounds_go_as_a_whole(thinning, serve, monkeypatch):
    """They are made ahead, while a backup reads they stay, and the next federator goes on with what there is."""
    served, devices = await thinning()
    await play(served, devices, 1, 12)
    await settle(served)
    assert await whole_rounds(served) == [1, 5, 9, 10, 11, 12]
    assert await dropped(served) == [2, 4, 6, 8]
    delays: list[float] = []
    monkeypatch.setattr(retention.log, "warning", lambda _, **fields: delays.append(fields["retry_s"]))
    async with served.db.reading() as backup:
        await backup.execute(select(update_bodies.c.round).limit(1))
        await play(served, devices, 13, 14)
        for later_s in (1.5, 6.0, 21.0):
            served.clock.at += later_s
            await served.turn()
        assert await dropped(served) == [2, 4, 6, 8]
        assert delays == [60.0]
    again = await serve(TWO, history_rounds=3, unlearning=EVERY_FOURTH)
    await settle(again)
    assert await whole_rounds(again) == [1, 5, 9, 12, 13, 14]
    assert await dropped(again) == [2, 4, 6, 8, 10]


async def test_where_no_part_may_be_made_rounds_go_on(thinning, monkeypatch):
    """It is said once, and bodies go row by row."""
    refused: list[str] = []

    async def refuse(*_arguments):
        raise PartsRefusedError("permission denied for schema public")

    monkeypatch.setattr("foltr.federator.store.FederationStore.prepare_part", refuse)
    monkeypatch.setattr(retention.log, "warning", lambda event, **_: refused.append(event))
    served, devices = await thinning()
    await play(served, devices, 1, 12)
    await settle(served)
    assert await whole_rounds(served) == [1, 5, 9, 10, 11, 12]
    assert refused == ["partitioning_denied"]


async def test_a_federator_that_is_given_a_horizon_begins_with_the_first_round(thinning, serve):
    """Also where the last one was killed in the middle; two updates a turn, with pauses in between."""
    served, devices = await thinning(history_rounds=None)
    await play(served, devices, 1, 9)
    again = await serve(TWO, history_rounds=3, unlearning=EVERY_FOURTH)
    await again.turn()
    assert len(await whole_rounds(again)) == 8
    await again.turn()
    assert len(await whole_rounds(again)) == 8
    third = await serve(TWO, history_rounds=3, unlearning=EVERY_FOURTH)
    await settle(third)
    assert await whole_rounds(third) == [1, 5, 7, 8, 9]
    assert third.actor.retention.wake_at() == float("inf")


async def test_it_wakes_by_itself(thinning, serve):
    """No message has to come for it."""
    before, devices = await thinning(history_rounds=None)
    await play(before, devices, 1, 9)
    served = await serve(TWO, history_rounds=3, unlearning=EVERY_FOURTH)
    running = asyncio.create_task(served.actor.run())

    async def are_let_go():
        served.clock.at += 0.06
        return await whole_rounds(served) == [1, 5, 7, 8, 9]

    await until(are_let_go)
    served.actor.stop()
    await running


async def test_while_a_job_runs_nothing_goes(thinning, serve):
    """It goes through what is stored; once its model is in service the rest is let go."""
    served, devices = await thinning(history_rounds=None)
    await play(served, devices, 1, 9)
    await forget(served, devices[1])
    again = await serve(TWO, history_rounds=3, unlearning=EVERY_FOURTH)
    await settle(again)
    assert await whole_rounds(again, n_updates=1) == list(range(1, 10))
    assert again.actor.retention.wake_at() == 0.0
    await unlearn(again, devices[:1], [1.0])
    assert (await latest_model(again.db, "mail")).unlearning_job == 1
    await settle(again)
    assert await whole_rounds(again, n_updates=1) == [1, 5, 8, 9]
