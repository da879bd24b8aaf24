"""What every store of a federation promises its writer: in SQLite, in PostgreSQL and in the dicts of the simulation."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from simulation.database import NAME, QuietSession, quiet_database
from simulation.store_unlearning import SimulatedFederationStore
from support.adaptive_memory import memory_of
from support.databases import open_migrated

from foltr.core.errors import DataError, ProtocolViolationError
from foltr.core.protocol.states import OrderOutcome, Privacy, RoundState, Strategy
from foltr.federator.store import FederationStore, stream_updates
from foltr.storage.erasure_records import NewJob
from foltr.storage.errors import WriterFencedError
from foltr.storage.records import (
    Batch,
    CountingUpdate,
    MembershipChange,
    NewEvent,
    NewModel,
    NewOrder,
    NewUpdate,
    StoredUpdate,
)

from .conftest import NOW, Stored, at

FOUNDED = {"selection_seed": b"s" * 32, "aggregation_seed": b"a" * 32, "pseudonym_key": b"p" * 32}
LINEAR = {"method": "fpdgd", "hidden": None, "privacy": Privacy.TRUSTED}


def update(client_id: str, number: int = 1, update_id: str = "u1", body: bytes = b"abcd", after: int = 0) -> NewUpdate:
    return NewUpdate(number, client_id, update_id, 0, after, after + 5, 5, "dense_f32", body, at(1))


@pytest.fixture(params=["sqlite", "postgresql", "simulated"])
async def connect(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Callable[[], FederationStore]]:
    """Makes stores of one database, each for another federator."""
    if request.param == "simulated":
        database = quiet_database()
        yield lambda: SimulatedFederationStore(QuietSession(database))
        return
    databases = None if request.param == "sqlite" else request.getfixturevalue("postgres_databases")
    url = f"sqlite:///{tmp_path / 'foltr.sqlite'}" if databases is None else databases.migrated()
    async with await open_migrated(url) as db:
        yield lambda: FederationStore(db, NAME)
    if databases is not None:
        databases.release(url)


@pytest.fixture
async def store(connect: Callable[[], FederationStore]) -> FederationStore:
    """A federation with three members and an open round."""
    store = connect()
    await store.create_federation(1, "linear", bytes(4), NOW, **FOUNDED, **LINEAR)
    await store.claim_federation(0.0)
    await store.commit_batch(Batch(membership=[MembershipChange(name, "joined", at(0)) for name in "abc"]))
    await store.open_round(Stored.opening(1))
    return store


async def close_with(store: FederationStore, number: int, *names: str) -> None:
    """A round with an update of each of these, its model, and the next round."""
    watermarks = {row.client_id: row.counted_through for row in await store.load_clients()}
    new = [update(name, number, f"{name}{number}", after=watermarks[name]) for name in names]
    await store.commit_batch(Batch(updates=new))
    await store.begin_aggregation(number)
    model = NewModel(number, bytes([number]) * 4, b"moments")
    await store.complete_round(number, model, at(60), Stored.opening(number + 1, number))


async def seen(store: FederationStore) -> list[Any]:
    """What a federator that starts would read."""
    clients = sorted(await store.load_clients(), key=lambda row: row.client_id)
    return [
        await store.get_federation(),
        clients,
        await store.latest_model(),
        await store.load_open_round(),
        await store.unfinished_erasures(),
        await store.list_jobs(),
    ]


async def test_what_a_federation_was_founded_with_stays(store, connect) -> None:
    """Its seeds, its key and its first model; a claim counts up, and there is none before it."""
    other = connect()
    assert other.epoch == 0
    again = dict.fromkeys(FOUNDED, b"?" * 32)
    await other.create_federation(1, "linear", b"zzzz", at(9), **again, **LINEAR)
    federation, model = await other.get_federation(), await other.latest_model()
    assert (federation.selection_seed, federation.pseudonym_key, model.weights) == (b"s" * 32, b"p" * 32, bytes(4))
    assert (await other.claim_federation(0.0), other.epoch) == (store.epoch + 1, store.epoch + 1)


async def test_what_rounds_are_computed_with_is_noted_once_for_as_long_as_it_holds(store) -> None:
    """From a round on; what no round was computed with is noted no more once there are others."""
    for from_round, training, noted in (
        *((1, "b", {1: "b"}), (1, "a", {1: "a"}), (1, "a", {1: "a"}), (3, "a", {1: "a"}), (4, "b", {1: "a", 4: "b"})),
        *((4, "a", {1: "a"}), (3, "b", {1: "a", 3: "b"}), (7, "a", {1: "a", 3: "b", 7: "a"})),
    ):
        await store.note_training(from_round, training)
        assert await store.load_trainings() == noted


@asynccontextmanager
async def refused(store: FederationStore, error: type[Exception] = ProtocolViolationError) -> AsyncIterator[None]:
    """What is done within raises this, and changes nothing."""
    before = await seen(store)
    with pytest.raises(error):
        yield
    assert await seen(store) == before


WRITES: list[Callable[[FederationStore], Any]] = [
    lambda store: store.commit_batch(Batch(events=[NewEvent(NOW, "client_joined")])),
    lambda store: store.open_round(Stored.opening(1)),
    lambda store: store.note_training(1, "{}"),
    lambda store: store.begin_aggregation(1),
    lambda store: store.complete_round(1, NewModel(1, bytes(4)), NOW),
    lambda store: store.abandon_round(1, "late", NOW),
    lambda store: store.erase_client(Stored.request("a")),
    lambda store: store.drop_untold_names(at(1000)),
    lambda store: store.note_purge(1),
    lambda store: store.create_job(NewJob(1, Strategy.RELEARN, 1, 1, NOW, 0, 1, 0)),
]


async def test_a_replaced_writer_writes_nothing(store, connect) -> None:
    """Once another federator has claimed the federation, no transaction of the first goes through."""
    await store.erase_client(Stored.request("c"))  # or there is no name to drop
    await connect().claim_federation(0.0)
    for write in WRITES:
        async with refused(store, WriterFencedError):
            await write(store)


async def test_a_batch_counts_once(store) -> None:
    """Offered again it changes nothing; an update that is stored is not stored again, in whatever batch."""
    batch = Batch(updates=[update("a"), update("b")], published=(0, at(2)))
    for _ in range(2):
        await store.commit_batch(batch)
    with pytest.raises(ProtocolViolationError):
        await store.commit_batch(Batch(updates=[update("a")]))
    _, contributions = await store.load_open_round()
    assert contributions == [CountingUpdate("a", "u1", 0), CountingUpdate("b", "u1", 0)]
    found = await store.find_updates({("a", "u1"), ("a", "u2"), ("c", "u1")})
    assert found == {("a", "u1"): StoredUpdate(1, counts=True)}
    assert (await store.latest_model()).published_at == at(2)


ORDER = NewOrder(1, "set_deadline", b"signed", bytes(32), OrderOutcome.OBEYED, at(3))


async def test_an_update_that_does_not_fit_takes_its_batch_with_it(store) -> None:
    """A second one of a client, one that begins not at the watermark, a stranger's, one for a closed round."""
    await store.commit_batch(Batch(updates=[update("a")]))
    for wrong in (
        *(update("a", update_id="u2", after=5), update("a", update_id="u2"), update("b", after=5)),
        *(update("stranger"), update("b", number=2), update("a", number=2, after=5)),
    ):
        async with refused(store):
            await store.commit_batch(Batch(updates=[update("c"), wrong], orders=[ORDER]))


async def test_a_member_is_stored_as_it_was_decided(store) -> None:
    """Join, leave, come back, vanish, with its sequence numbers; only a new membership has a new beginning."""

    async def tell(*changes: tuple[str, int], client: str = "d", **more: Any) -> Any:
        await store.commit_batch(
            Batch(membership=[MembershipChange(client, kind, at(n), **more) for kind, n in changes])
        )
        found = [row for row in await store.load_clients() if row.client_id == client]
        return found and (found[0].membership, found[0].online, found[0].joined_at, found[0].left_at)

    assert await tell(("online", 0)) == await tell(("left", 0)) == []
    assert await tell(("joined", 1), ("offline", 2)) == ("joined", False, at(1), None)
    assert await tell(("joined", 3)) == ("joined", True, at(1), None)
    assert await tell(("left", 4), ("offline", 5)) == ("left", False, at(1), at(4))
    assert await tell(("left", 6)) == ("left", False, at(1), at(4))
    assert await tell(("joined", 7)) == ("joined", True, at(7), None)
    assert await tell(("left", 8), ("joined", 9)) == ("joined", True, at(9), None)
    assert await tell(("joined", 1), ("left", 2), ("joined", 3), client="e") == ("joined", True, at(3), None)
    assert {row.client_id: row.last_seen_at for row in await store.load_clients()}["d"] == at(9)
    for change, sequences in (
        (MembershipChange("a", "offline", at(1), sequence=9), (0, 9)),
        (MembershipChange("a", "joined", at(2), sequence=4, online=False, status_sequence=9), (4, 9)),
        (MembershipChange("a", "left", at(3), sequence=5), (5, 9)),
        (MembershipChange("a", "joined", at(4), sequence=6, status_sequence=0), (6, 0)),
    ):
        await store.commit_batch(Batch(membership=[change]))
        (row,) = [row for row in await store.load_clients() if row.client_id == "a"]
        assert (row.membership_sequence, row.status_sequence) == sequences


async def test_a_withdrawn_update_may_come_again(store) -> None:
    """It is as if it had never come, before the batch's own updates are stored."""
    await store.commit_batch(Batch(updates=[update("a"), update("b")]))
    await store.commit_batch(Batch(withdrawn=[(1, "a")]))
    await store.commit_batch(Batch(withdrawn=[(1, "b")], updates=[update("b", update_id="u2"), update("a")]))
    _, contributions = await store.load_open_round()
    assert contributions == [CountingUpdate("a", "u1", 0), CountingUpdate("b", "u2", 0)]


async def watermarks(store: FederationStore) -> dict[str, int]:
    return {row.client_id: row.counted_through for row in await store.load_clients()}


async def test_a_mark_moves_with_what_counts(store) -> None:
    """Up with each update, whatever becomes of its client's membership, and back with one that is withdrawn."""
    await store.commit_batch(Batch(updates=[update("a"), update("b")]))
    assert await watermarks(store) == {"a": 5, "b": 5, "c": 0}
    away = [MembershipChange("a", "left", at(2), sequence=2), MembershipChange("a", "joined", at(3), sequence=3)]
    await store.commit_batch(Batch(withdrawn=[(1, "b")], membership=away))
    assert await watermarks(store) == {"a": 5, "b": 0, "c": 0}
    await close_with(store, 1, "c")
    await close_with(store, 2, "a", "b")
    assert await watermarks(store) == {"a": 10, "b": 5, "c": 5}


async def test_an_abandoned_round_gives_back_what_its_updates_cover(store) -> None:
    """They stay as rows, count no more, and their interactions may be in others; done again it changes nothing."""
    await close_with(store, 1, "a")
    await store.commit_batch(Batch(updates=[update("a", 2, "a2", after=5), update("b", 2, "b2")]))
    for _ in range(2):
        await store.abandon_round(2, "too_few", at(60), Stored.opening(3, 1))
    assert await watermarks(store) == {"a": 5, "b": 0, "c": 0}
    found = await store.find_updates({("a", "a1"), ("a", "a2"), ("b", "b2")})
    taken_back = StoredUpdate(2, counts=False)
    assert found == {("a", "a1"): StoredUpdate(1, counts=True), ("a", "a2"): taken_back, ("b", "b2"): taken_back}
    assert [row.covers_after for row in await store.load_updates(2, "", 9)] == [None, None]
    await close_with(store, 3, "a", "b")
    assert await watermarks(store) == {"a": 10, "b": 5, "c": 0}


async def test_only_the_newest_of_a_client_is_withdrawn(store) -> None:
    """One that is not there, or not the last that counts, is our own mistake: nothing is changed."""
    await store.commit_batch(Batch(updates=[update("a")]))
    async with refused(store):
        await store.commit_batch(Batch(withdrawn=[(1, "a"), (1, "b")]))


async def test_orders_are_stored_in_their_order_and_once(store) -> None:
    """One that is stored stays as it is, a gap is a violation, and what stands is known at the next start."""
    revoked = replace(ORDER, kind="revoke_client", client_id="a")
    others = [replace(ORDER, number=n, kind=kind) for n, kind in ((2, "rotate_key"), (3, "set_deadline"))]
    await store.commit_batch(Batch(orders=[revoked, *others]))
    await store.commit_batch(Batch(orders=[replace(revoked, detail="another one")]))
    assert await store.find_orders([1, 3, 4]) == {1: revoked, 3: others[1]}
    assert await store.standing_orders(0) == [revoked, *others]
    assert await store.standing_orders(1) == others
    assert (await store.get_federation()).last_order == 3
    async with refused(store):
        await store.commit_batch(Batch(orders=[replace(ORDER, number=5)], updates=[update("a")]))


async def test_the_orders_about_a_client_that_is_erased_name_nobody(store) -> None:
    """Their digests and outcomes stay; the order to erase it is stored with the erasure."""
    about = replace(ORDER, kind="quarantine_client", client_id="a")
    await store.commit_batch(Batch(orders=[about, replace(ORDER, number=2)]))
    order = replace(ORDER, number=3, kind="forget_client", payload=None)
    await store.erase_client(replace(Stored.request("a"), order=order))
    assert await store.find_orders([1, 2, 3]) == {
        1: replace(about, payload=None, client_id=None),
        2: replace(ORDER, number=2),
        3: order,
    }


async def test_a_round_goes_through_its_states_once(store) -> None:
    """Each step may be asked for twice; a model closes it, and the next one opens with it."""
    await store.open_round(Stored.opening(1))
    await store.commit_batch(Batch(updates=[update("a")]))
    for _ in range(2):
        await store.begin_aggregation(1)
    with pytest.raises(ProtocolViolationError):
        await store.commit_batch(Batch(updates=[update("b")]))
    remembered = memory_of(dim=1)
    for _ in range(2):
        await store.complete_round(1, NewModel(1, b"abcd", b"m", remembered), at(60), Stored.opening(2, 1))
    model, newest = await store.latest_model(), await store.latest_round()
    assert (model.version, model.round, model.n_values, model.defence_state) == (1, 1, 1, remembered)
    assert (newest.number, newest.state, newest.base_version) == (2, RoundState.COLLECTING, 1)
    with pytest.raises(ProtocolViolationError):
        await store.abandon_round(1, "late", at(60))
    for _ in range(2):
        await store.abandon_round(2, "late", at(70), Stored.opening(3, 1))
    assert (await store.latest_round()).number == 3
    assert [await store.list_stored_rounds(first, 9) for first in (1, 2)] == [[1], []]
    assert [await store.first_round_on(version) for version in (0, 1, 2)] == [1, 2, None]


async def test_only_one_round_is_open_and_it_stays_as_it_was_opened(store) -> None:
    """Another number, or other rules for the same one, are refused."""
    for other in (Stored.opening(2), replace(Stored.opening(1), max_clients=3)):
        with pytest.raises(ProtocolViolationError):
            await store.open_round(other)


async def test_updates_are_read_in_byte_order_a_page_at_a_time(store) -> None:
    """Fewer than were asked for: there are no more."""
    names = ["Z", "a", "b", "\u00e9"]
    await store.commit_batch(Batch(membership=[MembershipChange(name, "joined", at(0)) for name in names]))
    await store.commit_batch(Batch(updates=[update(name) for name in reversed(names)]))
    for at_once in (1, 3, 4, 9):
        assert [row.client_id async for row in stream_updates(store, 1, at_once)] == names
    assert [row.client_id for row in await store.load_updates(1, "a", 1)] == ["b"]
    assert await store.load_updates(2, "", 9) == []


async def test_retention_keeps_what_jobs_replay(store) -> None:
    """Of other rounds the bodies go, a few at a time; what has none cannot be read, and is passed over if one likes."""
    for number in (1, 2, 3, 4):
        await close_with(store, number, "a", "b")
    n_deleted, first = 0, 1
    while first < 4:
        step = await store.delete_old_bodies(4, 2, first_round=first, limit=1)
        n_deleted, first = n_deleted + step.n_deleted, step.next_round
    assert n_deleted == 2
    for number, n_readable in ((1, 2), (2, 0), (3, 2), (4, 2)):
        assert len(await store.load_updates(number, "", 9, readable_only=True)) == n_readable
    with pytest.raises(DataError):
        await store.load_updates(2, "", 9)


async def test_a_stranger_is_named_by_what_was_refused_of_it(store) -> None:
    """It is no client; once it was forgotten nothing names it, as nothing names who never came."""
    await store.commit_batch(Batch(events=[NewEvent(NOW, "message_refused", "", "not_enrolled", "knocker")]))
    assert await store.is_named("knocker")
    assert not await store.is_named("nobody")
    assert {client.client_id for client in await store.load_clients()} == {"a", "b", "c"}
    assert (await store.erase_client(Stored.request("knocker"))).n_events == 1
    assert not await store.is_named("knocker")
    assert await store.find_updates([("knocker", "u1")]) == {}


async def test_who_is_in_a_round_that_is_aggregated_is_not_erased(store) -> None:
    """The model would hold its update, and not be tainted."""
    await store.commit_batch(Batch(updates=[update("a")]))
    await store.begin_aggregation(1)
    async with refused(store):
        await store.erase_client(Stored.request("a"))
