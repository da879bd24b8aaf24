"""A server of the HTTP API on a real port, in this process; and who asks it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
from fastapi import FastAPI
from support.waiting import PATIENCE_S, until

from foltr.api.app import make_app
from foltr.api.server import listen, make_server, read_proxies
from foltr.api.server_state import ServerState
from foltr.api.tokens import Role, TokenFile
from foltr.storage.database import Database

FEDERATION = "mail"


class Asked:
    """A running server, the store it serves, whose limits may be changed, and the connections that are open."""

    def __init__(self, served: ServerState, url: str, app: FastAPI, connections: set[object]) -> None:
        self.served, self.url, self.app, self.connections = served, url, app, connections

    def token(self, role: Role, client_id: str | None = None, lasts_s: float = 86_400.0) -> str:
        """Make a token, which outlasts a test on the slowest machine unless told otherwise."""
        return self.served.tokens.add(role, self.served.federation, lasts_s, client_id)[0]

    async def get(self, path: str, token: str | None = None, **more: object) -> httpx2.Response:
        return await self._request("GET", path, token, more)

    async def post(self, path: str, token: str | None = None, **more: object) -> httpx2.Response:
        return await self._request("POST", path, token, more)

    async def _request(self, method: str, path: str, token: str | None, more: dict[str, object]) -> httpx2.Response:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=PATIENCE_S) as client:
            return await client.request(method, path, **more)


@asynccontextmanager
async def asked(
    db_url: str,
    folder: Path,
    federation: str = FEDERATION,
    proxies: str = "127.0.0.1",
    connections_per_address: int = 100,
    **more: object,
) -> AsyncIterator[Asked]:
    """Serve a database, and end the server whatever happens."""
    served = ServerState(Database(db_url), federation, TokenFile(folder / "tokens.json"), **more)
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    app = make_app(served)
    server = make_server(app, read_proxies(proxies), connections_per_address)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        await until(lambda: server.started or serving.done(), "the server does not listen")
        yield Asked(served, f"http://127.0.0.1:{port}", app, server.server_state.connections)
    finally:
        server.should_exit = True
        await serving
