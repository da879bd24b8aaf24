"""The history that the command line and the HTTP API show."""

from datetime import datetime

import pytest

from foltr.storage import queries
from foltr.storage.records import Batch, MembershipChange, NewEvent

from .conftest import Stored, at


@pytest.fixture
async def history(stored):
    """Round 1 completed with a and b, two updates refused; round 2 abandoned empty; round 3 open with b."""
    await stored.join("b", "a")
    await stored.open(1)
    codes = (("late", "a"), ("stale", "x"))
    refused = [NewEvent(at(0), "update_rejected", "", code, client, 1) for code, client in codes]
    sent = [stored.update("a"), stored.update("b", n_interactions=7)]
    await stored.commit(Batch(updates=sent, events=[*refused, NewEvent(at(0), "client_joined", "", None, "a", 1)]))
    await stored.end(1)
    await stored.abandon_round(2, "too_few", at(12.5), stored.opening(3, 1))
    await stored.commit(Batch(updates=[stored.update("b", "u3", 3, base_version=1)]))
    # Another federation with the same names in it, which must never show.
    other = Stored(stored.db, "other")
    await other.create_federation(3, "linear", stored.weights, at(0))
    await other.claim_federation(0.0)
    await other.commit(Batch(membership=[MembershipChange("a", "joined", at(0))], events=refused))
    return stored


async def test_round_history_counts_what_each_round_took_and_refused(history) -> None:
    """One row for each round of this federation, oldest first of the newest."""
    rows = await queries.list_rounds(history.db, "web")
    assert [
        (row.round, row.state, row.reason, row.duration_s, row.base_version, row.model_version) for row in rows
    ] == [
        (1, "completed", None, 60.0, 0, 1),
        (2, "abandoned", "too_few", 12.5, 1, None),
        (3, "collecting", None, None, 1, None),
    ]
    assert [(row.n_updates, row.n_interactions, row.n_rejected) for row in rows] == [(2, 12, 2), (0, 0, 0), (1, 5, 0)]
    assert [row.round for row in await queries.list_rounds(history.db, "web", limit=2)] == [2, 3]
    assert await queries.get_round(history.db, "web", 2) == rows[1]
    assert (rows[0].min_clients, rows[0].max_clients, rows[0].min_time_s, rows[0].max_time_s) == (1, 10, 0, 60)
    assert rows[0].opened_at == at(0)
    assert await queries.get_round(history.db, "web", 9) is None
    assert await queries.list_rounds(history.db, "other") == []


async def test_client_history_has_a_line_for_each_contribution(history) -> None:
    """Who took part in which round, with what, and which model came of it."""
    rows = await queries.list_contributions(history.db, "web")
    assert [
        (row.round, row.client_id, row.update_id, row.n_interactions, row.round_state, row.model_version)
        for row in rows
    ] == [(1, "a", "u1", 5, "completed", 1), (1, "b", "u1", 7, "completed", 1), (3, "b", "u3", 5, "collecting", None)]
    assert [(row.n_bytes, row.base_version) for row in rows] == [(4, 0), (4, 0), (4, 1)]
    assert await queries.list_contributions(history.db, "web", client_id="a") == rows[:1]
    assert await queries.list_contributions(history.db, "web", round_number=3) == rows[2:]
    assert await queries.list_contributions(history.db, "web", limit=2) == rows[1:]


async def test_events_match_every_filter_given(history) -> None:
    """Newest last; the limit keeps the newest."""
    assert [row.code for row in await queries.list_events(history.db, "web")] == ["late", "stale", None]
    assert [row.code for row in await queries.list_events(history.db, "web", kind="update_rejected")] == [
        "late",
        "stale",
    ]
    assert [row.kind for row in await queries.list_events(history.db, "web", client_id="a", kind="client_joined")] == [
        "client_joined"
    ]
    assert await queries.list_events(history.db, "web", round_number=2) == []
    assert [row.kind for row in await queries.list_events(history.db, "web", limit=1)] == ["client_joined"]
    assert await queries.count_rejections(history.db, "web") == {"late": 1, "stale": 1}
    assert await queries.count_rejections(history.db, "nowhere") == {}


async def test_a_flood_in_one_row_is_counted_in_full(history) -> None:
    """Equal events are one row that says how often; a duplicate is an update that counts, so it is no rejection."""

    def rejected(code, n):
        return NewEvent(at(0), "update_rejected", "", code, "a", 3, n)

    other = NewEvent(at(0), "message_refused", "", "replayed", "a", 3, 50)
    await history.commit(Batch(events=[rejected("stale", 40), rejected("late", 2), rejected("duplicate", 9), other]))
    assert await queries.count_rejections(history.db, "web") == {"late": 3, "stale": 41, "duplicate": 9}
    assert await queries.count_rejections(history.db, "web", 3) == {"late": 2, "stale": 40, "duplicate": 9}
    assert (await queries.get_round(history.db, "web", 3)).n_rejected == 42
    assert [row.n for row in await queries.list_events(history.db, "web", round_number=3)] == [40, 2, 9, 50]


async def test_online_members_are_those_connected_now(stored) -> None:
    """Neither who left nor who is away, and nobody of another federation."""
    await stored.join("a", "b", "c", "d")
    gone = [MembershipChange("b", "offline", at(0)), MembershipChange("c", "left", at(0))]
    await stored.commit(Batch(membership=gone))
    assert await queries.online_members(stored.db, "web") == ["a", "d"]
    assert await queries.online_members(stored.db, "other") == []


async def test_the_last_activity_is_the_newest_of_everything(stored) -> None:
    """A round, an update, an event or a client: the last that was stored; times in the future are none, and told."""

    async def activity(before: int = 9) -> tuple[datetime | None, datetime | None]:
        return await queries.last_activity(stored.db, "web", at(before))

    assert await activity() == (None, None)
    await stored.open(1)
    assert await activity() == (at(0), at(0))
    await stored.join("a")
    await stored.send("a")
    assert await activity() == (at(1), at(1))
    await stored.commit(Batch(events=[NewEvent(at(2), "intake_full")]))
    assert await activity() == (at(2), at(2))
    await stored.commit(Batch(membership=[MembershipChange("a", "offline", at(3))]))
    assert await activity() == (at(3), at(3))
    # A federator whose clock was ahead.
    await stored.commit(Batch(events=[NewEvent(at(3600), "intake_full")]))
    assert await activity() == (at(3), at(3600))


async def test_a_trial_write_leaves_nothing_and_the_database_says_how_it_is(stored) -> None:
    """Rolled back, and the next one works as well; its size, and what its kind has to tell."""
    async with stored.unchanged():
        for _ in range(2):
            await queries.try_to_write(stored.db)
    assert await queries.database_size(stored.db) > 10_000
    if stored.db.dialect == "sqlite":
        assert await queries.journal_mode(stored.db) == "wal"
        return
    assert (await queries.server_version(stored.db))[0].isdigit()
