"""What a device's waiters wait for is looked at once after each of its turns, and not by each in a turn of its own."""

import asyncio
from collections.abc import Callable


class News:
    """Wakes those who wait for something to be true of a device. In one event loop.

    `asyncio.Condition` wakes all of them, one after the other, to look for themselves; by far most turns bring nothing
    that anybody waits for.
    """

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}

    def look(self) -> None:
        """Wake those for whom it is true now, or whose question raises."""
        for waiter, is_true in self._waiting.items():
            if not waiter.done() and _is_answered(is_true):
                waiter.set_result(None)

    async def wait_until(self, is_true: Callable[[], bool]) -> None:
        """Wait until it is true; raise what asking raises."""
        while not is_true():
            waiter = asyncio.get_running_loop().create_future()
            self._waiting[waiter] = is_true
            try:
                await waiter
            finally:
                del self._waiting[waiter]


def _is_answered(is_true: Callable[[], bool]) -> bool:
    try:
        return is_true()
    except Exception:  # noqa: BLE001 (the waiter asks again, and raises it)
        return True
