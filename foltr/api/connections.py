"""Limits on connections: their number, and how long the server waits for a peer.

uvicorn closes a connection that is idle between two requests. It waits without limit for the first request, for a slow
head or body, and for a peer that does not read its answer. At its own connection limit it refuses all new connections.
Here every wait ends, and at the limit the connection that has waited longest for its peer is closed.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import Any, Final

import structlog
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from foltr.api.limits import rate_limit_key
from foltr.api.problems import Problem

log = structlog.get_logger(__name__)

# With the database's connections and one batch of accepted ones this stays below 1024, the default limit of open files.
MOST_CONNECTIONS: Final = 500
TAKES_WITHIN_S: Final = 20.0
_TELL_EVERY_S: Final = 60.0
_FULL = Problem.of(503, "The server has too many connections, or ends. Try again.").as_json().encode()
_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/problem+json\r\nConnection: close\r\n"
    b"Retry-After: 5\r\nContent-Length: %d\r\n\r\n%b" % (len(_FULL), _FULL)
)


class PeerTimeout(Enum):
    """What the server waits for from a peer. The value is the limit in seconds."""

    FIRST_REQUEST = 10.0
    NEXT_REQUEST = 15.0
    BODY = 20.0

    @property
    def seconds(self) -> float:
        return self.value


class ConnectionLimiter:
    """Counts open connections and closes waiting ones when there are too many.

    Args:
        most_of_one: connections allowed per address. An IPv6 /64 network counts as one address.
        is_proxy: whether an address is a reverse proxy, which may hold any number of connections.
        most: connections allowed in total.
    """

    def __init__(
        self,
        most_of_one: int,
        is_proxy: Callable[[str], bool],
        most: int = MOST_CONNECTIONS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._is_closed = False
        self._most_of_one = most_of_one
        self._is_proxy = is_proxy
        self._most = most
        self._clock = clock
        self._askers: dict[BoundedConnection, str] = {}
        self._n_of: Counter[str] = Counter()
        # Ordered by the time since when each waits for its peer.
        self._waiting: dict[BoundedConnection, None] = {}
        self._told_at = -_TELL_EVERY_S
        self._n_ended = self._n_refused = 0

    def enter(self, connection: "BoundedConnection", address: str) -> bool:
        """Admit a connection, if need be by closing a waiting one. False if none waits, or after `close`."""
        if self._is_closed:
            return False
        asker = rate_limit_key(address)
        of_one = self._n_of[asker] >= self._most_of_one and not self._is_proxy(address)
        if of_one or len(self._askers) >= self._most:
            others = (each for each in self._waiting if not of_one or self._askers[each] == asker)
            longest = next(others, None)
            self._note(is_refused=longest is None)
            if longest is None:
                return False
            self.leave(longest)
            longest.abort()
        self._askers[connection] = asker
        self._n_of[asker] += 1
        return True

    def leave(self, connection: "BoundedConnection") -> None:
        """Forget a connection. May be called more than once."""
        self.note_working(connection)
        asker = self._askers.pop(connection, None)
        if asker is not None:
            self._n_of[asker] -= 1
            if not self._n_of[asker]:
                del self._n_of[asker]

    def close(self) -> None:
        """Refuse all further connections: otherwise the server would wait for those accepted during shutdown."""
        self._is_closed = True

    def note_waiting(self, connection: "BoundedConnection") -> None:
        """Record that the server now waits for this connection's peer."""
        self._waiting.pop(connection, None)
        if connection in self._askers:
            self._waiting[connection] = None

    def note_working(self, connection: "BoundedConnection") -> None:
        """Record that the peer waits for the server."""
        self._waiting.pop(connection, None)

    def _note(self, *, is_refused: bool) -> None:
        self._n_refused += is_refused
        self._n_ended += not is_refused
        if self._clock() - self._told_at >= _TELL_EVERY_S:
            log.warning(
                "connection_limit_reached", n_open=len(self._askers), n_ended=self._n_ended, n_refused=self._n_refused
            )
            self._told_at, self._n_ended, self._n_refused = self._clock(), 0, 0


class BoundedConnection(H11Protocol):
    """uvicorn's connection with a limit on every wait for the peer."""

    def __init__(
        self,
        gate: ConnectionLimiter,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._gate = gate
        self._waits: tuple[RequestResponseCycle | None, PeerTimeout | None] | None = None
        self._until: asyncio.TimerHandle | None = None
        self._takes_until: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if not self._gate.enter(self, self.client[0] if self.client else ""):
            transport.write(_REFUSAL)
            transport.close()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        self._gate.leave(self)
        for timer in (self._until, self._takes_until):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._look()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._takes_until = self.loop.call_later(TAKES_WITHIN_S, self.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._takes_until is not None:
            self._takes_until.cancel()

    def shutdown(self) -> None:
        """Shut down: close after the current answer, or at once if the request is incomplete."""
        if self._peer_owes() is PeerTimeout.BODY:
            self.abort()
        else:
            super().shutdown()

    def abort(self) -> None:
        """Close the connection and drop unsent data."""
        self.transport.abort()

    def _look(self) -> None:
        """Start a new wait if the peer now has to do something else. More of the same does not extend the limit."""
        waits = self.cycle, self._peer_owes()
        if waits == self._waits:
            return
        self._waits = waits
        if self._until is not None:
            self._until.cancel()
        if waits[1] is None:
            self._gate.note_working(self)
            return
        self._gate.note_waiting(self)
        self._until = self.loop.call_later(waits[1].seconds, self.abort)

    def _peer_owes(self) -> PeerTimeout | None:
        if self.cycle is None:  # uvicorn's state before the first request
            return PeerTimeout.FIRST_REQUEST  # type: ignore[unreachable]
        if self.cycle.response_complete:
            return PeerTimeout.NEXT_REQUEST
        return PeerTimeout.BODY if self.cycle.more_body else None
