"""A leader keeps its lease, and says who leads when it has lost it."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from sqlalchemy import delete, update
from support.databases import migrated_sqlite, open_migrated
from support.waiting import PATIENCE_S, until

from foltr.core.errors import SettingsError, UnavailableError
from foltr.core.protocol.verdicts import Finding, Reason
from foltr.federator.leading import keeper as keeper_module
from foltr.federator.leading.keeper import LeaseKeeper, lost_to
from foltr.storage.database import Database
from foltr.storage.database_clock import DatabaseNow
from foltr.storage.errors import WriterFencedError
from foltr.storage.findings import load_findings, store_findings
from foltr.storage.lease_tables import leases
from foltr.storage.leases import Lease, find_lease, list_standbys, take_lease
from foltr.storage.tables import federations

AWAY = UnavailableError("the database is away")


@pytest.fixture
def leads() -> str:
    return "first"


@asynccontextmanager
async def leading(database: Database) -> AsyncIterator[LeaseKeeper]:
    async with LeaseKeeper(database, "mail", "first", lambda: True) as keeper, asyncio.timeout(PATIENCE_S):
        await keeper.confirm()
        keeper.note_claimed()
        yield keeper


async def test_what_its_process_finds_is_stored_beside_the_lease(database, monkeypatch) -> None:
    """Once for each change, and with how far its clock is ahead of the database's."""
    ahead = SimpleNamespace(monotonic=time.monotonic, time=lambda: time.time() + 3600.0)
    monkeypatch.setattr(keeper_module, "time", ahead)
    found = [[Finding(Reason.DISK_LOW, "3 % left.", "/data", datetime(2026, 1, 2, tzinfo=UTC))]]
    keeper = LeaseKeeper(database, "mail", "first", lambda: True, lambda: found[0])
    async with keeper, asyncio.timeout(PATIENCE_S):
        for _ in range(2):
            await until(lambda: is_stored(database, found[0]))
            found[0] = []
        assert keeper.ahead_s == pytest.approx(3600.0, abs=PATIENCE_S)


async def test_a_check_that_fails_is_a_finding_and_tried_again(database, monkeypatch) -> None:
    """One fault is no end of all checks: what it finds later is stored."""
    monkeypatch.setattr(keeper_module, "_SAYS_EVERY_S", 0.01)
    low = Finding(Reason.DISK_LOW, "3 % left.", "/data", datetime(2026, 1, 2, tzinfo=UTC))
    answers: list = [OSError("no such device"), [low]]

    def check() -> list[Finding]:
        if isinstance(answers[0], Exception):
            raise answers[0]
        return answers[0]

    async with LeaseKeeper(database, "mail", "first", lambda: True, check), asyncio.timeout(PATIENCE_S):

        async def is_said() -> bool:
            return [each.reason for each in await load_findings(database, "mail")] == [Reason.SELF_CHECK_FAILED]

        await until(is_said)
        (said,) = await load_findings(database, "mail")
        assert (said.culprit, said.detail) == ("first", "OSError; its log says where.")
        answers.pop(0)
        await until(lambda: is_stored(database, [low]))


async def test_a_process_that_waits_for_its_broker_tells_why(database) -> None:
    """Once nobody leads, and by its name; no longer once it leads, or has ended."""
    found = [Finding(Reason.BROKER_UNREACHABLE, "login_refused", "mqtt://north:1883", datetime(2026, 1, 2, tzinfo=UTC))]
    async with database.transaction() as connection:
        await connection.execute(update(leases).values(expires_at=DatabaseNow(-1.0)))
    for leads_then in (False, True):
        async with LeaseKeeper(database, "mail", "second", lambda: True, lambda: found):
            await until(lambda: is_stored(database, found))
            await until(lambda: are_waiting(database, ["second"]))
            if leads_then:
                assert await take_lease(database, "mail", "second")
                await until(lambda: are_waiting(database, []))
        assert await are_waiting(database, [])


async def test_a_leader_that_was_paused_stores_what_it_finds_again(database, monkeypatch) -> None:
    """Meanwhile one that waits to lead may have stored what it finds."""
    monkeypatch.setattr(keeper_module, "LEASE_S", 0.0)  # as if each renewal came too late
    other = Finding(Reason.BROKER_UNREACHABLE, "login_refused", "mqtt://north:1883", datetime(2026, 1, 2, tzinfo=UTC))
    async with leading(database):
        while not await is_stored(database, [other]):  # unless the lease was renewed just then
            async with database.transaction() as connection:
                await connection.execute(update(leases).values(expires_at=DatabaseNow(-1.0)))
            await store_findings(database, "mail", "second", [other])
        await until(lambda: is_stored(database, []))


async def are_waiting(database: Database, holders: list[str]) -> bool:
    return await list_standbys(database, "mail") == holders


async def is_stored(database: Database, findings: list[Finding]) -> bool:
    return await load_findings(database, "mail") == findings


async def taken_by(database: Database, holder: str, expired: datetime | DatabaseNow) -> None:
    """Let the lease be over, and another take it: what happens to a leader that is paused."""
    while True:
        async with database.transaction() as connection:
            await connection.execute(update(leases).values(expires_at=expired))
        if await take_lease(database, "mail", holder):
            return


@pytest.mark.parametrize(
    ("expires_in_s", "error"),
    [
        pytest.param(-1.0, AWAY, id="it is over"),
        pytest.param(-1.0, WriterFencedError("an epoch"), id="and it was fenced"),
        pytest.param(3600.0, ConnectionResetError("its session ended"), id="the clock was set back"),
    ],
)
async def test_one_that_lost_the_lease_says_who_leads(database, error, expires_in_s) -> None:
    """By name and since when, whatever stumbled over it first; the line of the log says it, too."""
    async with leading(database) as keeper:
        await taken_by(database, "second", DatabaseNow(expires_in_s))
        told = await keeper.cause_of(error)
        lease = await find_lease(database, "mail")
        assert isinstance(told, WriterFencedError)
        assert str(told) == lost_to(lease, "mail", "first")
        assert f"another federator leads, second, since {lease.taken_at:%Y-%m-%d %H:%M:%S} UTC" in str(told)
        assert "Start it again with --standby" in str(told)
        assert not keeper.leads
        with pytest.raises(WriterFencedError, match="second"):
            await keeper.wait_lost()


async def test_who_leads_is_told_while_the_successor_writes(tmp_path) -> None:
    """In SQLite a renewal waits for its lock, and would fail; to look does not."""
    row = {"name": "mail", "writer_epoch": 0, "ranker": "none", "n_features": 1, "created_at": datetime.now(UTC)}
    async with await open_migrated(migrated_sqlite(tmp_path / "foltr.sqlite")) as database:
        async with database.transaction() as connection:
            await connection.execute(federations.insert().values(row))
        assert await take_lease(database, "mail", "first")
        async with leading(database) as keeper:
            async with database.transaction() as connection:
                await connection.execute(update(leases).values(holder="second", taken_at=DatabaseNow()))
            async with database.transaction():
                assert "another federator leads, second, since" in str(await keeper.cause_of(AWAY))


ENDED = {"holder": None, "expires_at": None, "taken_at": DatabaseNow(), "taken_from": "first"}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (update(leases).values(ENDED), "another federator led from 20"),
        (delete(leases), "another federator leads. This one"),
    ],
    ids=["one that led has ended", "the lease is gone, by a restore"],
)
async def test_a_lease_that_nobody_has_is_lost(database, change, said) -> None:
    """The message names no leader, and the next federator to start gets the lease."""
    async with leading(database) as keeper:
        async with database.transaction() as connection:  # at once: a renewal in between would see who leads
            await connection.execute(change)
        assert said in str(await keeper.cause_of(AWAY))


async def test_one_that_has_the_lease_says_what_it_was(database) -> None:
    """A broker or a database that is away is not another federator."""
    async with leading(database) as keeper:
        for error in (AWAY, WriterFencedError("claimed without a lease"), SettingsError("wrong")):
            assert await keeper.cause_of(error) is error
            assert keeper.leads


async def test_while_the_database_is_away_nobody_is_blamed(database, monkeypatch) -> None:
    """What could not be asked is not said, and nobody waits for it."""
    monkeypatch.setattr(keeper_module, "_EXPLAINED_WITHIN_S", 0.1)

    async def away(*_: object) -> Lease:
        await asyncio.Event().wait()
        raise AssertionError

    async with leading(database) as keeper:
        monkeypatch.setattr(keeper_module, "find_lease", away)
        assert await keeper.cause_of(AWAY) is AWAY


def test_nobody_is_named_who_is_not_known() -> None:
    """Each of the three ways to lose a lease ends with the same next step."""
    at = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    told = [lost_to(lease, "mail", "a:1:f") for lease in (Lease("b:2:e", at, 1.0, at), Lease(None, at, 0.0, at), None)]
    assert "leads, b:2:e, since 2026-01-02 03:04:05 UTC. This one, a:1:f," in told[0]
    assert "led from 2026-01-02 03:04:05 UTC, and has given the lease up since" in told[1]
    assert "None" not in "".join(told)
    assert all(each.endswith("Start it again with --standby: it waits until it may lead") for each in told)
