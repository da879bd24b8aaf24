"""The server process: uvicorn without its access log, whose lines would contain client names."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import cast

import uvicorn
from fastapi import FastAPI

from foltr.api.connections import MOST_CONNECTIONS, BoundedConnection, ConnectionLimiter, PeerTimeout
from foltr.core.errors import SettingsError

_GOODBYE_S = 5
# The kernel may queue this many connections before any is counted.
_BACKLOG = 256

Network = IPv4Network | IPv6Network


class Server(uvicorn.Server):
    """A uvicorn server that ends when `should_exit` is set. Signals are left to the caller.

    Args:
        on_end: called when shutdown begins, to end streaming answers.
    """

    def __init__(self, config: uvicorn.Config, on_end: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_end = on_end

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_end()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone: uvicorn's handler would re-raise the signal, as if the process had been killed."""
        yield


def listen(host: str, port: int) -> socket.socket:
    """Open the listening socket. Port 0 takes a free one.

    Raises:
        SettingsError: the address cannot be used. (uvicorn would end the process instead.)
    """
    try:
        listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        raise SettingsError(f"port: nothing can listen on {host}:{port}; name another one") from error
    # asyncio sets TCP_NODELAY only if the protocol is named. Without it the body waits 40 ms for the peer to
    # acknowledge the head.
    return socket.socket(listener.family, listener.type, socket.IPPROTO_TCP, listener.detach())


def read_proxies(text: str) -> list[Network]:
    """Parse comma-separated addresses and networks of reverse proxies.

    Raises:
        SettingsError: an entry is neither.
    """
    try:
        return [ip_network(each.strip()) for each in text.split(",") if each.strip()]
    except ValueError as error:
        raise SettingsError(
            f"api_proxies: {error}; name addresses or networks, with commas between them, e.g. 127.0.0.1,10.0.0.0/8"
        ) from error


def make_server(app: FastAPI, proxies: list[Network], connections_per_address: int) -> Server:
    """Make the server. Its `serve`, given sockets from `listen`, runs until `should_exit` is set.

    Args:
        proxies: addresses whose forwarding headers are trusted. They may hold any number of connections.
        connections_per_address: connections allowed for any other address.
    """
    gate = ConnectionLimiter(connections_per_address, lambda address: _is_in(address, proxies))

    def close() -> None:
        gate.close()
        app.state.live.close()

    return Server(
        uvicorn.Config(
            app,
            http=cast("type[asyncio.Protocol]", partial(BoundedConnection, gate)),
            ws="none",
            log_config=None,
            # Peers could flood the log: uvicorn warns about each invalid request.
            log_level="error",
            access_log=False,
            server_header=False,
            forwarded_allow_ips=[str(network) for network in proxies],
            backlog=_BACKLOG,
            # Requests whose peers have disconnected still run for a moment.
            limit_concurrency=2 * MOST_CONNECTIONS,
            timeout_keep_alive=int(PeerTimeout.NEXT_REQUEST.seconds),
            timeout_graceful_shutdown=_GOODBYE_S,
        ),
        close,
    )


def _is_in(address: str, networks: list[Network]) -> bool:
    try:
        found = ip_address(address)
    except ValueError:
        return False
    if isinstance(found, IPv6Address) and found.ipv4_mapped is not None:
        found = found.ipv4_mapped
    return any(found in network for network in networks)
