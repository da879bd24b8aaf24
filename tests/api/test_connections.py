"""Connections: silent, slow and many ones take the server from nobody else."""

import asyncio
import contextlib
import socket

import httpx2
import pytest
from support.api_server import asked
from support.waiting import PATIENCE_S, until

from foltr.api.connections import ConnectionLimiter, PeerTimeout
from foltr.api.limits import RateLimiter
from foltr.api.server import listen, read_proxies
from foltr.api.tokens import Role
from foltr.core.errors import SettingsError

from .conftest import process

N_SILENT = 1000
# What a peer sends that then says nothing more: nothing at all, half a head, half a body, and a request with no end.
HALVES = [
    b"",
    b"GET /health HTTP/1.1\r\nHost: x\r\n",
    b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\ntoken=",
    b"POST /health HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
]


async def ended(reader):
    """Wait until the server has closed a connection."""
    with contextlib.suppress(ConnectionError):
        while await reader.read(65_536):
            pass


async def test_a_thousand_silent_connections_leave_it_answering(history_url, tmp_path):
    """Each new one is answered meanwhile, and SIGTERM ends the process in order, and all of them with it."""
    async with process(history_url, tmp_path) as (port, said, running):
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(N_SILENT)]
        try:
            for half, (_, writer) in zip(HALVES * N_SILENT, opened, strict=False):
                writer.write(half)
            for _ in range(20):
                async with httpx2.AsyncClient(timeout=PATIENCE_S) as client:
                    assert (await client.get(f"http://127.0.0.1:{port}/health")).status_code == 200
                    assert (await client.get(f"http://127.0.0.1:{port}/ready")).status_code == 200
            running.terminate()
            assert await asyncio.to_thread(running.wait, PATIENCE_S) == 0
            await asyncio.gather(*(ended(reader) for reader, _ in opened))
        finally:
            for _, writer in opened:
                writer.close()
    assert "connection_limit_reached" in said()
    assert "Traceback" not in said()


@pytest.fixture
async def few(history_url, tmp_path):
    """A server that three connections of one address may have, the addresses being no proxies."""
    async with asked(history_url, tmp_path, proxies="", connections_per_address=3) as running:
        yield running


@pytest.fixture
def _waits_are_short(monkeypatch):
    """As if they were of a second."""
    monkeypatch.setattr(PeerTimeout, "seconds", property(lambda _: 1.0))
    monkeypatch.setattr("foltr.api.connections.TAKES_WITHIN_S", 0.3)


def port_of(server):
    return int(server.url.rpartition(":")[2])


@pytest.mark.usefixtures("_waits_are_short")
async def test_a_byte_now_and_then_keeps_no_connection(on_sqlite):
    """Whether of a head, of a body, of one that nobody reads any more, or of the next request."""

    async def drip(half):
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(on_sqlite))
        writer.write(half)
        reading = asyncio.create_task(ended(reader))
        while not reading.done():
            # Of a head a longer line, of a body a longer one, of a chunk's size nothing but what is before it.
            writer.write(b"0" if b"chunked" in half else b"x")
            await asyncio.sleep(0.02)
        writer.close()

    await asyncio.gather(*map(drip, [*HALVES, b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"]))


@pytest.mark.usefixtures("_waits_are_short")
async def test_a_peer_that_does_not_read_its_answers_is_let_go(on_sqlite):
    """Neither where a long answer waits, nor where many short ones do."""
    for path in (b"/static/uplot/uPlot.iife.min.js", b"/health"):
        writer = await unread(on_sqlite, path)
        try:
            await until(lambda: not on_sqlite.connections, f"it waits for who reads nothing of {path!r}")
        finally:
            writer.close()


async def unread(server, path):
    """Ask on a connection with small buffers again and again, and read nothing."""
    peer = socket.socket()
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    peer.setblocking(False)
    await asyncio.get_running_loop().sock_connect(peer, ("127.0.0.1", port_of(server)))
    _, writer = await asyncio.open_connection(sock=peer, limit=1)
    writer.transport.pause_reading()
    writer.write(b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n" % path * 2000)
    await until(lambda: bool(server.connections), "it is not connected")
    return writer


async def test_one_address_makes_room_for_itself_only(few):
    """The fourth connection of an address ends the one that has waited longest, and no other address's."""
    other = await asyncio.open_connection("127.0.0.1", port_of(few), local_addr=("127.0.0.2", 0))
    opened = [await asyncio.open_connection("127.0.0.1", port_of(few)) for _ in range(3)]
    opened[0][1].write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    assert await opened[0][0].readuntil(b"true")  # so the second has waited longest
    assert (await few.get("/health")).status_code == 200
    await ended(opened[1][0])
    for reader, writer in (opened[0], other):
        writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (await reader.readuntil(b"\r\n")).strip() in {b"HTTP/1.1 200 OK", b"}HTTP/1.1 200 OK"}
    for _, writer in (*opened, other):
        writer.close()


async def test_an_address_whose_connections_are_all_at_work_is_refused(few):
    """In words, with when to try again; another address is let in."""
    token = few.token(Role.VIEWER)
    request = f"GET /api/v1/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
    opened = [await asyncio.open_connection("127.0.0.1", port_of(few)) for _ in range(3)]
    for reader, writer in opened:
        writer.write(request)
        assert await reader.readuntil(b"event: status\n")
    refused = await few.get("/health")
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "5")
    assert "too many connections" in refused.json()["detail"]
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(few), local_addr=("127.0.0.2", 0))
    writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
    assert await reader.readuntil(b"\r\n") == b"HTTP/1.1 200 OK\r\n"
    for _, each in (*opened, (reader, writer)):
        each.close()


def test_a_proxy_has_connections_for_everybody():
    """The limit of an address is not its; the limit of all is, and who has waited longest makes room."""
    gate = ConnectionLimiter(2, lambda address: address == "10.0.0.1", most=4)
    connections = [Connection() for _ in range(6)]
    for connection in connections[:4]:
        assert gate.enter(connection, "10.0.0.1")
        gate.note_waiting(connection)
    gate.note_working(connections[0])
    gate.note_working(connections[2])
    gate.note_waiting(connections[0])
    assert gate.enter(connections[4], "10.0.0.2")
    assert [connection.is_ended for connection in connections] == [False, True, False, False, False, False]
    gate.leave(connections[1])  # as it is lost: counted once
    for connection in (connections[0], connections[3]):
        gate.note_working(connection)
    assert not gate.enter(connections[5], "10.0.0.2")
    gate.leave(connections[4])
    assert gate.enter(connections[5], "10.0.0.2")
    gate.leave(connections[5])
    gate.close()
    assert not gate.enter(connections[5], "10.0.0.2")


class Connection:
    """One that is asked to end."""

    is_ended = False

    def abort(self):
        self.is_ended = True


@pytest.mark.parametrize("text", ["proxy", "10.0.0.1/8", "127.0.0.1;::1"])
def test_what_is_no_address_of_a_proxy_is_named(text):
    """At the start, and not when somebody is not believed."""
    with pytest.raises(SettingsError, match="api_proxies"):
        read_proxies(text)


async def test_only_a_proxy_says_where_a_request_comes_from(few, on_sqlite):
    """Else one address would be as many as it likes."""
    few.served.by_address = on_sqlite.served.by_address = RateLimiter(0.001, 1)
    for asked_of, statuses in ((few, [401, 429]), (on_sqlite, [401, 401])):
        told = [
            (await asked_of.get("/api/v1/rounds", headers={"X-Forwarded-For": f"192.0.2.{i}"})).status_code
            for i in range(2)
        ]
        assert told == statuses


async def test_it_serves_ipv6(history_url, tmp_path):
    """Also there an address has a limit, and the log names an address that a browser takes."""
    with contextlib.closing(socket.socket(socket.AF_INET6)) as probe:
        try:
            probe.bind(("::1", 0))
        except OSError:
            pytest.skip("this machine has no IPv6")
    async with process(history_url, tmp_path, "--host", "::1", "--proxies", "", "--connections-per-address", "2") as (
        port,
        said,
        _,
    ):
        opened = [await asyncio.open_connection("::1", port) for _ in range(10)]
        async with httpx2.AsyncClient(timeout=PATIENCE_S) as client:
            assert (await client.get(f"http://[::1]:{port}/health")).status_code == 200
        await asyncio.gather(*(ended(reader) for reader, _ in opened[:8]))
        for _, writer in opened:
            writer.close()
        assert f"url=http://[::1]:{port}" in said()


async def test_an_answer_is_sent_at_once():
    """Its head and its body are two writes: with Nagle's algorithm the second waits 40 ms for who asked."""
    told = asyncio.get_running_loop().create_future()

    def connected(_reader, writer):
        told.set_result(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    listener = listen("127.0.0.1", 0)
    async with await asyncio.start_server(connected, sock=listener):
        _, writer = await asyncio.open_connection(*listener.getsockname())
        assert await told == 1
        writer.close()
