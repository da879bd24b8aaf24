"""What aiomqtt does with a socket after a connection has ended is not left to chance."""

import asyncio
import socket

import aiomqtt
import pytest

from foltr.broker.failures import write_while_open


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
