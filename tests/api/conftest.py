"""Databases of the API's tests, and a server that nobody is too slow for."""

import asyncio
import re
from contextlib import asynccontextmanager

import pytest
from cli.commands import environment
from support.api_server import FEDERATION, asked
from support.databases import PostgresDatabases, migrated_sqlite
from support.history_database import made_history
from support.prepared_processes import PreparedProcess
from support.waiting import PATIENCE_S, until

from foltr.api.connections import PeerTimeout

# Port 0 takes a free one: the log says which.
_ADDRESS = re.compile(r"api_started .*url=http://\S+:([1-9]\d*)")


@pytest.fixture(autouse=True)
def _nobody_is_too_slow(monkeypatch):
    """A server in the tests' process waits for its peers and its database as long as a test does."""
    monkeypatch.setattr(PeerTimeout, "seconds", property(lambda _: PATIENCE_S))
    for limit in (
        *("app._READINGS_END_WITHIN_S", "connections.TAKES_WITHIN_S"),
        *("metrics._READ_WITHIN_S", "server_state._READ_WITHIN_S"),
    ):
        monkeypatch.setattr(f"foltr.api.{limit}", PATIENCE_S)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.nightly)])
def migrated_url(request, tmp_path):
    """As for every test; PostgreSQL at night, for the queries have tests of their own on both."""
    if request.param == "sqlite":
        yield migrated_sqlite(tmp_path / "foltr.sqlite")
        return
    databases: PostgresDatabases = request.getfixturevalue("postgres_databases")
    url = databases.migrated()
    yield url
    databases.release(url)


@pytest.fixture
def sqlite_url(tmp_path):
    """The URL of a migrated SQLite file, empty."""
    return migrated_sqlite(tmp_path / "foltr.sqlite")


@pytest.fixture
async def history_url(sqlite_url):
    """The URL of such a file with a federation that has a history."""
    await made_history(sqlite_url, FEDERATION)
    return sqlite_url


@pytest.fixture
async def on_sqlite(history_url, tmp_path):
    """A server of that federation."""
    async with asked(history_url, tmp_path) as running:
        yield running


@asynccontextmanager
async def process(url, folder, *options):
    """``foltr api run`` as an operator starts it; yields its port, what it has said, and itself."""
    log = folder / "log"
    command = ("api", "run", "--db", url, "--federation", FEDERATION, "--port", "0", *options)
    with log.open("wb") as stream:
        running = PreparedProcess(command, environment(), cwd=folder, output=stream.fileno())
    try:
        await until(lambda: _ADDRESS.search(log.read_text()) is not None, "it names no address that it listens on")
        yield int(_ADDRESS.search(log.read_text())[1]), log.read_text, running
    finally:
        running.kill()
        await asyncio.to_thread(running.wait, PATIENCE_S)


@pytest.fixture
async def server(migrated_url, tmp_path):
    """One of a federation with a history."""
    await made_history(migrated_url, FEDERATION)
    async with asked(migrated_url, tmp_path) as running:
        yield running
