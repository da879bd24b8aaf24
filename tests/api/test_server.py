"""The process's socket."""

import asyncio
import socket

from foltr.api.server import listen


async def test_an_answer_is_sent_at_once():
    """Its head and its body are two writes: with Nagle's algorithm the second waits 40 ms for who asked."""
    told = asyncio.get_running_loop().create_future()

    def connected(_reader, writer):
        told.set_result(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    listener = listen("127.0.0.1", 0)
    async with await asyncio.start_server(connected, sock=listener), asyncio.timeout(10):
        _, writer = await asyncio.open_connection(*listener.getsockname())
        assert await told == 1
        writer.close()
