"""A leader and a worker on one database, turn by turn: what the one stores the other decides by."""

import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
from sqlalchemy import select, text
from structlog.testing import capture_logs
from support.databases import open_migrated
from support.federator_without_network import GENEROUS, HandClock, NumberedReceipts, Served
from support.waiting import PATIENCE_S

from foltr.broker.buffer import IntakeLimits
from foltr.broker.link import InboundMessage
from foltr.core.errors import SettingsError
from foltr.core.protocol.evaluations import Evaluation
from foltr.core.protocol.fields import model_hash
from foltr.core.protocol.membership import Join, Status
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.states import Pacing, RoundState, TakesUpdates
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.core.protocol.updates import Vote
from foltr.federator import clock
from foltr.federator.ingest.service import plan_of
from foltr.federator.ingest.worker import IngestWorker
from foltr.federator.plan import FederationPlan
from foltr.federator.publishing.answer_numbers import AnswerNumbers
from foltr.federator.round import RoundPolicy
from foltr.federator.store import FederationStore
from foltr.federator.worker_sharing import WORKERS_LATE_S
from foltr.storage.database import Database
from foltr.storage.ingest import look_at_workers
from foltr.storage.keys import KeyStore
from foltr.storage.queries import list_clients, list_rounds
from foltr.storage.tables import updates

TOPICS = Topics("mail")
FIRST_MODEL = model_hash(bytes(4))


@dataclass
class Both:
    """A leader, and a worker beside it."""

    leader: Served
    worker: IngestWorker
    receipts: NumberedReceipts
    clock: HandClock

    async def lead(self) -> None:
        await self.leader.actor.turn_if_due(self.clock.now())

    async def work(self) -> None:
        await self.worker.turn()

    def gives(self, device, number=1, base=0, *, update_id="0" * 32, after=0, **more) -> None:
        """Have the broker give an update to the worker."""
        made = device.update(number, base, update_id, after).model_copy(update={"base_hash": FIRST_MODEL, **more})
        payload = device.payload(ClientTopic.UPDATES, made, 1)
        self.worker.receive(InboundMessage(TOPICS.client(device.client_id, ClientTopic.UPDATES), payload, False))

    def says(self, device, topic, message, sequence=9) -> None:
        payload = device.payload(topic, message, sequence)
        self.leader.actor.receive(InboundMessage(TOPICS.client(device.client_id, topic), payload, retained=False))


async def new_worker(db, plan, clock, name="one", key=None, limits=GENEROUS) -> tuple[IngestWorker, NumberedReceipts]:
    numbers = AnswerNumbers()
    receipts = NumberedReceipts(numbers)
    known = await plan_of(db, plan.federation, plan.enrolment_key, plan.key_sequence)
    assert known is not None
    store = FederationStore(db, plan.federation)
    return IngestWorker(name, known, store, receipts, numbers, clock, limits, key=key), receipts


@pytest.fixture
async def share(served_url, tmp_path, operator):
    """Starts a leader with three members, and a worker."""
    leaders = []
    async with await open_migrated(served_url, KeyStore(tmp_path / "keys")) as db:

        async def start(policy, key=None, **plan) -> tuple[Both, list]:
            wanted = FederationPlan("mail", 1, policy, enrolment_key=operator.key.public, **plan)
            leader = Served(db, wanted, GENEROUS, key, shares=True)
            leaders.append(leader)
            await leader.actor.start()
            devices = [operator.enrol(name) for name in "abc"]
            await leader.join(devices)
            await leader.sharing.start(leader.actor.state)
            worker, receipts = await new_worker(db, wanted, leader.clock, key=key)
            return Both(leader, worker, receipts, leader.clock), devices

        yield start
        for leader in leaders:
            await leader.actor.close()


async def states(both: Both) -> list[RoundState]:
    return [row.state for row in await list_rounds(both.leader.db, "mail")]


@pytest.mark.parametrize("served_url", ["sqlite", "postgresql"], indirect=True)
async def test_a_leader_reads_only_what_is_new(share, monkeypatch):
    """Of an open round, however large it is by then; also where the answer that said whose are new was lost."""
    both, (a, b, c) = await share(RoundPolicy(3, 9, 0, 60))
    store = both.leader.sharing._store  # noqa: SLF001 (what is read is the promise)
    list_collected, take_back, read = store.list_collected, store.take_back, []

    async def noting(number, of):
        rows = await list_collected(number, of)
        read.append(sorted(row.client_id for row in rows))
        return rows

    async def answered_twice():
        await take_back()
        return await take_back()

    monkeypatch.setattr(store, "list_collected", noting)
    for device in (a, b, c):
        both.gives(device)
        await both.work()
        both.says(a, ClientTopic.JOIN, Join(federation="mail", client_id="a", sdk_version="1", enrolment=a.enrolment))
        if device is c:
            monkeypatch.setattr(store, "take_back", answered_twice)
        await both.lead()
    assert read == [["a"], ["b"], ["c"]]
    assert (await states(both))[0] is RoundState.COMPLETED


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
        join = Join(federation="mail", client_id="b", sdk_version="1", enrolment=b.enrolment)
        both.says(b, ClientTopic.JOIN, join, 21)
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
    both.says(a, ClientTopic.JOIN, _join(a))
    await both.lead()
    assert both.leader.receipts.last("a").counted_through == 100
    assert (await look_at_workers(both.leader.db, "mail")).takes_updates is TakesUpdates.WORKERS


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


async def test_a_round_waits_at_its_deadline_for_a_worker_that_may_have_updates(share):
    """Until the worker has said that it has none from before; or for two seconds, if it says nothing."""
    both, (a, _, _) = await share(RoundPolicy(1, 3, 60, 60))
    await both.work()
    both.gives(a)
    both.clock.at += 61
    await both.lead()
    assert (await states(both))[-1] is RoundState.COLLECTING
    assert len(await states(both)) == 1
    await both.work()
    await both.lead()
    assert (await states(both))[0] is RoundState.COMPLETED
    assert len(await states(both)) == 2
    both.clock.at += 61
    await both.lead()
    assert len(await states(both)) == 2
    both.clock.at += WORKERS_LATE_S
    await both.lead()
    assert (await states(both))[1:] == [RoundState.ABANDONED, RoundState.COLLECTING]


async def test_a_round_with_a_quorum_waits_for_what_a_worker_has_from_before(share):
    """It may end after 30 seconds: what arrived by then counts, whether or not it is stored by then."""
    both, (a, b, _) = await share(RoundPolicy(1, 3, 30, 60))
    both.gives(a)
    await both.work()
    both.clock.at += 29
    both.gives(b)
    both.clock.at += 2
    await both.lead()
    assert len(await states(both)) == 1
    await both.work()
    await both.lead()
    assert (await states(both))[0] is RoundState.COMPLETED
    assert dict(both.receipts.codes()) == {"accepted": 2}


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
    both.says(anew, ClientTopic.JOIN, _join(anew))
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


def _join(device) -> Join:
    return Join(federation="mail", client_id=device.client_id, sdk_version="1", enrolment=device.enrolment)


async def test_a_buffer_takes_what_was_made_on_an_older_model(share):
    """Buffered: a worker takes an update for an earlier round, and one that is too early again later."""
    policy = RoundPolicy(1, 1, 0, 60, pacing=Pacing.BUFFERED, staleness_limit=2)
    both, (a, b, _) = await share(policy)
    both.gives(a)
    await both.work()
    both.gives(b)
    await both.work()
    assert dict(both.receipts.codes()) == {"accepted": 1}
    await both.lead()
    await both.work()
    assert both.receipts.last("b").code is ReceiptCode.ACCEPTED
    await both.lead()
    assert (await states(both))[:2] == [RoundState.COMPLETED] * 2


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
    """A vote on the round's anchor; and no evaluation, as this leader asks for none."""
    both, (a, _, _) = await share(RoundPolicy(3, 3, 0, 60), anchor=True)
    said = {
        "vote": Vote(anchor_version=0, value=1),
        "evaluation": Evaluation(clicked=0.5, reward=0.5, base_reward=0.25),
    }
    both.gives(a, **said)
    await both.work()
    async with both.leader.db.reading() as connection:
        stored = (await connection.execute(select(updates.c.vote, updates.c.clicked))).one()
    assert tuple(stored) == (1, None)


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
