"""Other data keys: each update opens with the new one and no more with the former, wherever it was interrupted."""

import asyncio
import os
import shutil
import signal
import threading
from datetime import datetime
from pathlib import Path

import pytest
from cli.commands import foltr_process
from sqlalchemy import select
from support.waiting import PATIENCE_S, until

from foltr.cli.db import rekey as rekey_command
from foltr.core.alive_file import NO_ALIVE_FILE
from foltr.core.errors import DataError
from foltr.federator.leading.standby import Standby
from foltr.storage import keys as keys_module
from foltr.storage import rekeying
from foltr.storage.database import Database
from foltr.storage.errors import WriterFencedError
from foltr.storage.federations import claim_federation
from foltr.storage.keys import KeyStore
from foltr.storage.lease_tables import leases
from foltr.storage.rekeying import Rekeyed, rekey
from foltr.storage.rounds import load_updates

SENT = {1: ["a in 1", "b in 1"], 2: ["a in 2", "b in 2", "c in 2"], 3: ["b in 3"], 4: ["a in 4", "b in 4", "c in 4"]}
SENT[5] = ["c in 5"]


class Died(Exception):  # noqa: N818 (what a test makes happen)
    """What a process does not survive."""


async def opened(db: Database, folder: Path) -> dict[int, list[str]]:
    """What clients sent, by round, as a process reads it that has just begun."""
    before, db.keys = db.keys, KeyStore(folder)
    try:
        rows = {number: await load_updates(db, "web", number, "", 10) for number in SENT}
    finally:
        db.keys = before
    return {number: [row.body.decode() for row in of_round] for number, of_round in rows.items()}


async def rekeyed(stored, interval_s: float = 1.0) -> Rekeyed:
    return await rekey(stored.db, "web", interval_s, lambda *_: None)


async def done_again(stored, folder: Path) -> Rekeyed:
    stored.db.keys = KeyStore(folder)
    return await rekeyed(stored, 2.0)


def leftovers(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob("*") if path.is_file() and path.suffix]


async def test_a_copy_of_the_former_keys_opens_nothing(learned, keys: KeyStore, tmp_path: Path) -> None:
    """All that was sent opens with the new keys; a federator that had the old ones writes nothing more."""
    stolen = tmp_path / "stolen"
    shutil.copytree(keys.folder, stolen)
    told: list[tuple[int, int]] = []
    done = await rekey(learned.db, "web", 1.0, lambda *both: told.append(both))
    assert done == Rekeyed(n_clients=3, n_updates=10, n_without_key=0)
    assert told == [(1, 3), (2, 3), (3, 3)]
    assert await opened(learned.db, keys.folder) == SENT
    for number in SENT:
        learned.db.keys = KeyStore(stolen)
        with pytest.raises(DataError, match="another data key"):
            await learned.load_updates(number, "", 10)
    with pytest.raises(WriterFencedError):
        await learned.send("a", number=5)
    assert leftovers(keys.folder) == []


async def test_after_somebody_was_forgotten_the_others_get_other_keys(learned, keys: KeyStore) -> None:
    """Its erasure has lost its name by then; until then its key stays the very one that its receipt tells of."""
    row = await learned.erase("c")
    assert (await done_again(learned, keys.folder)).n_clients == 2
    assert KeyStore(keys.folder).has("web", "c", row.key_fingerprint)
    await learned.claim_federation(1.0)
    await learned.erase_with_key("c")
    await learned.note_told(row.pseudonym)
    keys = learned.db.keys
    before = {name: keys.key("web", name) for name in ("a", "b")}
    done = await rekeyed(learned)
    assert done == Rekeyed(n_clients=2, n_updates=7, n_without_key=0)
    after = KeyStore(keys.folder)
    assert all(after.key("web", name) != key for name, key in before.items())


@pytest.mark.parametrize("step", ["in_rekey_transaction", "rekeyed", "key_taken_up", "link", "rename", "_overwrite"])
@pytest.mark.parametrize("when", [1, pytest.param(2, marks=pytest.mark.nightly)])
async def test_it_may_die_anywhere(learned, keys, monkeypatch, step: str, when: int) -> None:
    """What is stored opens at once, a federator that starts seals with the right key, and the command ends it later."""
    n_reached = 0

    def dies(*_: object) -> None:
        nonlocal n_reached
        n_reached += 1
        if n_reached == when:
            raise Died

    with monkeypatch.context() as patched:
        if step == "link":
            patched.setattr(os, "link", dies)
        elif step == "rename":
            before = Path.rename
            patched.setattr(Path, "rename", lambda path, to: dies() if path.suffix == ".next" else before(path, to))
        elif step == "_overwrite":
            write = keys_module._overwrite  # noqa: SLF001 (a process may die in it)
            patched.setattr(keys_module, step, lambda path: dies() if path.exists() and path.suffix else write(path))
        else:
            patched.setattr(rekeying, "failpoint", lambda name: dies() if name == step else None)
        with pytest.raises(Died):
            await rekeyed(learned)
    assert await opened(learned.db, keys.folder) == SENT
    # A federator starts in between, and clients go on.
    learned.db.keys = KeyStore(keys.folder)
    await learned.claim_federation(1.0)
    await learned.send("a", number=5, body=b"a in 5")
    sent = SENT | {5: ["a in 5", "c in 5"]}
    assert await opened(learned.db, keys.folder) == sent
    assert (await done_again(learned, keys.folder)).n_clients == 3
    assert await opened(learned.db, keys.folder) == sent
    assert leftovers(keys.folder) == []


@pytest.mark.parametrize("step", ["in_rekey_transaction", "rekeyed", "key_taken_up"])
async def test_whoever_is_forgotten_in_between_leaves_no_key(learned, keys, monkeypatch, step: str) -> None:
    """Its updates are sealed with the one it had, or with the next: by their fingerprint both are destroyed."""

    def dies(name: str) -> None:
        if name == step:
            raise Died

    with monkeypatch.context() as patched:
        patched.setattr(rekeying, "failpoint", dies)
        with pytest.raises(Died):
            await rekeyed(learned)
    learned.db.keys = KeyStore(keys.folder)
    await learned.claim_federation(1.0)
    row = await learned.erase("a")
    assert learned.db.keys.destroy("web", "a", row.key_fingerprint)
    assert KeyStore(keys.folder).find("web", "a") is None
    assert leftovers(keys.folder) == []


async def test_a_key_that_is_missing_is_told_and_nothing_of_that_client_changed(learned, keys: KeyStore) -> None:
    """The others have theirs; with the folder's backup the command can be run again."""
    backup = keys.key("web", "b")
    (lost,) = [path for path in keys.folder.rglob("*") if path.is_file() and path.read_bytes() == backup]
    lost.unlink()
    assert await done_again(learned, keys.folder) == Rekeyed(n_clients=2, n_updates=6, n_without_key=1)
    lost.write_bytes(backup)
    assert await opened(learned.db, keys.folder) == SENT


async def test_a_federator_that_starts_meanwhile_ends_it(learned, keys, monkeypatch) -> None:
    """Nothing is sealed any more with keys that it does not know; all of it opens."""

    async def claimed_by_another_at_once(db: Database, name: str, now: float, _: object) -> int:
        epoch = await claim_federation(db, name, now)
        await claim_federation(db, name, now)
        return epoch

    monkeypatch.setattr(rekeying, "claim_federation", claimed_by_another_at_once)
    with pytest.raises(WriterFencedError):
        await rekeyed(learned)
    assert await opened(learned.db, keys.folder) == SENT


async def test_the_command_killed_and_run_again(learned, keys: KeyStore, migrated_url: str) -> None:
    """SIGKILL between the commit and the change of keys; the second run says what it did."""
    command = ("db", "rekey", "--db", migrated_url, "--keys", keys.folder, "--federation", "web")
    assert foltr_process(*command, FOLTR_TEST_FAILPOINTS="rekeyed=kill@2").returncode == -signal.SIGKILL
    assert await opened(learned.db, keys.folder) == SENT
    done = foltr_process(*command)
    assert done.returncode == 0, done.stderr
    assert "3 clients have a new data key, and 10 stored updates are encrypted with it" in done.stdout
    assert await opened(learned.db, keys.folder) == SENT


async def test_who_stands_by_waits_until_the_command_is_done(learned, keys, migrated_url, monkeypatch) -> None:
    """However long that takes: a standby that took over in the middle would end it, and leave former keys in use."""
    began, goes_on = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    def long_way(name: str) -> None:
        if name == "rekeyed" and not goes_on.is_set():
            loop.call_soon_threadsafe(began.set)
            assert goes_on.wait(PATIENCE_S)

    async def ends_at() -> datetime:
        ((expires_at,),) = await learned.read(select(leases.c.expires_at))
        return expires_at

    monkeypatch.setattr(rekeying, "failpoint", long_way)
    # The command renews it every second, on a busy machine too late for three.
    monkeypatch.setattr("foltr.storage.leases.LEASE_S", PATIENCE_S)
    done = asyncio.create_task(
        asyncio.to_thread(rekey_command, db=migrated_url, keys=str(keys.folder), federation="web")
    )
    await asyncio.wait_for(began.wait(), PATIENCE_S)
    taken = asyncio.create_task(Standby(learned.db, "web", "standby", NO_ALIVE_FILE).wait_for_lease(asyncio.Event()))
    for _ in range(2):
        before = await ends_at()

        async def is_renewed(before: datetime = before) -> bool:
            return await ends_at() > before

        await until(is_renewed)
        assert not taken.done()
    goes_on.set()
    await done
    assert await asyncio.wait_for(taken, PATIENCE_S)
    assert await opened(learned.db, keys.folder) == SENT
