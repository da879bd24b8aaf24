"""How long calls wait for a broker: never for ever, and never longer than the connection lasts."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Final

SLOWEST_BYTES_PER_S: Final = 8 * 1024
"""The slowest line that is supported: a model of 256 KB then takes half a minute."""


class PendingCalls:
    """The calls that wait for the broker's answer.

    Args:
        timeout_s: how long each waits, besides the time for sending its own data and earlier calls' data.
    """

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._running: set[PendingCall] = set()

    @asynccontextmanager
    async def bounded(self) -> AsyncIterator["PendingCall"]:
        """Bound the waits in the body. Raises TimeoutError."""
        n_bytes_before = sum(wait.n_bytes for wait in self._running)
        async with asyncio.timeout(self._timeout_s + n_bytes_before / SLOWEST_BYTES_PER_S) as timeout:
            wait = PendingCall(timeout)
            self._running.add(wait)
            try:
                yield wait
            finally:
                self._running.discard(wait)

    def end(self) -> None:
        """End all of them: their connection is over, so no acknowledgement will come."""
        for wait in list(self._running):
            wait.end()


class PendingCall:
    """One call that waits.

    Attributes:
        n_bytes: what it has sent.
    """

    def __init__(self, timeout: asyncio.Timeout) -> None:
        self._timeout = timeout
        self.n_bytes = 0

    def extended_for(self, messages: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
        """Yield each topic and payload to send, and extend the wait by the time each may take."""
        for topic, payload in messages:
            until = self._timeout.when()
            if until is not None and not self._timeout.expired():
                self._timeout.reschedule(until + len(payload) / SLOWEST_BYTES_PER_S)
            self.n_bytes += len(payload)
            yield topic, payload

    def end(self) -> None:
        """End it now."""
        if not self._timeout.expired():
            self._timeout.reschedule(asyncio.get_running_loop().time())
