"""Server-sent events: told to all who listen, bounded in number, and to nobody whose token is void."""

import asyncio
import json
from datetime import UTC, datetime, timedelta

import httpx2
import pytest
from support.api_server import FEDERATION, asked
from support.waiting import PATIENCE_S, until

from foltr.api.stream import MOST_LISTENERS, MOST_OF_A_TOKEN
from foltr.api.tokens import Role
from foltr.storage.federations import claim_federation
from foltr.storage.records import RoundOpening
from foltr.storage.rounds import abandon_round


@pytest.fixture
def server(on_sqlite, monkeypatch):
    """One whose events come in a moment."""
    monkeypatch.setattr("foltr.api.stream._EVERY_S", 0.05)
    return on_sqlite


class Listener:
    """One that listens; a line that was read is gone, and so all of them come from one iterator."""

    def __init__(self, server, token):
        self._client = httpx2.AsyncClient(
            base_url=server.url, headers={"Authorization": f"Bearer {token}"}, timeout=PATIENCE_S
        )
        self._stream = self._client.stream("GET", "/api/v1/stream")

    async def __aenter__(self):
        self.response = await self._stream.__aenter__()
        self._lines = self.response.aiter_lines()
        return self

    async def __aexit__(self, *_):
        await self._stream.__aexit__(None, None, None)
        await self._client.aclose()

    async def next(self, wanted=None):
        """The next event, of a kind if that is given: what it says; None where the stream has ended."""
        async for line in self._lines:
            if line.startswith("event: ") and wanted in {None, line.removeprefix("event: ")}:
                return json.loads((await anext(self._lines)).removeprefix("data: "))
        return None


async def test_a_listener_hears_the_status_again_and_again(server):
    """It is what /api/v1/status says, each time as of a later moment."""
    token = server.token(Role.VIEWER)
    async with Listener(server, token) as listener:
        assert listener.response.headers["content-type"].startswith("text/event-stream")
        before, after = await listener.next("status"), await listener.next("status")
    assert before["as_of"] < after["as_of"]
    asked_for = (await server.get("/api/v1/status", token)).json()
    assert set(asked_for) == set(before)
    assert before["waits_for"]
    assert (before["round"]["number"], before["members"]["n_quarantined"], before["n_suspects"]) == (2, 1, 1)


async def test_two_hundred_listen_and_one_more_is_told_to_ask(server, monkeypatch):
    """On real connections; questions of others are answered meanwhile, and those that go make room."""
    # One event for each: nobody reads more here, and who does not read is let go.
    monkeypatch.setattr("foltr.api.stream._EVERY_S", 3600.0)
    tokens = [server.token(Role.VIEWER) for _ in range(MOST_LISTENERS // MOST_OF_A_TOKEN + 1)]
    token = tokens[-1]
    opened = [await listening(server, tokens[i // MOST_OF_A_TOKEN]) for i in range(MOST_LISTENERS + 1)]
    try:
        assert {line for line, *_ in opened[:-1]} == {b"HTTP/1.1 200 OK\r\n"}
        assert opened[-1][0].startswith(b"HTTP/1.1 503 ")
        assert b"/api/v1/status" in await opened[-1][1].readuntil(b"}")
        for _, reader, _ in opened[:-1]:
            await reader.readuntil(b"event: status\ndata: ")
        assert (await server.get("/api/v1/rounds", token)).status_code == 200
    finally:
        for *_, writer in opened:
            writer.close()

    async def all_gone():
        return "foltr_event_listeners 0.0" in (await server.get("/metrics", token)).text

    await until(all_gone, "somebody still listens")
    async with Listener(server, token) as listener:
        assert await listener.next()


async def test_one_token_leaves_streams_to_others(server):
    """The 21st is refused with what to do; another token listens, and who goes makes room for the same token."""
    token, other = server.token(Role.VIEWER), server.token(Role.VIEWER)
    opened = [await listening(server, token) for _ in range(MOST_OF_A_TOKEN)]
    try:
        assert {line for line, *_ in opened} == {b"HTTP/1.1 200 OK\r\n"}
        refused = await server.get("/api/v1/stream", token)
        assert (refused.status_code, refused.headers["Retry-After"]) == (429, "30")
        assert "another token" in refused.json()["detail"]
        async with Listener(server, other) as listener:
            assert await listener.next("status")
        opened[0][2].close()

        async def is_let_in():
            async with Listener(server, token) as listener:
                return listener.response.status_code == 200

        await until(is_let_in, "who has gone is still counted")
        server.served.tokens.revoke(token.split(".")[0])
        await until(lambda: not server.app.state.live.n_of, "a void token still listens")
    finally:
        for *_, writer in opened:
            writer.close()


async def test_streams_end_in_order_with_the_server(history_url, tmp_path, monkeypatch):
    """Their last chunk is sent, and nobody is waited for: the server would wait for as long as this test may take."""
    monkeypatch.setattr("foltr.api.server._GOODBYE_S", 10_000)
    async with asked(history_url, tmp_path) as server:
        _, reader, writer = await listening(server, server.token(Role.VIEWER))
        await reader.readuntil(b"event: status\n")
    assert (await reader.read()).endswith(b"\r\n0\r\n\r\n")
    writer.close()


async def test_what_is_read_when_the_server_ends_is_read_before_the_database_is_closed(
    sqlite_url, tmp_path, monkeypatch
):
    """A connection in use would stay open."""
    is_asked, ends, done = asyncio.Event(), asyncio.Event(), []

    async def slow(*_):
        is_asked.set()
        await ends.wait()
        await asyncio.sleep(0.05)
        done.append("read")
        raise OSError("nobody hears of it")

    monkeypatch.setattr("foltr.api.server_state.read_overview", slow)
    async with asked(sqlite_url, tmp_path) as server:
        served = server.served
        finish, close = served.coalesced.finish, served.db.close

        async def finishing(within_s):
            ends.set()
            await finish(within_s)

        async def closing():
            done.append("closed")
            await close()

        monkeypatch.setattr(served.coalesced, "finish", finishing)
        monkeypatch.setattr(served.db, "close", closing)
        *_, writer = await listening(server, server.token(Role.VIEWER))
        await is_asked.wait()
    writer.close()
    assert done == ["read", "closed"]


async def listening(server, token):
    """Ask for the stream on a socket of its own; the first line of the answer, and the socket."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rpartition(":")[2]))
    writer.write(f"GET /api/v1/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode())
    return await reader.readuntil(b"\r\n"), reader, writer


async def test_rounds_are_told_as_they_end_and_not_again(server):
    """From the one that was told last to the newest: no page need ask for them."""
    token, db = server.token(Role.VIEWER), server.served.db
    async with Listener(server, token) as listener:
        assert (await listener.next("status"))["round"]["number"] == 2
        epoch = await claim_federation(db, FEDERATION, 0.0)
        at = datetime.now(UTC)
        opening = RoundOpening(3, 1, 2, 10, 0.0, 60.0, at, at + timedelta(seconds=60))
        await abandon_round(db, FEDERATION, epoch, 2, "too_few_clients", at, opening)
        told = await listener.next("rounds")
        assert [(row["round"], row["state"]) for row in told] == [(3, "collecting"), (2, "abandoned")]
        assert told == (await server.get("/api/v1/rounds?limit=2", token)).json()["items"]
        assert (await listener.next())["round"]["number"] == 3
        assert [(await listener.next())["as_of"] for _ in range(3)]  # and nothing but the status from now on


async def test_what_happens_after_a_revocation_is_not_told(server, monkeypatch):
    """Not even the next event, which the listener waits for already."""
    token, live = server.token(Role.VIEWER), server.app.state.live
    is_asked, goes_on = asyncio.Event(), asyncio.Event()

    async def newest():
        is_asked.set()
        await goes_on.wait()
        return b'event: status\ndata: "afterwards"\n\n'

    async with Listener(server, token) as listener:
        await listener.next("status")
        monkeypatch.setattr(live, "_newest", newest)
        await is_asked.wait()
        server.served.tokens.revoke(token.split(".")[0])
        goes_on.set()
        while (told := await listener.next()) is not None:
            assert told != "afterwards"


async def test_the_first_who_listens_again_hears_of_now(server, monkeypatch):
    """Not what was read while somebody listened last: that may be hours ago, and the database may be slow to answer."""
    token, live = server.token(Role.VIEWER), server.app.state.live
    async with Listener(server, token) as listener:
        assert await listener.next("status")

    def nobody_reads():
        return not [task for task in asyncio.all_tasks() if task.get_coro().__qualname__ == "LiveStatus._read"]

    await until(nobody_reads, "it still reads")

    async def newest():
        await asyncio.sleep(0.05)
        return b'event: status\ndata: "now"\n\n'

    monkeypatch.setattr(live, "_newest", newest)
    async with Listener(server, token) as listener:
        assert await listener.next() == "now"


async def test_listeners_hear_that_the_database_is_away(server, tmp_path):
    """And hear the status again once it is there, over the same stream."""
    path, away = tmp_path / "foltr.sqlite", tmp_path / "away.sqlite"
    async with Listener(server, server.token(Role.VIEWER)) as listener:
        assert await listener.next("status")
        path.rename(away)
        assert "move it back" in (await listener.next("away"))["detail"]
        away.rename(path)
        assert await listener.next("status")


async def test_a_listener_that_is_slow_gets_the_newest_and_none_in_between(server):
    """What it has not taken is not kept for it: 200 of them cost no more than one."""
    live = server.app.state.live
    live.enter("a")
    try:
        version, first = await live.after(0)
        while (await live.after(version))[0] < 5:
            version += 1
        newest, event = await live.after(1)
        assert newest >= 5
        assert event != first
    finally:
        live.leave("a")
