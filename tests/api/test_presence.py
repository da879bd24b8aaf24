"""Presence over time: counted while the server runs, bounded, without names."""

import asyncio

import pytest
from asked import FEDERATION, asked
from databases import migrated_sqlite
from integration.deployment import until
from made_history import made_history

from foltr.api.tokens import Role


@pytest.fixture
async def server(tmp_path, monkeypatch):
    monkeypatch.setattr("foltr.api.presence._EVERY_S", 0.02)
    monkeypatch.setattr("foltr.api.presence._MOST", 5)
    url = migrated_sqlite(tmp_path / "foltr.sqlite")
    await made_history(url, FEDERATION)
    async with asked(url, tmp_path) as running:
        yield running


async def test_devices_are_counted_again_and_again_and_the_oldest_counts_go(server):
    """A server that runs for months keeps a day."""
    viewer = server.token(Role.VIEWER)

    async def counted():
        return (await server.get("/api/v1/presence", viewer)).json()

    async def are_other_ones():
        return (await counted())[0]["at"] > first["at"]

    await until(lambda: _has(counted, 1), 10, "nobody is counted", pause_s=0.01)
    first = (await counted())[0]
    assert (first["n_members"], first["n_online"]) == (3, 3)
    await until(are_other_ones, 10, "the oldest stays", pause_s=0.01)
    assert len(await counted()) == 5


async def test_while_the_database_is_away_nothing_is_counted_and_then_again(server, tmp_path):
    """A gap of the curve, and no end of it."""
    viewer, path, away = server.token(Role.VIEWER), tmp_path / "foltr.sqlite", tmp_path / "away.sqlite"
    kept = server.app.state.presence.counted
    await until(lambda: len(kept) > 0, 10, "nobody is counted", pause_s=0.01)
    path.rename(away)
    kept.clear()
    await asyncio.sleep(0.3)  # one that was on its way may still come
    assert len(kept) <= 1
    kept.clear()
    away.rename(path)
    await until(lambda: len(kept) > 0, 10, "it counts no more", pause_s=0.01)
    assert (await server.get("/api/v1/presence", viewer)).status_code == 200


async def test_a_server_that_ends_gives_the_database_back_before_it_closes_it(tmp_path, monkeypatch):
    """Whoever closes it under a connection in use may wait for ever."""
    reached, done = asyncio.Event(), []

    async def held_count(db, _federation):
        try:
            async with db.reading():
                reached.set()
                await asyncio.sleep(60)
        finally:
            done.append("given back")

    monkeypatch.setattr("foltr.api.presence.count_members", held_count)
    async with asyncio.timeout(20), asked(migrated_sqlite(tmp_path / "foltr.sqlite"), tmp_path) as server:
        close = server.served.db.close

        async def noted_close():
            done.append("closed")
            await close()

        server.served.db.close = noted_close
        await reached.wait()
    assert done == ["given back", "closed"]


async def _has(counted, n):
    return len(await counted()) >= n
