"""A standby takes a lease only where it can lead: by tables that it knows, also where the database fails meanwhile."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import delete, text, update
from support.databases import open_migrated
from support.sealed_updates import add_sealed_update
from support.waiting import PATIENCE_S, until

from foltr.core.alive_file import NO_ALIVE_FILE
from foltr.core.errors import SettingsError
from foltr.federator.leading import standby as standby_module
from foltr.federator.leading.standby import _LOOK_EVERY_S, Standby
from foltr.storage.database import Database
from foltr.storage.database_clock import DatabaseNow
from foltr.storage.federations import claim_federation
from foltr.storage.keys import KeyStore
from foltr.storage.lease_tables import leases
from foltr.storage.leases import LEASE_S, find_lease, give_up_lease, list_standbys, renew_lease, take_lease


async def is_listed(database: Database) -> bool:
    return await list_standbys(database, "mail") == ["standby"]


async def waiting(database: Database) -> asyncio.Task[bool]:
    """A standby that has looked and found a leader."""
    task = asyncio.create_task(Standby(database, "mail", "standby", NO_ALIVE_FILE).wait_for_lease(asyncio.Event()))
    await until(partial(is_listed, database))
    assert await renew_lease(database, "mail", "leader")
    assert not task.done()
    return task


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (["UPDATE alembic_version SET version_num = '9999'"], "9999, which this foltr does not know"),
        ([f"DROP TABLE {table}" for table in ("alembic_version", "standbys", "leases")], "schema revision none"),
    ],
    ids=["they were upgraded meanwhile", "they are gone, as in the middle of a restore"],
)
async def test_a_standby_leads_no_tables_of_another_version(database, changes, said) -> None:
    """It ends with what to do, and not with what PostgreSQL or SQLite stumbled over."""
    task = await waiting(database)
    async with database.transaction() as connection:
        for change in changes:
            await connection.execute(text(change))
    if len(changes) == 1:
        await give_up_lease(database, "mail", "leader")
    with pytest.raises(SettingsError, match=said):
        await asyncio.wait_for(task, PATIENCE_S)
    if len(changes) == 1:
        assert (await find_lease(database, "mail")).holder is None


async def test_nobody_waits_where_nobody_has_taken_a_lease(database) -> None:
    """A federation that was claimed without one. A leader's death is over within 5 s: its lease and one look."""
    assert LEASE_S + _LOOK_EVERY_S < 5
    async with database.transaction() as connection:
        await connection.execute(delete(leases))
    await claim_federation(database, "mail", 0.0)
    assert await asyncio.wait_for(
        Standby(database, "mail", "standby", NO_ALIVE_FILE).wait_for_lease(asyncio.Event()), PATIENCE_S
    )


async def test_a_standby_that_lost_the_database_with_the_lease_in_its_hands_leads(database, monkeypatch) -> None:
    """The leader's sessions could not be ended: the next look goes on, and ends none of its own."""
    asked: list[str] = []

    async def fails(_: Database, holder: str) -> int:
        asked.append(holder)
        raise ConnectionResetError

    monkeypatch.setattr(standby_module, "end_sessions", fails)
    monkeypatch.setattr(standby_module, "LEASE_S", 0.0)
    task = await waiting(database)
    async with database.transaction() as connection:
        await connection.execute(update(leases).values(expires_at=DatabaseNow(-1.0)))
    assert await asyncio.wait_for(task, PATIENCE_S)
    assert asked == ["leader"]
    lease = await find_lease(database, "mail")
    assert (lease.holder, lease.is_held) == ("standby", True)


@pytest.fixture
async def sealed(migrated_url: str, tmp_path: Path) -> AsyncIterator[Database]:
    """One with an update that is sealed with a key in the leader's folder; somebody leads."""
    async with await open_migrated(migrated_url, KeyStore(tmp_path / "leaders")) as opened:
        await add_sealed_update(opened, "mail")
        assert await take_lease(opened, "mail", "leader")
        yield opened


async def test_a_standby_whose_keys_are_gone_takes_no_lease(sealed, tmp_path) -> None:
    """A network drive that is no longer there, say: one that has the keys leads. With another folder none waits."""
    sealed.keys = KeyStore(tmp_path / "another")
    with pytest.raises(SettingsError, match=r"keys of another folder.*the leader's data keys with --keys"):
        await asyncio.wait_for(
            Standby(sealed, "mail", "standby", NO_ALIVE_FILE).wait_for_lease(asyncio.Event()), PATIENCE_S
        )
    sealed.keys = KeyStore(tmp_path / "leaders")
    task = await waiting(sealed)
    (tmp_path / "leaders").rename(tmp_path / "away")
    await give_up_lease(sealed, "mail", "leader")
    with pytest.raises(SettingsError, match="keys of another folder"):
        await asyncio.wait_for(task, PATIENCE_S)
    lease = await find_lease(sealed, "mail")
    assert lease.holder is None
    (tmp_path / "away").rename(tmp_path / "leaders")
    assert await asyncio.wait_for(
        Standby(sealed, "mail", "standby", NO_ALIVE_FILE).wait_for_lease(asyncio.Event()), PATIENCE_S
    )
