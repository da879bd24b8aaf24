"""What many ask at once is read once: a page on each of 200 screens costs the database no more than one."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


class Together:
    """Readings by key. Whoever asks gets one that began after that, and shares it with all who asked before it began.

    So an answer is never older than its question, and however many ask there are two readings of a key at most: the
    one that goes on, and the next one, which waits for it.
    """

    def __init__(self) -> None:
        self._running: dict[Hashable, asyncio.Task[Any]] = {}
        self._next: dict[Hashable, asyncio.Task[Any]] = {}

    async def read(self, key: Hashable, make: Callable[[], Awaitable[T]]) -> T:
        """Return what ``make`` returns, or raise what it raises; it is the same for everybody who gives this key."""
        following: asyncio.Task[T] | None = self._next.get(key)
        if following is None:
            following = asyncio.create_task(self._read(key, self._running.get(key), make))
            following.add_done_callback(_look_at_its_error)
            self._next[key] = following
        # Whoever goes away does not take the answer from the others.
        return await asyncio.shield(following)

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
    # All who asked may have gone: asyncio would complain of an error that nobody has seen.
    if not task.cancelled():
        task.exception()
