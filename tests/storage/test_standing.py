"""What `foltr rounds why` and `foltr doctor` ask the database."""

from datetime import timedelta

from sqlalchemy import select

from foltr.storage.queries import (
    count_rejections,
    database_size,
    journal_mode,
    last_activity,
    online_members,
    server_version,
    try_to_write,
)
from foltr.storage.records import Batch, MembershipChange, NewEvent
from foltr.storage.tables import federations


async def test_online_members_are_those_connected_now(stored) -> None:
    """Neither who left nor who is away, and nobody of another federation."""
    start = stored.at(0)
    await stored.join("a", "b", "c", "d")
    gone = [MembershipChange("b", "offline", start), MembershipChange("c", "left", start)]
    await stored.commit(Batch(membership=gone))
    assert await online_members(stored.db, "web") == ["a", "d"]
    assert await online_members(stored.db, "other") == []


async def test_the_last_activity_is_the_newest_of_everything(stored) -> None:
    """A round, a client, an event or an update: whatever was stored last."""
    start = stored.at(0)
    later = start + timedelta(seconds=9)
    assert await last_activity(stored.db, "web", later) == (None, None)
    await stored.open(1)
    assert await last_activity(stored.db, "web", later) == (start, start)
    await stored.join("a")
    await stored.commit(Batch(updates=[stored.update("a")]))
    assert await last_activity(stored.db, "web", later) == (start + timedelta(seconds=1), start + timedelta(seconds=1))
    await stored.commit(Batch(events=[NewEvent(start + timedelta(seconds=2), "intake_full")]))
    assert await last_activity(stored.db, "web", later) == (start + timedelta(seconds=2), start + timedelta(seconds=2))
    seen = MembershipChange("a", "offline", start + timedelta(seconds=3))
    await stored.commit(Batch(membership=[seen]))
    assert await last_activity(stored.db, "web", later) == (start + timedelta(seconds=3), start + timedelta(seconds=3))


async def test_times_in_the_future_are_no_activity(stored) -> None:
    """A federator whose clock was ahead has left them; they are found beside the newest time that was."""
    start = stored.at(0)
    hour_ahead = start + timedelta(hours=1)
    await stored.commit(Batch(events=[NewEvent(hour_ahead, "intake_full")]))
    assert await last_activity(stored.db, "web", start) == (None, hour_ahead)
    await stored.open(1)
    assert await last_activity(stored.db, "web", start) == (start, hour_ahead)


async def test_rejections_of_one_round(stored) -> None:
    """Counted as often as they happened."""
    start = stored.at(0)
    refused = [NewEvent(start, "update_rejected", "", "late", "a", number, n=4) for number in (1, 2)]
    await stored.commit(Batch(events=refused))
    assert await count_rejections(stored.db, "web", 2) == {"late": 4}
    assert await count_rejections(stored.db, "web") == {"late": 8}
    assert await count_rejections(stored.db, "web", 3) == {}


async def test_a_trial_write_leaves_nothing(stored) -> None:
    """Rolled back, and the next one works as well."""
    for _ in range(2):
        await try_to_write(stored.db)
    async with stored.db.reading() as connection:
        assert [name for (name,) in await connection.execute(select(federations.c.name))] == ["web"]


async def test_the_database_says_how_it_is(stored) -> None:
    """Its size, and what its kind has to tell."""
    assert await database_size(stored.db) > 10_000
    if stored.db.dialect == "sqlite":
        assert await journal_mode(stored.db) == "wal"
        return
    assert (await server_version(stored.db))[0].isdigit()
