"""Databases of the API's tests, and a server that nobody is too slow for."""

import pytest
from support.api_server import FEDERATION, asked
from support.databases import PostgresDatabases, migrated_sqlite
from support.history_database import made_history
from support.waiting import PATIENCE_S

from foltr.api.connections import PeerTimeout


@pytest.fixture(autouse=True)
def _nobody_is_too_slow(monkeypatch):
    """A server in the tests' process waits for its peers and its database as long as a test does.

    A machine that stands still for ten seconds makes all of them slow at once. A test of a limit sets it by itself.
    """
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
async def server(migrated_url, tmp_path):
    """One of a federation with a history."""
    await made_history(migrated_url, FEDERATION)
    async with asked(migrated_url, tmp_path) as running:
        yield running
