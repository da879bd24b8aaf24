"""A bounded buffer between the network and whoever commits.

It never blocks the network and never grows past its bounds; what does not fit is refused, and the refusal
is the caller's to tell. A device resends until it has a receipt, so a refused message is late, not lost.
"""

import asyncio
from collections import deque

from broker.link import InboundMessage


class BoundedIntake:
    """FIFO of inbound messages, bounded in count and bytes."""

    def __init__(self, max_messages: int = 20_000, max_bytes: int = 64 * 1024 * 1024) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._messages: deque[InboundMessage] = deque()
        self._n_bytes = 0
        self._arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._messages)

    def offer(self, message: InboundMessage) -> bool:
        """Take ``message``; False, and nothing changes, where it does not fit."""
        if len(self._messages) >= self._max_messages or self._n_bytes + len(message.payload) > self._max_bytes:
            return False
        self._messages.append(message)
        self._n_bytes += len(message.payload)
        self._arrived.set()
        return True

    def wake(self) -> None:
        """End a running `wait` although no message came."""
        self._arrived.set()

    async def wait(self, timeout_s: float) -> None:
        """Return when there is something to take, or after ``timeout_s``."""
        try:
            async with asyncio.timeout(max(0.0, timeout_s)):
                await self._arrived.wait()
        except TimeoutError:
            pass

    def take(self, limit: int) -> list[InboundMessage]:
        """Up to ``limit`` messages, oldest first; possibly none."""
        taken = [self._messages.popleft() for _ in range(min(limit, len(self._messages)))]
        self._n_bytes -= sum(len(message.payload) for message in taken)
        if not self._messages:
            self._arrived.clear()
        return taken
