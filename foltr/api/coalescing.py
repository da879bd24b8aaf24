"""Makes a reading that many callers ask for at the same time once."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


class CoalescedReads:
    """Shared readings by key: a caller shares a reading that began after its call with all who called before it began.

    An answer is therefore never older than its question, and a key has at most two readings: the running one, and the
    next, which waits for it.
    """

    def __init__(self) -> None:
        self._running: dict[Hashable, asyncio.Task[Any]] = {}
        self._next: dict[Hashable, asyncio.Task[Any]] = {}

    async def read(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        """Return the result of ``make``, or raise its error. Callers with the same key share it."""
        following: asyncio.Task[T] | None = self._next.get(key)
        if following is None:
            following = asyncio.create_task(self._read(key, self._running.get(key), make))
            following.add_done_callback(_look_at_its_error)
            self._next[key] = following
        # A caller that goes away must not cancel the reading of the others.
        return await asyncio.shield(following)

    async def finish(self, within_s: float) -> None:
        """Wait, at most so many seconds, for readings that go on although their callers may have gone."""
        readings = {*self._running.values(), *self._next.values()}
        if readings:
            await asyncio.wait(readings, timeout=within_s)

    async def _read(self, key: Hashable, before: "asyncio.Task[Any] | None", make: Callable[[], Awaitable[T]]) -> T:
        if before is not None:
            await asyncio.wait([before])
        self._running[key] = self._next.pop(key)
        try:
            return await make()
        finally:
            if self._running.get(key) is asyncio.current_task():
                del self._running[key]


def _look_at_its_error(task: "asyncio.Task[Any]") -> None:
    # If all callers have gone, asyncio would warn about an error that was never retrieved.
    if not task.cancelled():
        task.exception()
