"""Checks all waiters' conditions once after each of a device's turns, so that they need not check them one by one."""

import asyncio
from collections.abc import Callable


class ConditionNotifier:
    """Wakes those who wait for a condition of a device. In one event loop.

    `asyncio.Condition` wakes every waiter in turn to check its condition; most turns change none.
    """

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}

    def notify(self) -> None:
        """Wake those whose condition holds or raises."""
        for waiter, is_true in self._waiting.items():
            if not waiter.done() and _is_answered(is_true):
                waiter.set_result(None)

    async def wait_until(self, is_true: Callable[[], bool]) -> None:
        """Wait until the condition holds; raise what it raises."""
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
    except Exception:  # noqa: BLE001 (the waiter checks again, and raises it)
        return True
