"""Leader and workers share a federation in SQL: who takes updates is a row, and nobody decides beside another."""

import asyncio
import time
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from sqlalchemy import func, select, text, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection
from support.waiting import PATIENCE_S

from foltr.core.erasure.pseudonyms import pseudonym
from foltr.core.errors import ProtocolViolationError
from foltr.core.protocol.states import TakesUpdates
from foltr.storage import ingest, ingest_batches
from foltr.storage.database import Database, is_transient
from foltr.storage.database_clock import DatabaseNow
from foltr.storage.erasure_tables import erasures
from foltr.storage.errors import WriterFencedError
from foltr.storage.federations import claim_federation
from foltr.storage.ingest import hand_over, look_at_workers, take_back
from foltr.storage.ingest_batches import take_updates
from foltr.storage.ingest_records import (
    BatchKeys,
    CollectedUpdate,
    DecisionInputs,
    IngestDecision,
    Ingested,
    IngestNotAllowed,
)
from foltr.storage.ingest_tables import ingest_workers, ingestion
from foltr.storage.records import Batch, NewEvent, NewUpdate, QuarantineChange
from foltr.storage.tables import federations, rounds

from .conftest import Stored, at

PSEUDONYM_KEY = b"p" * 32


def asked(*new: NewUpdate, names: tuple[str, ...] = ()) -> BatchKeys:
    identities = frozenset((item.client_id, item.update_id) for item in new)
    return BatchKeys(frozenset(names) | {item.client_id for item in new}, identities)


def taking(*new: NewUpdate, told: list[DecisionInputs] | None = None) -> Callable[[DecisionInputs], IngestDecision]:
    """Decide to store these, whatever is stored; ``told`` gets what it was told."""

    def decide(ground: DecisionInputs) -> IngestDecision:
        if told is not None:
            told.append(ground)
        return IngestDecision(new, [], max(1, len(new)))

    return decide


async def offer(
    stored: Stored, *new: NewUpdate, names: tuple[str, ...] = (), told: list[DecisionInputs] | None = None
) -> Ingested | IngestNotAllowed:
    """As a worker whose batch has these updates, and messages of these names."""
    return await stored.take_updates(asked(*new, names=names), taking(*new, told=told))


@pytest.fixture
async def shared(stored: Stored) -> Stored:
    """Round 1 is open, a and b are members, and a leader has let workers take updates."""
    stored.epoch = await claim_federation(stored.db, stored.name, 0.0, takes_updates=TakesUpdates.LEADER)
    await stored.write(update(federations).values(pseudonym_key=PSEUDONYM_KEY))
    await stored.join("a", "b")
    await stored.open(1)
    await stored.hand_over(3, 0, evaluation=True)
    return stored


# At once with a quorum, and at its deadline.
ENDS = (at(0), at(60))


async def test_a_worker_stores_a_batch_with_its_marks_and_numbers_its_answers(shared) -> None:
    """One transaction: the update, its client's watermark, the count of the round, and the numbers of the answers."""
    a, b = shared.update("a"), shared.update("b")
    stored = await offer(shared, a, b)
    assert stored == Ingested(shared.epoch, 4, 2, ENDS)
    watermarks = {row.client_id: row.counted_through for row in await shared.load_clients()}
    assert watermarks == {"a": a.covers_through, "b": b.covers_through}
    assert (await shared.look_at_workers()).n_collected == 2
    left = await shared.take_back()
    assert (left.n_answers, left.n_collected) == (5, 2)
    listed = await shared.list_collected(1, left.clients)
    assert sorted(listed, key=lambda item: item.client_id) == [
        CollectedUpdate("a", "u1", a.covers_after, a.covers_through),
        CollectedUpdate("b", "u1", b.covers_after, b.covers_through),
    ]


async def test_the_leader_is_told_whose_updates_are_new(shared) -> None:
    """Once: what it has read it does not read again. A new claim reads all of a round, and so is told of none."""
    await shared.join("c")
    a, b, c = (shared.update(name) for name in "abc")
    await offer(shared, a)
    first = await shared.take_back()
    await shared.hand_over(first.n_answers, 1, evaluation=True)
    await offer(shared, b, names=("a",))
    second = await shared.take_back()
    listed = [await shared.list_collected(1, left.clients) for left in (first, second)]
    assert [[row.client_id for row in rows] for rows in listed] == [["a"], ["b"]]
    assert await shared.take_back() == second
    assert await shared.list_collected(1, []) == []
    await shared.hand_over(second.n_answers, 2, evaluation=True)
    await offer(shared, c)
    epoch = await claim_federation(shared.db, shared.name, 0.0, takes_updates=TakesUpdates.LEADER)
    assert (await take_back(shared.db, shared.name, epoch)).clients == []


async def test_a_worker_is_told_what_is_stored_under_the_lock(shared) -> None:
    """Its clients' rows, which of its updates are stored, what counts of them in the round, and no other's."""
    a, b = shared.update("a"), shared.update("b")
    await offer(shared, a)
    told: list[DecisionInputs] = []
    await shared.take_updates(asked(a, names=("stranger",)), taking(told=told))
    (ground,) = told
    assert [row.client_id for row in ground.clients] == ["a"]
    assert [(item.client_id, item.update_id) for item in ground.collected] == [("a", "u1")]
    assert ground.stored == await shared.find_updates([("a", "u1")])
    assert (ground.n_collected, ground.evaluation, ground.round.number) == (1, True, 1)
    assert (ground.facts.epoch, ground.facts.number, list(ground.facts.model_hashes)) == (shared.epoch, 1, [0])
    again: list[DecisionInputs] = []
    await shared.take_updates(asked(b), taking(told=again), ground.facts)
    assert again[0].facts is ground.facts
    assert again[0].stored == {}
    assert await shared.find_public_keys(frozenset({"a", "nobody"})) == {"a": None}  # no identities are asked for


async def test_who_was_forgotten_is_found_among_strangers(shared) -> None:
    """Only where a name of the batch is no client's, and then by its pseudonym."""
    await shared.erase("b")
    told: list[DecisionInputs] = []
    await offer(shared, names=("a",), told=told)
    await offer(shared, names=("a", "b", "c"), told=told)
    assert [ground.forgotten for ground in told] == [frozenset(), frozenset()]
    # The builders' pseudonyms are no real ones; that of c is put among them.
    await shared.write(update(erasures).values(pseudonym=pseudonym(PSEUDONYM_KEY, "c")))
    told.clear()
    await offer(shared, names=("b", "c"), told=told)
    assert told[0].forgotten == await shared.forgotten_pseudonyms()


@pytest.mark.parametrize("takes_updates", [TakesUpdates.WRITER, TakesUpdates.LEADER])
async def test_a_worker_stores_nothing_unless_workers_take_updates(stored, takes_updates) -> None:
    """Nor before there was a leader; a new claim, with workers or without, keeps them out until it lets them in."""
    await stored.join("a")
    await stored.open(1)
    a = stored.update("a")
    assert await offer(stored, a) == IngestNotAllowed(TakesUpdates.WRITER)
    assert await look_at_workers(stored.db, "web") is None
    epoch = await claim_federation(stored.db, "web", 0.0, takes_updates=takes_updates)
    assert await offer(stored, a) == IngestNotAllowed(takes_updates)
    assert await stored.find_updates([("a", "u1")]) == {}
    if takes_updates is TakesUpdates.LEADER:
        await hand_over(stored.db, "web", epoch, 0, 0, evaluation=False)
        assert await offer(stored, a) == Ingested(epoch, 1, 1, ENDS)


@pytest.mark.parametrize("is_full", [False, True])
async def test_a_round_that_is_full_or_stopped_collecting_takes_nothing_of_a_worker(shared, is_full) -> None:
    """Whoever holds the row first decides: no update gets in after that; a full one its leader is to end first."""
    if is_full:
        await shared.take_back()
        await shared.hand_over(3, shared.opening(1).max_clients, evaluation=False)
    else:
        await shared.begin_aggregation(1)
    a = shared.update("a")
    assert await offer(shared, a) == IngestNotAllowed(TakesUpdates.WORKERS)


async def test_a_worker_refuses_what_a_full_round_has_no_room_for(shared) -> None:
    """While that lasts its least time: nobody waits for an answer for as long."""
    await shared.take_back()
    await shared.hand_over(3, shared.opening(1).max_clients, evaluation=False)
    long = {"min_time_s": 4e9, "max_time_s": 4e9, "closes_at": at(0) + timedelta(seconds=4e9)}
    await shared.write(update(rounds).values(long))
    a = shared.update("a")
    refused = await shared.take_updates(asked(a), lambda _: IngestDecision([], [], 1))
    assert isinstance(refused, Ingested)
    assert refused.n_collected == shared.opening(1).max_clients


async def test_a_former_leader_can_neither_hand_over_nor_take_back(shared) -> None:
    """Its epoch fences it, and what the new one has said stays."""
    former = shared.epoch
    await claim_federation(shared.db, shared.name, 0.0, takes_updates=TakesUpdates.LEADER)
    writes = hand_over(shared.db, "web", former, 0, 0, evaluation=False), shared.take_back(), shared.look_at_workers()
    for write in writes:
        async with shared.refuses(WriterFencedError):
            await write
    assert (await look_at_workers(shared.db, "web")).takes_updates is TakesUpdates.LEADER


async def test_a_hand_over_whose_answer_was_lost_is_done_once(shared) -> None:
    """Done again after a worker has counted, it does not set the counts back."""
    a = shared.update("a")
    await offer(shared, a)
    await shared.hand_over(3, 0, evaluation=True)
    assert await shared.take_back() == await shared.take_back()
    assert await shared.read(select(ingestion.c.n_answers, ingestion.c.n_collected)) == [(4, 1)]


async def test_two_workers_that_have_the_same_update_store_it_once(shared) -> None:
    """Both at once: the second is told under the lock that it is stored; if it insists, nothing of it is kept."""
    a = shared.update("a")
    told: list[DecisionInputs] = []
    both = offer(shared, a, told=told), offer(shared, a, told=told)
    outcomes = await asyncio.gather(*both, return_exceptions=True)
    assert set(map(type, outcomes)) == {Ingested, ProtocolViolationError}
    assert sorted(len(ground.stored) for ground in told) == [0, 1]
    assert await shared.read(select(ingestion.c.n_collected)) == [(1,)]


async def test_a_quarantine_or_an_erasure_comes_before_a_batch_or_after_it(shared) -> None:
    """A worker is told of it as soon as it is stored, and of nobody who is erased."""
    told: list[DecisionInputs] = []
    await shared.take_back()
    await shared.commit(Batch(quarantines=[QuarantineChange("a", at(2), "hostile")]))
    await shared.erase("b")
    await shared.hand_over(3, 0, evaluation=False)
    await offer(shared, names=("a", "b"), told=told)
    assert [(row.client_id, row.quarantine_reason) for row in told[0].clients] == [("a", "hostile")]


async def test_a_worker_that_was_not_seen_for_a_while_is_not_waited_for(shared, monkeypatch) -> None:
    """By the database's clock; of those that are there the slowest counts."""

    async def workers() -> tuple[int, datetime | None]:
        found = await look_at_workers(shared.db, "web")
        return found.n_workers, found.arrived_before

    monkeypatch.setattr(ingest, "WORKER_GONE_S", PATIENCE_S)
    await shared.note_worker("one", at(10))
    await shared.note_worker("two", at(20))
    assert await workers() == (2, at(10))
    gone = update(ingest_workers).where(ingest_workers.c.worker_id == "one")
    await shared.write(gone.values(seen_at=DatabaseNow(-PATIENCE_S - 1)))
    assert await workers() == (1, at(20))
    a = shared.update("a")
    await shared.take_updates(asked(a), lambda _: IngestDecision([a], [], 1, at(30)), None, "one")
    await shared.forget_worker("two")
    assert await workers() == (1, at(30))


async def test_what_is_refused_by_a_worker_is_an_event(shared) -> None:
    """With the number of its answer, and no update; where nothing is answered no row is written."""
    async with shared.unchanged():
        nothing = await shared.take_updates(asked(names=("a",)), lambda _: IngestDecision([], [], 0))
        assert nothing == IngestNotAllowed(TakesUpdates.WORKERS)

    def refuse(_: DecisionInputs) -> IngestDecision:
        return IngestDecision([], [NewEvent(at(1), "update_rejected", "late", "late", "a", 1)], 1)

    assert await shared.take_updates(asked(names=("a",)), refuse) == Ingested(shared.epoch, 4, 0, ENDS)
    assert any(row[3] == "update_rejected" for row in (await shared.dump())["events"])


async def test_the_database_tells_the_time(migrated: Database) -> None:
    """On both databases its clock is near ours, and moves forward within a transaction."""

    async def now(connection: AsyncConnection, plus_s: float = 0.0):
        return (await connection.execute(select(DatabaseNow(plus_s).label("now")))).scalar_one()

    async with migrated.transaction() as connection:
        first, later = await now(connection), await now(connection, 60.0)
        assert timedelta(seconds=59) < later - first < timedelta(seconds=61)
        assert (await connection.execute(select(func.count()).select_from(ingestion))).scalar_one() == 0


@pytest.mark.parametrize("migrated_url", ["postgresql"], indirect=True)
async def test_a_worker_that_is_paused_with_the_row_in_its_hands_is_thrown_out(shared, monkeypatch) -> None:
    """PostgreSQL ends its transaction; nothing of it is kept, and the same may be offered again."""
    a = shared.update("a")
    held = ingest_batches._HOLD_FOR_SECONDS  # noqa: SLF001 (five seconds, which show no more than one)

    def pause(_: DecisionInputs) -> IngestDecision:
        time.sleep(1.5)  # clock: away
        return IngestDecision([a], [], 1)

    with monkeypatch.context() as soon:
        soon.setattr(ingest_batches, "_HOLD_FOR_SECONDS", text(held.text.replace("5s", "1s")))
        with pytest.raises(DBAPIError) as raised:
            await take_updates(shared.db, "web", asked(a), pause)
    assert is_transient(raised.value)
    assert await shared.find_updates([("a", "u1")]) == {}
    assert await offer(shared, a) == Ingested(shared.epoch, 4, 1, ENDS)
