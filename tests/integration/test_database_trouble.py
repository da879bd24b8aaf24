"""A database that is slow, gone or full, and a device whose disk is full: late, but nothing lost or counted twice."""

import asyncio
import os
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import pytest
from integration.deployment import POSTGRESQL, Deployment, on
from integration.oracle import contribute
from sqlalchemy import text
from support.completed_process import completed
from support.postgres_server import PostgresServer
from support.prepared_processes import with_defaults
from support.waiting import PATIENCE_S, until

import foltr.storage.database
import foltr.storage.engines
import foltr.storage.sqlite_thread
from foltr.storage.database import Database
from foltr.storage.migrate import upgrade

N_CLIENTS = 4
# A table's last page has room left on a full disk; with so many rounds it is used up.
N_ROUNDS_TO_FILL_UP = 100
PATIENCE = with_defaults({"foltr.federator.plan.FederationPlan": {"database_patience_s": 0.5}})


class SmallDisk:
    """A file system of a few megabytes that can be full."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        with self._ballast.open("ab", buffering=0) as file:
            try:
                for n_bytes in (65_536, 4096, 1):
                    while file.write(bytes(n_bytes)) == n_bytes:
                        pass
            except OSError:
                pass

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)


@pytest.fixture
def small_disk() -> Iterator[SmallDisk]:
    # Not below pytest's folder: only its owner may enter that one, and PostgreSQL is another user.
    folder = Path(tempfile.mkdtemp(prefix="foltr-disk-", dir="/tmp"))
    folder.chmod(0o755)
    mounted = completed(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)])
    try:
        if mounted.returncode:
            pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.strip()}")
        yield SmallDisk(folder)
    finally:
        if not mounted.returncode:
            # Lazily: whoever failed may still have a file open.
            subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()


async def check_all_told(deployment: Deployment, told: list[asyncio.Task[int]], n_rounds: int) -> None:
    """Every device knows of exactly the updates that are stored, one for each round."""
    await deployment.check_told(told)
    assert {task.result() for task in told} == {n_rounds}


@on("sqlite")
async def test_somebody_else_holds_the_lock(deployment, monkeypatch):
    """For longer than one transaction waits: no round ends, no device is told anything, and nothing is lost."""
    monkeypatch.setattr("foltr.storage.engines.BUSY_TIMEOUT_S", 0.3)
    monkeypatch.setitem(foltr.storage.engines._SQLITE_OPTIONS, "timeout", 0.3)  # noqa: SLF001
    log = Mock()
    monkeypatch.setattr("foltr.federator.store.log", log)
    n_rounds = 30  # so that a slow test can still take the lock before the last one
    async with await Database.connect(deployment.database_url) as database, asyncio.TaskGroup() as group:
        running = group.create_task(deployment.service(n_rounds, database).run())
        told = [group.create_task(contribute(credentials)) for credentials in deployment.devices]
        await deployment.rounds_reach(3)
        async with deployment.database.transaction() as connection:
            if deployment.database.dialect == "postgresql":
                await connection.execute(text("SELECT 1 FROM federations FOR UPDATE"))
            n_completed = await deployment.n_completed()
            n_failed = log.warning.call_count
            await until(lambda: log.warning.call_count >= n_failed + 2, "no transaction waits in vain")
            assert await deployment.n_completed() == n_completed
        await deployment.rounds_reach(n_completed + 1)
        await running
    await check_all_told(deployment, told, n_rounds)


@POSTGRESQL
@pytest.mark.parametrize("how", [pytest.param("stop", marks=pytest.mark.nightly), "kill"])
async def test_postgresql_goes_away_and_comes_back(deployment, postgres_server: PostgresServer, how):
    """In mid-round, twice: the federator waits for it, and the devices get their receipts late."""
    n_rounds = 24  # some are left the second time, however slow it is to be stopped
    async with asyncio.TaskGroup() as group:
        deployment.start_federator(n_rounds)
        await deployment.serves()
        told = [group.create_task(contribute(credentials)) for credentials in deployment.devices]
        for n_before in (3, 8):
            await deployment.rounds_reach(n_before)
            try:
                await asyncio.to_thread(getattr(postgres_server, how))
                await asyncio.sleep(0.5)  # clock: away
                assert deployment.is_alive, deployment.said()
            finally:
                await asyncio.to_thread(postgres_server.start)
            await deployment.reopen_database()
            await deployment.rounds_reach(await deployment.n_completed() + 1)
        assert await deployment.exit_code() == 0, deployment.said()
    await check_all_told(deployment, told, n_rounds)


async def run_until_full(deployment: Deployment, disk: SmallDisk) -> str:
    """Fill the disk in mid-run, see the federator end, make room, see it end the run; what it said at first."""
    async with asyncio.TaskGroup() as group:
        deployment.start_federator(N_ROUNDS_TO_FILL_UP, **PATIENCE)
        await deployment.serves()
        told = [group.create_task(contribute(credentials)) for credentials in deployment.devices]
        await deployment.rounds_reach(3)
        disk.fill()
        assert await deployment.exit_code() == 3, deployment.said()
        said = deployment.said()
        n_completed = await deployment.n_completed()
        assert n_completed < N_ROUNDS_TO_FILL_UP
        deployment.start_federator(N_ROUNDS_TO_FILL_UP, **PATIENCE)
        assert await deployment.exit_code() == 3, deployment.said()  # still full
        assert "Traceback" not in deployment.said()
        disk.free()
        deployment.start_federator(N_ROUNDS_TO_FILL_UP, **PATIENCE)
        await deployment.rounds_reach(n_completed + 1)
        assert await deployment.exit_code() == 0, deployment.said()
    await check_all_told(deployment, told, N_ROUNDS_TO_FILL_UP)
    return said


def the_error(said: str) -> str:
    """The line with which the federator ended."""
    (line,) = [line for line in said.splitlines() if line.startswith("error:")]
    assert said.splitlines()[-1] == line
    return line


async def test_sqlite_on_a_full_disk(small_disk, mosquitto_server, tmp_path):
    """The federator ends with one line that says what to do; the file is whole; with room again it resumes."""
    path = small_disk.folder / "foltr.sqlite"
    async with Deployment(tmp_path, mosquitto_server.url, f"sqlite:///{path}", N_CLIENTS) as deployment:
        error = the_error(await run_until_full(deployment, small_disk))
    assert str(path) in error
    assert "disk full at" in error
    assert "Free space there, then start the federator again" in error
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.nightly
async def test_postgresql_on_a_full_disk(small_disk, mosquitto_server, postgres_server: PostgresServer, tmp_path):
    """A tablespace without room: as with SQLite."""
    tablespace = small_disk.folder / "tablespace"
    tablespace.mkdir()
    owner = postgres_server.data.stat()
    os.chown(tablespace, owner.st_uid, owner.st_gid)
    postgres_server.sql(f"CREATE TABLESPACE small LOCATION '{tablespace}'")
    postgres_server.sql("CREATE DATABASE small TABLESPACE small")
    try:
        url = postgres_server.url("small")
        async with await Database.connect(url) as database:
            await upgrade(database)
        async with Deployment(tmp_path, mosquitto_server.url, url, N_CLIENTS) as deployment:
            error = the_error(await run_until_full(deployment, small_disk))
    finally:
        small_disk.free()
        postgres_server.sql("DROP DATABASE small WITH (FORCE)")
        postgres_server.sql("DROP TABLESPACE small")
    assert "No space left on device" in error
    assert "Free space on the server's disk" in error


async def test_sqlite_is_moved_away(mosquitto_server, tmp_path):
    """The federator ends and says so; once the file is back all that was confirmed is in it."""
    path, n_rounds = tmp_path / "foltr.sqlite", 40
    async with Deployment(tmp_path, mosquitto_server.url, f"sqlite:///{path}", N_CLIENTS) as deployment:
        await upgrade(deployment.database)
        deployment.start_federator(n_rounds)
        told = [asyncio.create_task(contribute(credentials)) for credentials in deployment.devices]
        await deployment.rounds_reach(2)
        path.rename(tmp_path / "away.sqlite")
        assert await deployment.exit_code() == 3
        assert "move it back, with its -wal file" in deployment.said()
        (tmp_path / "away.sqlite").rename(path)
        deployment.start_federator(n_rounds)
        assert await deployment.exit_code() == 0
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*told)
        await check_all_told(deployment, told, n_rounds)
