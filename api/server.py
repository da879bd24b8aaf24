"""The process: uvicorn, without a log of its own, whose lines would hold the names in paths."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

from foltr.errors import SettingsError

# Listeners of events are bounded apart; this bounds all connections together.
_MOST_CONNECTIONS = 1000
_IDLE_S = 15
_GOODBYE_S = 5


class Server(uvicorn.Server):
    """uvicorn's server, which ends when `should_exit` is set: signals are for whoever runs it."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone: uvicorn's own handling ends the process by the signal, as if it had been killed."""
        yield


def listen(host: str, port: int) -> socket.socket:
    """Open the socket that a server is to listen on; port 0 takes a free one.

    Raises:
        SettingsError: nothing can listen there. (uvicorn, asked to do this, would end the process itself.)
    """
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise SettingsError(f"port: nothing can listen on {host}:{port}; name another one") from error
    # By this name asyncio knows it for TCP, and sends what is written at once. Else an answer, whose head is written
    # before its body, waits 40 ms for whoever asked to acknowledge the head.
    return socket.socket(listener.family, listener.type, socket.IPPROTO_TCP, listener.detach())


def make_server(app: FastAPI) -> Server:
    """Make the server; its `serve`, given sockets from `listen`, goes on until `should_exit` is set."""
    return Server(
        uvicorn.Config(
            app,
            ws="none",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            limit_concurrency=_MOST_CONNECTIONS,
            timeout_keep_alive=_IDLE_S,
            timeout_graceful_shutdown=_GOODBYE_S,
        )
    )
