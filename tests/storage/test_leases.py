"""The lease: one process has it, for a few seconds at a time by the database's clock; who waits is known."""

import asyncio

import pytest
from sqlalchemy import update
from support.waiting import PATIENCE_S

from foltr.storage import engines, lease_tables, leases
from foltr.storage.database import is_transient
from foltr.storage.database_clock import DatabaseNow
from foltr.storage.errors import WriterFencedError
from foltr.storage.federations import claim_federation, require_epoch


@pytest.fixture(autouse=True)
def _no_lease_runs_out_by_itself(monkeypatch) -> None:
    """Nor does anybody give up on a lock, however long a busy machine takes: tests move a lease's end themselves."""
    monkeypatch.setattr(leases, "LEASE_S", PATIENCE_S)
    monkeypatch.setattr(leases, "_LONGEST_WAIT_S", PATIENCE_S)
    monkeypatch.setitem(engines._SQLITE_OPTIONS, "timeout", PATIENCE_S)  # noqa: SLF001


async def shift(stored, seconds: float) -> None:
    await stored.write(update(lease_tables.leases).values(expires_at=DatabaseNow(seconds)))


async def test_of_several_that_try_one_takes_it(stored) -> None:
    """Eight at once, of a lease that nobody ever had, that was given up, and that is over: each time one has it."""
    holder = ""
    for free in ("nobody had it", "given up", "over"):
        if free == "given up":
            await leases.give_up_lease(stored.db, "web", holder)
        elif free == "over":
            await shift(stored, -0.1)
        took = await asyncio.gather(*(leases.take_lease(stored.db, "web", f"host:{i}") for i in range(8)))
        assert took.count(True) == 1
        holder = f"host:{took.index(True)}"
        lease = await leases.find_lease(stored.db, "web")
        assert (lease.holder, lease.is_held) == (holder, True)
        assert 0 < lease.left_s <= PATIENCE_S


async def test_it_is_over_unless_it_is_renewed(stored) -> None:
    """Its holder may renew it, also once it is over; nobody else may, and once another has it, it is lost."""
    assert await leases.find_lease(stored.db, "web") is None
    assert not await leases.renew_lease(stored.db, "web", "a")
    assert await leases.take_lease(stored.db, "web", "a")
    assert not await leases.take_lease(stored.db, "web", "b")
    assert not await leases.renew_lease(stored.db, "web", "b")
    await shift(stored, -0.1)
    assert not (await leases.find_lease(stored.db, "web")).is_held
    assert await leases.renew_lease(stored.db, "web", "a")
    assert not await leases.take_lease(stored.db, "web", "b")
    await shift(stored, -0.1)
    assert await leases.take_lease(stored.db, "web", "b")
    assert not await leases.renew_lease(stored.db, "web", "a")
    await leases.give_up_lease(stored.db, "web", "a")
    assert (await leases.find_lease(stored.db, "web")).holder == "b"
    # One that ends further away than any lasts is over: the clock was set back, and who took it may be gone for long.
    await shift(stored, 3600)
    assert not (await leases.find_lease(stored.db, "web")).is_held
    assert await leases.take_lease(stored.db, "web", "a")


async def test_a_claim_has_the_lease_with_it(stored) -> None:
    """Who takes over has it at once; who waited claims only while the lease is its own, and else nothing is claimed."""
    await claim_federation(stored.db, "web", 0.0, leases.Claimant("a", takes_over=True))
    await claim_federation(stored.db, "web", 0.0, leases.Claimant("b", takes_over=True))
    assert not await leases.renew_lease(stored.db, "web", "a")
    before = await stored.get_federation()
    with pytest.raises(WriterFencedError, match="another federator took over before this one could lead"):
        await claim_federation(stored.db, "web", 0.0, leases.Claimant("a", takes_over=False))
    assert await stored.get_federation() == before
    assert await claim_federation(stored.db, "web", 0.0, leases.Claimant("b", takes_over=False)) > stored.epoch
    assert (await leases.find_lease(stored.db, "web")).holder == "b"


@pytest.mark.parametrize("migrated_url", ["postgresql"], indirect=True)
async def test_it_is_renewed_while_the_federations_row_is_locked(stored) -> None:
    """A round that closes for longer than the lease lasts does not lose it, nor keeps it from being taken."""
    assert await leases.take_lease(stored.db, "web", "a")
    async with stored.db.transaction() as closing:
        await require_epoch(closing, "web", stored.epoch)
        async with asyncio.timeout(PATIENCE_S):
            assert await leases.renew_lease(stored.db, "web", "a")
            await shift(stored, -0.1)
            assert await leases.take_lease(stored.db, "web", "b")


@pytest.mark.parametrize("migrated_url", ["sqlite"], indirect=True)
async def test_it_is_not_taken_after_a_wait_for_the_lock(stored, monkeypatch) -> None:
    """In SQLite the leader's own transaction keeps it from renewing: who waited for the lock lets it renew first."""
    assert await leases.take_lease(stored.db, "web", "a")
    await shift(stored, -0.1)
    monkeypatch.setattr(leases, "_LONGEST_WAIT_S", 0.01)
    async with stored.db.transaction():
        taking = asyncio.create_task(leases.take_lease(stored.db, "web", "b"))
        await asyncio.sleep(0.05)
    assert not await taking
    monkeypatch.setattr(leases, "_LONGEST_WAIT_S", PATIENCE_S)
    assert await leases.take_lease(stored.db, "web", "b")


@pytest.mark.parametrize("migrated_url", ["postgresql"], indirect=True)
async def test_a_leader_that_is_stopped_within_a_transaction_lets_go_of_its_locks(stored) -> None:
    """PostgreSQL ends a federator's transaction that says nothing; the federator may do it again."""
    async with await type(stored.db).connect(
        stored.db.engine.url.render_as_string(hide_password=False).replace("+asyncpg", ""),
        idle_timeout_s=1.0,  # clock: runs out
    ) as leading:
        with pytest.raises(Exception, match=r"idle-in-transaction|closed|in progress") as failed:  # noqa: PT012
            async with leading.transaction() as connection:
                await require_epoch(connection, "web", stored.epoch)
                async with asyncio.timeout(PATIENCE_S):
                    await claim_federation(stored.db, "web", 0.0, leases.Claimant("b", takes_over=True))
                await require_epoch(connection, "web", stored.epoch)
        assert is_transient(failed.value)


async def test_who_waits_is_known_for_a_while(stored) -> None:
    """A standby is listed until it says that it waits no longer, or was not seen for long."""
    for holder in ("b", "a", "b"):
        await leases.note_standby(stored.db, "web", holder)
    assert await leases.list_standbys(stored.db, "web") == ["a", "b"]
    await leases.forget_standby(stored.db, "web", "a")
    assert await leases.list_standbys(stored.db, "web") == ["b"]
    await stored.write(update(lease_tables.standbys).values(seen_at=DatabaseNow(-leases.STANDBY_S - 1)))
    assert await leases.list_standbys(stored.db, "web") == []
    await leases.note_standby(stored.db, "web", "c")
    assert [row[:2] for row in (await stored.dump())["standbys"]] == [("web", "c")]


@pytest.mark.parametrize("migrated_url", ["postgresql"], indirect=True)
async def test_the_sessions_of_a_leader_that_hangs_are_ended(stored) -> None:
    """By its name alone, once its lease is over: what it holds within a transaction is free, and it may try again."""
    url = stored.db.engine.url.render_as_string(hide_password=False).replace("+asyncpg", "")
    async with await type(stored.db).connect(url, process="a") as leading:
        assert await leases.take_lease(stored.db, "web", "a")
        with pytest.raises(Exception, match=r"terminat|closed|in progress") as failed:  # noqa: PT012
            async with leading.transaction() as connection:
                await require_epoch(connection, "web", stored.epoch)
                await leases.end_stale_sessions(stored.db, "web")
                await require_epoch(connection, "web", stored.epoch)  # it leads, and nobody is in its way
                await shift(stored, -0.1)
                await leases.end_stale_sessions(stored.db, "web")
                async with asyncio.timeout(PATIENCE_S):
                    await claim_federation(stored.db, "web", 0.0, leases.Claimant("b", takes_over=True))
                await require_epoch(connection, "web", stored.epoch)
        assert is_transient(failed.value)
        with pytest.raises(WriterFencedError):
            async with leading.transaction() as connection:
                await require_epoch(connection, "web", stored.epoch)
