"""Batches from the devices: stored whole, once, and fast."""

from datetime import timedelta

import pytest
from sqlalchemy import text

from foltr.storage.arrivals import _FIND_UPDATES, commit_batch, find_updates
from foltr.storage.queries import get_client, list_clients, list_events
from foltr.storage.records import Batch, MembershipChange, NewEvent, StoredUpdate

from .conftest import at, statements_of


async def test_a_batch_whose_answer_was_lost_is_offered_again(stored) -> None:
    """The second time nothing doubles: not the updates, not the events, not the membership."""
    await stored.open(1)
    batch = Batch(
        membership=[
            MembershipChange("a", "joined", at(1), sdk_version="0.1.0"),
            MembershipChange("b", "joined", at(1)),
            MembershipChange("b", "left", at(2)),
        ],
        updates=[stored.update("a")],
        events=[NewEvent(at(1), "update_rejected", "too late", "late", "b", 1)],
        stop_collecting=1,
        published=(0, at(3)),
    )
    await stored.commit(batch)
    async with stored.unchanged():
        await stored.commit(batch)
    before = await stored.dump()
    assert [len(before[table]) for table in ("clients", "updates", "events")] == [2, 1, 1]
    # The first mark of a model that was published stays.
    await stored.commit(Batch(published=(0, at(9))))
    assert (await stored.latest_model()).published_at == at(3)
    found, _ = await stored.load_open_round()
    assert found.state == "aggregating"


async def test_a_client_was_last_seen_with_its_newest_update(stored) -> None:
    """It may stay connected for months; and its operator, who revokes it, has not seen it."""
    await stored.open(1)
    await stored.join("a")
    await stored.send("a", received_at=at(5))
    await stored.commit(Batch(membership=[MembershipChange("a", "revoked", at(9))]))
    found = await get_client(stored.db, "web", "a")
    assert (found.last_seen_at, found.revoked_at) == (at(5), at(9))
    assert await list_clients(stored.db, "web") == [found]


async def test_hostile_text_becomes_an_event(stored) -> None:
    """What a peer sends is recorded, cut and cleaned; it cannot make the transaction fail."""
    for hostile in ("\0" * 3, "\ud800", "x" * 100_000, "', DROP TABLE events; --", "\U0001f600" * 600):
        refused = NewEvent(at(1), "update_rejected", hostile, "malformed", hostile, 2**70)
        await stored.commit(Batch(events=[refused]))
        *_, found = await list_events(stored.db, "web")
        assert len(found.detail) == min(len(hostile), 500), hostile
        assert len(found.client_id or "") == min(len(hostile), 64), hostile
        assert (found.code, found.round) == ("malformed", None)
        assert "\0" not in found.detail


async def test_refusals_of_one_client_code_round_and_minute_are_one_row(stored) -> None:
    """Whatever the batches: who sends junk all day leaves a row a minute, with how often and the newest detail."""
    start = at(0).replace(second=0)

    def refusal(second: int, detail: str = "junk", code: str = "malformed", client: str = "a", number: int = 1):
        return NewEvent(start + timedelta(seconds=second), "update_rejected", detail, code, client, number, n=2)

    for second in (0, 30, 59, 60):
        await stored.commit(Batch(events=[refusal(second, f"junk at {second}")]))
    await stored.commit(Batch(events=[refusal(0, code="late"), refusal(1, client="b"), refusal(2, number=2)]))
    await stored.commit(Batch(events=[NewEvent(start, "client_online", client_id="a")] * 2))
    found = await list_events(stored.db, "web")
    assert [(row.code, row.client_id, row.round, row.n, row.detail) for row in found] == [
        ("malformed", "a", 1, 6, "junk at 59"),
        ("malformed", "a", 1, 2, "junk at 60"),
        ("late", "a", 1, 2, "junk"),
        ("malformed", "b", 1, 2, "junk"),
        ("malformed", "a", 2, 2, "junk"),
        *[(None, "a", None, 1, "")] * 2,
    ]


async def test_find_updates_tells_which_are_stored_and_where(stored) -> None:
    """Any number of identities may be asked for at once."""
    names = [f"c{n}" for n in range(20)]
    await stored.join(*names)
    await stored.open(1)
    await stored.commit(Batch(updates=[stored.update(name, f"{name}-u") for name in names]))
    asked = {(f"c{n}", f"c{n}-u") for n in range(3000)} | {("c1", "c2-u")}
    assert await stored.find_updates(asked) == {(name, f"{name}-u"): StoredUpdate(1, counts=True) for name in names}
    assert await stored.find_updates([]) == {}
    assert await find_updates(stored.db, "elsewhere", asked) == {}


async def test_a_batch_takes_as_many_statements_however_large_it_is(stored) -> None:
    """None for each update: of many a batch has as few as of two."""
    sizes = (2, 500)
    names = [f"c{n:03d}" for n in range(sum(sizes))]
    await stored.join(*names)
    await stored.open(1)
    counts = []
    for some in (names[: sizes[0]], names[sizes[0] :]):
        batch = Batch(updates=[stored.update(name) for name in some])
        with statements_of(stored.db) as asked:
            await commit_batch(stored.db, "web", stored.epoch, batch)
        counts.append(len(asked))
    assert counts[0] == counts[1] > 3


@pytest.mark.parametrize("migrated_url", ["sqlite"], indirect=True)
async def test_find_updates_looks_and_does_not_scan(stored) -> None:
    """SQLite walks the list and looks each identity up; the other way round takes seconds for a late crowd."""
    statement = text(f"EXPLAIN QUERY PLAN {_FIND_UPDATES['sqlite'].statement}")
    steps = [row[-1] for row in await stored.read(statement.bindparams(name="web", identities="[]"))]
    assert steps[0].startswith("SCAN wanted")
    assert "(federation=? AND client_id=?)" in steps[1]
    assert "(client=? AND update_id=?)" in steps[2]
