"""The history, as the command line and the HTTP API show it."""

from datetime import timedelta

import pytest

from foltr.storage.arrivals import commit_batch
from foltr.storage.federations import claim_federation, create_federation
from foltr.storage.queries import (
    count_rejections,
    get_client,
    get_round,
    list_clients,
    list_contributions,
    list_events,
    list_rounds,
)
from foltr.storage.records import Batch, MembershipChange, NewEvent, NewModel


@pytest.fixture
async def history(stored):
    """Round 1 completed with a and b, two updates refused; round 2 abandoned empty; round 3 open with b."""
    start = stored.at(0)
    await stored.join("b", "a")
    await stored.open(1)
    refused = [
        NewEvent(start, "update_rejected", "", code, client, 1) for code, client in (("late", "a"), ("stale", "x"))
    ]
    joined = NewEvent(start, "client_joined", "", None, "a", 1)
    await stored.commit(
        Batch(updates=[stored.update("a"), stored.update("b", n_interactions=7)], events=[*refused, joined])
    )
    await stored.begin_aggregation(1)
    closed_at = start + timedelta(seconds=12.5)
    await stored.complete_round(1, NewModel(1, stored.weights), closed_at, stored.opening(2, 1))
    await stored.abandon_round(2, "too_few", closed_at, stored.opening(3, 1))
    await stored.commit(Batch(updates=[stored.update("b", "u3", 3, base_version=1)]))
    # Another federation with the same names in it, which must never show.
    await create_federation(stored.db, "other", 3, "linear", stored.weights, start)
    epoch = await claim_federation(stored.db, "other", 0.0)
    other = Batch(membership=[MembershipChange("a", "joined", start)], events=refused)
    await commit_batch(stored.db, "other", epoch, other)
    return stored


async def test_round_history_counts_what_each_round_took_and_refused(history) -> None:
    """One row for each round of this federation, oldest first of the newest."""
    rows = await list_rounds(history.db, "web")
    assert [
        (row.round, row.state, row.reason, row.duration_s, row.base_version, row.model_version) for row in rows
    ] == [
        (1, "completed", None, 12.5, 0, 1),
        (2, "abandoned", "too_few", 12.5, 1, None),
        (3, "collecting", None, None, 1, None),
    ]
    assert [(row.n_updates, row.n_interactions, row.n_rejected) for row in rows] == [(2, 12, 2), (0, 0, 0), (1, 5, 0)]
    assert [row.round for row in await list_rounds(history.db, "web", limit=2)] == [2, 3]
    assert await get_round(history.db, "web", 2) == rows[1]
    assert (rows[0].min_clients, rows[0].max_clients, rows[0].min_time_s, rows[0].max_time_s) == (1, 10, 0, 60)
    assert rows[0].opened_at == history.at(0)
    assert await get_round(history.db, "web", 9) is None
    assert await list_rounds(history.db, "other") == []


async def test_client_history_has_a_line_for_each_contribution(history) -> None:
    """Who took part in which round, with what, and which model came of it."""
    rows = await list_contributions(history.db, "web")
    assert [
        (row.round, row.client_id, row.update_id, row.n_interactions, row.round_state, row.model_version)
        for row in rows
    ] == [(1, "a", "u1", 5, "completed", 1), (1, "b", "u1", 7, "completed", 1), (3, "b", "u3", 5, "collecting", None)]
    assert [(row.n_bytes, row.base_version) for row in rows] == [(4, 0), (4, 0), (4, 1)]
    assert await list_contributions(history.db, "web", client_id="a") == rows[:1]
    assert await list_contributions(history.db, "web", round_number=3) == rows[2:]
    assert await list_contributions(history.db, "web", limit=2) == rows[1:]


async def test_clients_are_listed_by_identity(history) -> None:
    """Each federation has its own."""
    assert [row.client_id for row in await list_clients(history.db, "web")] == ["a", "b"]
    assert await list_clients(history.db, "web", limit=1) == [await get_client(history.db, "web", "a")]
    assert [row.client_id for row in await list_clients(history.db, "other")] == ["a"]
    assert await get_client(history.db, "other", "b") is None


async def test_events_match_every_filter_given(history) -> None:
    """Newest last; the limit keeps the newest."""
    assert [row.code for row in await list_events(history.db, "web")] == ["late", "stale", None]
    assert [row.code for row in await list_events(history.db, "web", kind="update_rejected")] == ["late", "stale"]
    assert [row.kind for row in await list_events(history.db, "web", client_id="a", kind="client_joined")] == [
        "client_joined"
    ]
    assert await list_events(history.db, "web", round_number=2) == []
    assert [row.kind for row in await list_events(history.db, "web", limit=1)] == ["client_joined"]
    assert await count_rejections(history.db, "web") == {"late": 1, "stale": 1}
    assert await count_rejections(history.db, "nowhere") == {}


async def test_a_flood_in_one_row_is_counted_in_full(history) -> None:
    """Equal events are one row that says how often; a duplicate is an update that counts, so it is no rejection."""
    start = history.at(0)

    def rejected(code, n):
        return NewEvent(start, "update_rejected", "", code, "a", 3, n)

    other = NewEvent(start, "message_refused", "", "replayed", "a", 3, 50)
    await history.commit(Batch(events=[rejected("stale", 40), rejected("late", 2), rejected("duplicate", 9), other]))
    assert await count_rejections(history.db, "web") == {"late": 3, "stale": 41, "duplicate": 9}
    row = await get_round(history.db, "web", 3)
    assert row.n_rejected == 42
    assert [row.n for row in await list_events(history.db, "web", round_number=3)] == [40, 2, 9, 50]
