"""The process: uvicorn, without a log of its own, whose lines would hold the names in paths."""

from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI

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


def make_server(app: FastAPI, host: str, port: int) -> Server:
    """Make the server; its `serve` goes on until `should_exit` is set."""
    return Server(
        uvicorn.Config(
            app,
            host=host,
            port=port,
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
