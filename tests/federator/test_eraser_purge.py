"""When a federator purges the database: once after something was deleted, whatever happens in between."""

import asyncio
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from support.deaths import dying_at
from support.unlearning_steps import forget

from foltr.core.errors import UnavailableError
from foltr.core.failpoints import Failpoint
from foltr.federator.round import RoundPolicy
from foltr.storage.database import Database
from foltr.storage.erasure.erasures import deletions_to_purge
from foltr.storage.federations import get_federation

NAMES = ("alice", "bob", "carol")
POLICY = RoundPolicy(3, 3, 0.0, 60.0)


class Purges:
    """Counts the purges of a database, each of them real, and may hold one up when it has written the file."""

    def __init__(self) -> None:
        self.n = 0
        self.begun = asyncio.Event()
        self.goes_on = asyncio.Event()
        self.goes_on.set()

    def of(self, purge):
        async def counted(db: Database, *tables: str) -> bool:
            self.n += 1
            self.begun.set()
            done = await purge(db, *tables)
            await self.goes_on.wait()
            return done

        return counted


@pytest.fixture
def purges(monkeypatch) -> Purges:
    purges = Purges()
    monkeypatch.setattr(Database, "purge", purges.of(Database.purge))
    return purges


@pytest.fixture
async def joined(serve, unsigned):
    """An actor, three devices that joined, and nothing deleted yet."""
    served = await serve(POLICY)
    devices = [unsigned(name) for name in NAMES]
    await served.join(devices)
    return served, devices


async def purged(served) -> None:
    """A turn in which whatever is due may begin, and the end of the purge that did."""
    served.clock.at += 10.0
    await served.turn()
    await served.actor.eraser.wait_purged()


async def counts(served) -> tuple[int, int]:
    federation = await get_federation(served.db, "mail")
    return federation.n_deletions, federation.n_purged


def is_in_files(sought: bytes, folder: Path) -> bool:
    return any(sought in file.read_bytes() for file in folder.glob("foltr.sqlite*"))


async def test_a_start_after_nothing_was_deleted_purges_nothing(serve, joined, purges):
    """Also where clients were forgotten once: what was deleted then was purged then."""
    served, devices = joined
    again = await serve(POLICY)
    await purged(again)
    assert purges.n == 0
    await forget(again, devices[0])
    await purged(again)
    await purged(again)
    n_before = purges.n
    assert n_before >= 1
    assert await deletions_to_purge(served.db, "mail") is None
    for _ in range(2):
        started = await serve(POLICY)
        await purged(started)
        await started.actor.close()
    assert purges.n == n_before


@pytest.mark.parametrize("at", [Failpoint.ERASED, Failpoint.KEY_DESTROYED])
async def test_a_kill_before_the_purge_leaves_it_to_the_next_start(serve, joined, purges, tmp_path, at):
    """Which purges once, and then no byte of the name is left; the start after that purges nothing."""
    served, devices = joined
    with dying_at(at, "federator.eraser"):
        await forget(served, devices[0])
    assert purges.n == 0
    again = await serve(POLICY)
    await purged(again)
    await purged(again)
    assert await deletions_to_purge(again.db, "mail") is None
    assert purges.n == 1
    assert not is_in_files(b"alice", tmp_path)
    await purged(await serve(POLICY))
    assert purges.n == 1


@pytest.mark.parametrize("dies", [False, True])
async def test_a_deletion_during_a_purge_is_purged_by_the_next(serve, joined, purges, dies):
    """The first purge counts for what was deleted before it began, also where the federator dies before the next."""
    served, devices = joined
    purges.goes_on.clear()
    await forget(served, devices[0])
    await purges.begun.wait()
    n_before, _ = await counts(served)
    await forget(served, devices[1])
    purges.goes_on.set()
    await served.actor.eraser.wait_purged()
    n_deletions, n_purged = await counts(served)
    assert n_purged <= n_before < n_deletions
    served = await serve(POLICY) if dies else served
    await purged(served)
    assert purges.n == 2
    assert await deletions_to_purge(served.db, "mail") is None


async def test_nobody_looks_all_the_time_while_a_purge_runs(joined, purges):
    """A federator that waits for messages is woken now and then, also where more was deleted since."""
    served, devices = joined
    purges.goes_on.clear()
    await forget(served, devices[0])
    await purges.begun.wait()
    served.clock.at += 30.0
    await forget(served, devices[1])
    assert served.actor.eraser.wake_at() == served.clock.at + 10.0
    purges.goes_on.set()
    await served.actor.eraser.wait_purged()
    assert served.actor.eraser.wake_at() <= served.clock.at


async def test_stopping_does_not_wait_for_ever(serve, joined, purges, monkeypatch):
    """After a while it says what is left and what to do, and the next start does it."""
    served, devices = joined
    purges.goes_on.clear()
    await forget(served, devices[0])
    monkeypatch.setattr("foltr.federator.eraser._LAST_PURGE_S", 0.5)
    with capture_logs() as lines:
        await served.actor.close()
    (line,) = lines
    assert (line["event"], line["log_level"]) == ("purge_unfinished", "warning")
    assert "no purge within 0.5 s. Start the federator again" in line["detail"]
    assert await deletions_to_purge(served.db, "mail") is not None
    purges.goes_on.set()
    again = await serve(POLICY)
    await purged(again)
    assert await deletions_to_purge(again.db, "mail") is None


@pytest.mark.parametrize("error", [UnavailableError("no room on the disk"), RuntimeError("whatever it is")])
async def test_a_purge_that_fails_is_told_and_done_again(joined, monkeypatch, error):
    """Beside the federator and at its end, with the cause; it ends nothing."""
    served, devices = joined

    async def fails(_db: Database, *_tables: str) -> bool:
        raise error

    with monkeypatch.context() as patch, capture_logs() as lines:
        patch.setattr(Database, "purge", fails)
        await forget(served, devices[0])
        await purged(served)
        await served.actor.close()
    told = [(line["event"], line.get("cause")) for line in lines if line["log_level"] == "warning"]
    assert ("purge_delayed", str(error)) in told
    assert told[-2:] == [("purge_delayed", str(error)), ("purge_unfinished", None)]
    await served.actor.eraser.close()
    assert await deletions_to_purge(served.db, "mail") is None
