"""Server-sent events: the status every two seconds, and the rounds that have changed.

One reading serves all listeners, and it stops when the last one leaves. Rounds are pushed, too: when 200 pages fetched
them after every round and rounds lasted a second, that took a whole processor. A slow listener gets only the newest
status. A listener that does not read is disconnected (`foltr.api.connections`), and so is one with an expired or
revoked token.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import Response
from starlette.types import Receive, Scope, Send

from foltr.api.access import Looker, ServedHere, identify_again
from foltr.api.connections import TAKES_WITHIN_S
from foltr.api.problems import note_unavailable, without_database
from foltr.api.reading import rounds_as_json
from foltr.api.server_state import ServerState
from foltr.api.status import Status, shown

router = APIRouter(prefix="/api/v1", tags=["status"])

MOST_LISTENERS = 200
# So that a shared token cannot use up the streams of the others.
MOST_OF_A_TOKEN = 20
_EVERY_S = 2.0
# Proxies close silent connections. The page ignores this comment.
_ALIVE_EVERY_S = 15.0
# The browser reconnects by itself, so no connection has to last for days.
_LONGEST_S = 3600.0
_AWAY = b"event: away"
# A page that missed more rounds than this fetches them.
_MOST_ROUNDS = 20


class LiveStatus:
    """The newest status as an event, read repeatedly while there are listeners.

    Attributes:
        n_of: number of listeners by token id.
        is_over: whether the server is shutting down.
    """

    def __init__(self, served: ServerState) -> None:
        self.n_of: Counter[str] = Counter()
        self.is_over = False
        self._served = served
        self._event = b""
        self._version = 0
        self._changed = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        # Number and state of the last round sent. Later rounds go out with the next status.
        self._told: tuple[int, str] | None = None

    @property
    def n_listeners(self) -> int:
        return self.n_of.total()

    def enter(self, token_id: str) -> None:
        """Count a listener. The first one starts the reading and gets no event from before."""
        self.n_of[token_id] += 1
        if self._reading is None or self._reading.done():
            self._event, self._told = b"", None
            self._reading = asyncio.create_task(self._read())

    def leave(self, token_id: str) -> None:
        """Count a listener's departure. The last one ends the reading."""
        self.n_of[token_id] -= 1
        if not self.n_of[token_id]:
            del self.n_of[token_id]

    async def after(self, version: int) -> tuple[int, bytes]:
        """Wait for an event newer than ``version`` or for shutdown. Return the newest version and its bytes."""
        while not self.is_over and (self._version <= version or not self._event):
            await self._changed.wait()
        return self._version, self._event

    def close(self) -> None:
        """End the reading and close every stream cleanly."""
        self.is_over = True
        self._changed.set()
        if self._reading is not None:
            self._reading.cancel()

    async def _read(self) -> None:
        while self.n_listeners:
            event = await self._newest()
            if event != self._event:
                self._event, self._version = event, self._version + 1
                changed, self._changed = self._changed, asyncio.Event()
                changed.set()
            await asyncio.sleep(_EVERY_S)

    async def _newest(self) -> bytes:
        try:
            await self._served.db.follow_file()
            status = shown(await self._served.overview())
            return await self._changed_rounds(status) + _event("status", status.model_dump_json())
        except Exception as error:  # noqa: BLE001 (drivers raise anything: listeners get an away event)
            if not self._event.startswith(_AWAY):  # once, not every two seconds
                note_unavailable(error)
            return _event("away", without_database(await self._served.condition()).as_json())

    async def _changed_rounds(self, status: Status) -> bytes:
        """Return a `rounds` event from the last round sent to the newest. Empty if nothing changed."""
        if status.round is None:
            return b""
        newest, before, told = (status.round.number, status.round.state), self._told, b""
        if before is not None and before != newest:
            n_rounds = min(_MOST_ROUNDS, max(1, newest[0] - before[0] + 1))
            told = _event("rounds", (await rounds_as_json(self._served, None, n_rounds)).decode())
        self._told = newest
        return told


class EventStream(Response):
    """A stream of `LiveStatus` events. It ends when the listener leaves, stops reading or loses its token."""

    media_type = "text/event-stream"

    def __init__(self, live: LiveStatus, token_id: str, may_go_on: Callable[[], bool]) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._live = live
        self._token_id = token_id
        self._may_go_on = may_go_on

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 (ASGI's signature)
        self._live.enter(self._token_id)
        telling = asyncio.create_task(self._tell(send))
        gone = asyncio.create_task(_until_gone(receive))
        try:
            # End the stream cleanly: browsers log a cut one as an error.
            at_most = _LONGEST_S + _ALIVE_EVERY_S + TAKES_WITHIN_S
            await asyncio.wait({telling, gone}, return_when=asyncio.FIRST_COMPLETED, timeout=at_most)
        finally:
            self._live.leave(self._token_id)
            for task in (telling, gone):
                task.cancel()
            await asyncio.gather(telling, gone, return_exceptions=True)

    async def _tell(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        version, began = 0, time.monotonic()
        while time.monotonic() - began < _LONGEST_S:
            event = b": alive\n\n"
            try:
                async with asyncio.timeout(_ALIVE_EVERY_S):
                    version, event = await self._live.after(version)
            except TimeoutError:
                pass  # the database is slow
            if self._live.is_over or not self._may_go_on():
                break  # the token may have been revoked during the wait
            await send({"type": "http.response.body", "body": event, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


@router.get(
    "/stream",
    response_class=Response,
    openapi_extra={"x-who": "viewer, operator"},
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def stream_status(request: Request, who: Looker, served: ServedHere) -> EventStream:
    """Server-sent events: `status` every two seconds, `away` without a database.

    Before a status that has another round, or this one in another state, comes `rounds`: rows of `/api/v1/rounds` from
    the one that was told last to the newest, newest first, at most 20.
    """
    live: LiveStatus = request.app.state.live
    if live.n_listeners >= MOST_LISTENERS:
        words = f"{MOST_LISTENERS} clients listen already. Ask for /api/v1/status instead, or try again."
        raise HTTPException(503, words, headers={"Retry-After": "30"})
    if live.n_of[who.id] >= MOST_OF_A_TOKEN:
        words = (
            f"{MOST_OF_A_TOKEN} clients listen with this token already. Close a page, or make another token for others."
        )
        raise HTTPException(429, words, headers={"Retry-After": "30"})
    return EventStream(live, who.id, lambda: identify_again(request, served))


def _event(name: str, data: str) -> bytes:
    return f"event: {name}\ndata: {data}\n\n".encode()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
