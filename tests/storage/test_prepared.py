"""A prepared statement does what SQLAlchemy does with it, in the event loop and in SQLite's thread."""

import asyncio
from datetime import datetime
from typing import Any

import pytest
from sqlalchemy import Integer, bindparam, select, update

from foltr.core.protocol.states import Membership
from foltr.storage.database import Database
from foltr.storage.prepared import Prepared
from foltr.storage.schema import OF_FEDERATION
from foltr.storage.tables import clients, rounds

_MEMBERS = select(clients.c.client_id, clients.c.membership, clients.c.online, clients.c.joined_at).where(
    clients.c.federation == OF_FEDERATION, clients.c.membership == Membership.JOINED
)
MEMBERS = Prepared(_MEMBERS.order_by(clients.c.client_id))
SEEN = Prepared(update(clients).where(clients.c.federation == OF_FEDERATION))


async def read_members(db: Database, name: str) -> list[dict[str, Any]]:
    async with db.reading() as connection:
        return await MEMBERS.fetch_all(connection, {"of_federation": name})


async def note_seen(db: Database, name: str, **values: Any) -> int:
    async with db.transaction() as connection:
        return await SEEN.execute(connection, {"of_federation": name, **values})


async def test_rows_are_as_sqlalchemy_reads_them(stored) -> None:
    """Members of enums, truth values and moments, by the names of the columns."""
    await stored.join("a", "b")
    async with stored.db.reading() as connection:
        statement = _MEMBERS.order_by(clients.c.client_id)
        wanted = [dict(row) for row in (await connection.execute(statement, {"of_federation": "web"})).mappings()]
    assert [row["client_id"] for row in wanted] == ["a", "b"]
    assert await read_members(stored.db, "web") == await stored.db.run(read_members, "web") == wanted
    assert wanted[0]["membership"] is Membership.JOINED
    assert await read_members(stored.db, "elsewhere") == []


async def test_values_are_stored_as_sqlalchemy_stores_them(stored) -> None:
    """The same statement is compiled once for each set of columns that is given."""
    await stored.join("a", "b")
    at = stored.at(60)
    assert await stored.db.run(note_seen, "web", last_seen_at=at) == 2
    assert await note_seen(stored.db, "web", joined_at=at, online=False) == 2
    assert await note_seen(stored.db, "elsewhere", last_seen_at=at) == 0
    found = select(clients.c.last_seen_at, clients.c.joined_at, clients.c.online)
    assert await stored.read(found) == [(at, at, False)] * 2


async def test_a_value_that_is_missing_or_has_no_time_zone_is_refused(stored) -> None:
    """Before the driver sees it."""
    await stored.join("a")
    async with stored.db.transaction() as connection:
        with pytest.raises(KeyError, match="of_federation"):
            await SEEN.execute(connection, {"online": True})
        with pytest.raises(ValueError, match="has no time zone"):
            await SEEN.execute(connection, {"of_federation": "web", "last_seen_at": datetime(2026, 1, 1)})  # noqa: DTZ001
        # A statement with a list is another one for each length.
        numbers = bindparam("numbers", type_=Integer, expanding=True)
        listed = Prepared(update(rounds).where(rounds.c.number.in_(numbers)))
        with pytest.raises(ValueError, match="a list of any length"):
            await listed.execute(connection, {"numbers": [1], "part": 0})


@pytest.mark.parametrize("migrated_url", ["sqlite"], indirect=True)
async def test_what_waits_for_something_else_is_refused_in_the_thread(stored) -> None:
    """No event loop runs there, so it would never go on. What it has written is rolled back."""

    async def wait(db: Database) -> None:
        async with db.transaction() as connection:
            await SEEN.execute(connection, {"of_federation": "web", "online": False})
            await asyncio.sleep(0)

    await stored.join("a")
    with pytest.raises(RuntimeError, match="waits for something else"):
        await stored.db.run(wait)
    assert [row["online"] for row in await stored.db.run(read_members, "web")] == [True]
