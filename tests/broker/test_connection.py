"""One connection: small packets are sent at once, and none is left behind, whenever it is left."""

import asyncio
import socket
from dataclasses import replace

import aiomqtt
import pytest
from support.broker_links import are_sent_at_once, connected, link_to
from support.waiting import PATIENCE_S

from foltr.broker.address import BrokerAddress
from foltr.broker.connection import write_while_open

pytestmark = pytest.mark.usefixtures("connects_again_fast")


async def test_small_packets_are_sent_at_once(any_broker):
    """Without TCP_NODELAY a small exchange at QoS 1 takes fifty times as long; it reaches the socket below TLS."""
    async with connected(any_broker) as link:
        assert are_sent_at_once(link.address.port) == [True]


async def test_it_can_be_left_at_any_moment(any_broker):
    """Before the connection and its handshake, in the middle of them, or after."""
    for n_steps in (0, 1, 3, 10, 30):
        async with asyncio.timeout(PATIENCE_S):
            async with link_to(any_broker, topics=["t"]):
                for _ in range(n_steps):
                    await asyncio.sleep(0.001)


async def test_leaving_in_the_middle_of_a_handshake_leaves_none_behind(tls_server, monkeypatch):
    """A slow network finishes it when nobody wants it any more: the connection is ended, not begun."""
    monkeypatch.setattr("foltr.broker.connection.GOODBYE_S", 0.1)
    reached, released, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def hold(reader, writer):
        hello = await reader.read(1000)
        reached.set()
        await released.wait()
        back, forth = await asyncio.open_connection("127.0.0.1", tls_server.port)
        forth.write(hello)

        async def pump(source, sink):
            while data := await source.read(10_000):
                sink.write(data)
            sink.close()

        try:
            await asyncio.gather(pump(reader, forth), pump(back, writer))
        except ConnectionResetError:  # ended, with something unread
            forth.close()
            writer.close()
        ended.set()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    credentials = replace(BrokerAddress.of(tls_server.service("operator")), port=server.sockets[0].getsockname()[1])
    async with server, asyncio.timeout(PATIENCE_S):
        async with link_to(credentials):
            await reached.wait()
        released.set()
        await ended.wait()
    assert "@operator" not in tls_server.log.read_text()


@pytest.mark.parametrize("ends_at_once", [False, True])
async def test_a_socket_is_written_to_only_as_long_as_it_is_open(ends_at_once):
    """Its number would be no socket's, or another's, a turn after the broker has ended the connection."""
    said, loop = [], asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: said.append(context))
    client = aiomqtt.Client("127.0.0.1")
    write_while_open(client)
    sends = client._client  # noqa: SLF001 (there is no public way)
    mine, brokers = socket.socketpair()
    mine.setblocking(False)
    with mine, brokers:
        number = mine.fileno()
        sends.on_socket_register_write(sends, None, mine)
        if ends_at_once:
            mine.close()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert said == []
        assert loop.remove_writer(number) is not ends_at_once
