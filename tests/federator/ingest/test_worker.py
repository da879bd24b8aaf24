"""A worker decides by what the leader has stored: turn by turn, on one database."""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import select, text
from structlog.testing import capture_logs
from support.leader_and_worker import TOPICS, new_worker, states
from support.waiting import PATIENCE_S

from foltr.broker.buffer import IntakeLimits
from foltr.broker.link import InboundMessage
from foltr.core.errors import SettingsError
from foltr.core.protocol.evaluations import Evaluation
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.states import RoundState
from foltr.core.protocol.topics import ClientTopic
from foltr.core.protocol.updates import Vote
from foltr.federator import clock
from foltr.federator.round import RoundPolicy
from foltr.storage.database import Database
from foltr.storage.tables import updates


async def test_nobody_is_told_that_a_round_is_over_before_that_is_stored(share):
    """What comes after the deadline waits for the leader, and is late then."""
    both, (a, b, _) = await share(RoundPolicy(1, 3, 60, 60))
    both.gives(a)
    await both.work()
    both.clock.at += 61
    both.gives(b)
    await both.work()
    assert dict(both.receipts.codes()) == {"accepted": 1}
    await both.lead()
    await both.work()
    assert both.receipts.last("b").code is ReceiptCode.LATE
    assert (await states(both))[-2:] == [RoundState.COMPLETED, RoundState.COLLECTING]


async def test_a_worker_refuses_whom_the_leader_keeps_out(share, operator):
    """Quarantined, forgotten, never joined: by what is stored, not by what it has seen."""
    both, (a, b, c) = await share(RoundPolicy(3, 3, 0, 60))
    both.gives(a)
    await both.work()
    topic = TOPICS.operator
    for order in (operator.quarantines("a", 1), operator.forgets("b", 2)):
        both.leader.actor.receive(InboundMessage(topic, order.payload, retained=False))
    await both.lead()
    await both.lead()
    both.gives(a, update_id="1" * 32)
    both.gives(b)
    both.gives(operator.enrol("nobody"))
    both.gives(c)
    await both.work()
    codes = {name: both.receipts.last(name).code for name in ("a", "b", "c", "nobody")}
    assert codes == {
        "a": ReceiptCode.QUARANTINED,
        "b": ReceiptCode.FORGOTTEN,
        "c": ReceiptCode.ACCEPTED,
        "nobody": ReceiptCode.UNKNOWN_CLIENT,
    }


async def test_a_key_that_was_seen_before_decides_nothing(share, operator):
    """A client that is enrolled anew signs with another key: the former one's updates are refused at once."""
    both, (a, _, _) = await share(RoundPolicy(3, 3, 0, 60))
    both.gives(a)
    await both.work()
    anew = operator.enrol("a")
    both.joins(anew)
    await both.lead()
    both.gives(a, update_id="1" * 32, after=100)
    await both.work()
    assert both.receipts.last("a").code is ReceiptCode.BAD_SIGNATURE
    both.gives(anew, update_id="2" * 32, after=100)
    await both.work()
    assert both.receipts.last("a").code is ReceiptCode.ALREADY_CONTRIBUTED


async def test_a_worker_whose_key_was_replaced_ends_with_words(share, operator):
    """Devices believe no answer of it any more, and the next leader claims with another key."""
    key, following = SigningKey.generate(), SigningKey.generate()
    both, (a, _, _) = await share(RoundPolicy(3, 3, 0, 60), key=key)
    order = operator.rotates(1, following.public, 1)
    both.leader.actor.receive(InboundMessage(TOPICS.operator, order.payload, retained=False))
    await both.lead()
    both.gives(a)
    await both.leader.sharing.start(both.leader.actor.state)
    with pytest.raises(SettingsError, match="has replaced the key"):
        await both.work()
    assert both.receipts.sent == []


async def test_a_worker_stores_nothing_in_tables_of_another_version(share):
    """They were upgraded beside it, and a leader of that version has come: it ends with words."""
    both, (a, b, _) = await share(RoundPolicy(3, 3, 0, 60))
    both.gives(a)
    await both.work()
    await both.leader.actor.start()
    await both.leader.sharing.start(both.leader.actor.state)
    async with both.leader.db.transaction() as connection:
        await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    both.gives(b)
    with pytest.raises(SettingsError, match="is at schema revision 9999, which this foltr does not know"):
        await both.work()
    assert dict(both.receipts.codes()) == {"accepted": 1}


async def test_a_crowd_of_strangers_keeps_no_member_out_of_a_worker_that_has_just_started(share):
    """Every place that strangers share is full, again and again: a member that this worker never heard of gets in."""
    both, (a, _, _) = await share(RoundPolicy(3, 3, 0, 60))
    small = IntakeLimits(max_waiting_per_sender=5, burst=20)
    both.worker, both.receipts = await new_worker(both.leader.db, both.leader.plan, both.clock, limits=small)
    for _ in range(2):
        for i in range(3_000):
            both.worker.receive(InboundMessage(TOPICS.client(f"nobody-{i}", ClientTopic.UPDATES), b"junk", False))
        both.gives(a)
        while len(both.worker.intake):
            await both.work()
    assert both.receipts.last("a").code is ReceiptCode.ACCEPTED


async def test_who_is_turned_away_again_and_again_is_told_once(share):
    """While the round is full, and its leader away: what a worker owes does not grow with the time."""
    both, (a, b, _) = await share(RoundPolicy(1, 1, 0, 60))
    limits = IntakeLimits(rate_per_s=0.001, burst=1)
    both.worker, both.receipts = await new_worker(both.leader.db, both.leader.plan, both.clock, limits=limits)
    both.gives(b)
    await both.work()
    for i in range(4):
        for _ in range(3):
            both.gives(a, update_id=f"{i:032x}")
        await both.work()
    await both.lead()
    await both.work()
    assert both.receipts.codes()["busy"] == 1


async def test_votes_and_evaluations_are_stored_as_the_leader_asked_for_them(share):
    """A vote on the round's anchor, and on no other; and no evaluation, as this leader asks for none."""
    both, (a, b, _) = await share(RoundPolicy(3, 3, 0, 60), anchor=True)
    said = {
        "vote": Vote(anchor_version=0, value=1),
        "evaluation": Evaluation(clicked=0.5, reward=0.5, base_reward=0.25),
    }
    both.gives(a, **said)
    both.gives(b, vote=Vote(anchor_version=1, value=1))
    await both.work()
    async with both.leader.db.reading() as connection:
        stored = await connection.execute(select(updates.c.vote, updates.c.clicked).order_by(updates.c.client))
        assert [tuple(row) for row in stored] == [(1, None), (None, None)]


async def test_a_worker_goes_on_in_the_file_that_a_restore_has_put_there(share):
    """In the one of before nobody would ever find what it says is stored."""
    both, (a, b, _) = await share(RoundPolicy(3, 3, 0, 60))
    there = Path(both.leader.db.engine.url.database)
    async with await Database.connect(f"sqlite:///{there}", keys=both.leader.db.keys) as db:
        both.worker, both.receipts = await new_worker(db, both.leader.plan, both.clock)
        both.gives(a)
        await both.work()
        with closing(sqlite3.connect(there)) as source, closing(sqlite3.connect(there.with_name("copy"))) as copy:
            source.backup(copy)
        for rest in ("-wal", "-shm"):
            there.with_name(there.name + rest).unlink()
        there.with_name("copy").rename(there)
        both.gives(b)
        await both.work()
    assert dict(both.receipts.codes()) == {"accepted": 2}
    with closing(sqlite3.connect(there)) as restored:
        assert restored.execute("SELECT count(*) FROM updates").fetchone() == (2,)


async def test_clocks_that_are_apart_are_told_once(share, monkeypatch):
    """Of the leader's and of the worker's: by one that is ahead updates are late that came in time."""
    monkeypatch.setattr(clock, "MOST_APART_S", PATIENCE_S)
    both, _ = await share(RoundPolicy(3, 3, 0, 60))
    told = []
    for ahead_s in (0.0, 5e6, 7e6):
        both.clock.at = time.time() + ahead_s
        with capture_logs() as logs:
            await both.work()
            await both.lead()
        told.append([(line["event"], line.get("ahead_s")) for line in logs if line["event"].startswith("clock_skew")])
    assert told[0] == told[2] == []
    assert [event for event, _ in told[1]] == ["clock_skew_detected"] * 2
    assert all(ahead_s == pytest.approx(5e6, abs=PATIENCE_S) for _, ahead_s in told[1])
