"""Runs an event loop in a separate thread, for callers without one. It computes with plain functions."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from foltr.core.errors import UsageError
from foltr.core.numerics.compiled import plain_functions

T = TypeVar("T")


class LoopThread:
    """A thread with an event loop; a daemon, so a process that ends does not wait for it."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def soon(self, work: Callable[[], None]) -> None:
        """Schedule a callback in the loop; does nothing if the loop has ended."""
        try:
            self._loop.call_soon_threadsafe(work)
        except RuntimeError:
            if not self._loop.is_closed():
                raise

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop, and wait for it.

        Raises:
            UsageError: called in the loop itself, which would wait for itself, or the loop has ended.
        """
        if self.is_current or self._loop.is_closed():
            coroutine.close()
            raise UsageError(
                "an observer cannot wait, because its thread would do the work. Wait in another thread"
                if self.is_current
                else "it is closed"
            )
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def end(self, last: Coroutine[Any, Any, None], timeout_s: float) -> bool:
        """Run a last coroutine and end; return whether it ended within ``timeout_s``.

        If called in the loop itself, the loop ends afterwards.
        """
        asyncio.run_coroutine_threadsafe(self._end(last), self._loop)
        if not self.is_current:
            self._thread.join(timeout_s)
        return not self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether this is the loop's thread."""
        return threading.current_thread() is self._thread

    async def _end(self, last: Coroutine[Any, Any, None]) -> None:
        try:
            await last
        finally:
            self._loop.stop()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        with plain_functions():
            self._turn()

    def _turn(self) -> None:
        try:
            self._loop.run_forever()
            # Not `asyncio.Runner`: it starts another thread at its end, which is forbidden in a process that ends.
            left = asyncio.all_tasks(self._loop)
            for task in left:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        finally:
            self._loop.close()
