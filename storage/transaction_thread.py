"""A thread that makes transactions of SQLite, each from its beginning to its end.

A transaction of eight statements that visits a thread for each of them wakes that thread and the event loop eight times
over, which takes several times as long as the statements. So whoever has a function for a whole transaction sends that
(`Database.run`). The thread has an event loop and a connection of its own, so the function is the same as elsewhere;
but what it awaits of the database is there at once, because nobody else waits in that loop.
"""

import asyncio
from collections.abc import Callable, Coroutine
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

T = TypeVar("T")

_Job = tuple[Callable[[], Coroutine[Any, Any, Any]], "asyncio.Future[Any]"]


class TransactionThread:
    """The thread; it begins with the first job, and does one after the other."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        # A process that ends in disorder does not wait for it.
        self._thread = Thread(target=lambda: asyncio.run(self._work()), name="foltr-sqlite", daemon=True)

    async def run(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what a coroutine comes to that is made and awaited in the thread.

        Whoever is cancelled meanwhile hears no answer: what has begun is done to its end.
        """
        if self._thread.ident is None:
            self._thread.start()
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put((make, done))
        return await done

    async def end(self, make: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do all that was asked for, this at last, and end the thread."""
        if self._thread.ident is None:
            return
        last = asyncio.ensure_future(self.run(make))
        await asyncio.sleep(0)  # it is in the queue now
        self._jobs.put(None)
        try:
            await asyncio.shield(last)
        finally:
            await asyncio.to_thread(self._thread.join)

    async def _work(self) -> None:
        # The loop stands still while it waits for a job: nobody else is in it. To run the loop for each job would cost
        # as much as a small transaction.
        while (job := self._jobs.get()) is not None:
            make, done = job
            try:
                answer, error = await make(), None
            except BaseException as raised:  # noqa: BLE001 (whoever asked for it raises it)
                answer, error = None, raised
            asker = done.get_loop()
            if not asker.is_closed():
                asker.call_soon_threadsafe(_tell, done, answer, error)
            del job, make, done, answer, error, asker  # they may be large, and the next one may be long in coming


def _tell(done: "asyncio.Future[Any]", answer: Any, error: BaseException | None) -> None:
    if done.done():
        return  # whoever asked was cancelled
    if error is None:
        done.set_result(answer)
    else:
        done.set_exception(error)
