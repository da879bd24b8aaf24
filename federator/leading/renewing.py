"""Renews a lease in a thread that has an event loop and a connection to the database of its own."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from threading import Thread
from typing import Final, TypeVar

import structlog

from foltr.storage.database import Database, is_transient
from foltr.storage.leases import Lease, find_lease, give_up_lease, renew_lease

T = TypeVar("T")

log = structlog.get_logger(__name__)

RENEW_EVERY_S: Final = 1.0
# PostgreSQL that does not answer may do so by another connection: two tries go into what a lease lasts. SQLite answers.
_ANSWER_S = 1.5


class Renewing:
    """The thread; start it once.

    Args:
        db: where the lease is; reached by a connection of its own.
        is_worth_it: asked in the thread before each renewal; where it says no, the lease is left to be over.
        on_renewed: called in the thread after each that found the lease the holder's, with the moment of the monotonic
            clock at which it began.
        on_lost: called in the thread after each that did not, with the lease as it is; None where nobody can tell.
        on_failure: called in the thread at its end, where the lease can never be renewed.
    """

    def __init__(
        self,
        db: Database,
        federation: str,
        holder: str,
        *,
        is_worth_it: Callable[[], bool],
        on_renewed: Callable[[float], object],
        on_lost: Callable[[Lease | None], object],
        on_failure: Callable[[Exception], object],
    ) -> None:
        self._db = db
        self._federation = federation
        self._holder = holder
        self._is_worth_it = is_worth_it
        self._on_renewed = on_renewed
        self._on_lost = on_lost
        self._on_failure = on_failure
        self._answer_s = None if db.dialect == "sqlite" else _ANSWER_S
        self._loop = asyncio.new_event_loop()
        self._due = asyncio.Event()
        self._is_over = False
        # A process that ends in disorder does not wait for it.
        self._thread = Thread(target=self._run, name="foltr-lease", daemon=True)

    def start(self) -> None:
        """Renew once a second, the first time at once."""
        self._thread.start()

    def renew_now(self) -> None:
        """Renew at once; from any thread."""
        with contextlib.suppress(RuntimeError):  # it has ended
            self._loop.call_soon_threadsafe(self._due.set)

    async def end(self) -> None:
        """Give the lease up, where it is the holder's, and end the thread."""
        self._is_over = True
        self.renew_now()
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._renew())
        except Exception as error:  # noqa: BLE001 (whoever leads by the lease raises it)
            self._on_failure(error)
        finally:
            self._loop.close()

    async def _renew(self) -> None:
        async with self._db.apart() as database:
            while not self._is_over:
                self._due.clear()
                if self._is_worth_it():
                    began = time.monotonic()
                    held = await self._answered(database, renew_lease)
                    if held:
                        self._on_renewed(began)
                    elif held is not None:
                        self._on_lost(await self._answered(database, lambda db, name, _: find_lease(db, name)))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(RENEW_EVERY_S):
                        await self._due.wait()
            await self._answered(database, give_up_lease)

    async def _answered(self, database: Database, transaction: Callable[..., Awaitable[T]]) -> T | None:
        """Return what the database answers; None where it does not, and may later."""
        try:
            async with asyncio.timeout(self._answer_s):
                return await transaction(database, self._federation, self._holder)
        except Exception as error:
            if not is_transient(error):
                raise
            log.debug("lease_not_renewed", cause=str(database.unavailable(error)))
            return None
