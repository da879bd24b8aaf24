"""Keeps the lease of a federation while its federator leads, and tells at once when another has it.

It is renewed beside the federator (`federator.leading.renewing`), so neither a long transaction nor a long computation
loses it. But a federator whose event loop stands still, or whose turn does not end, is not worth to lead: its lease is
left to be over. A process that was paused and wakes confirms its lease before it connects to the broker, where its
successor may be.
"""

import asyncio
import math
import time
from collections.abc import Callable
from typing import Self

from federator.leading.renewing import Renewing
from storage.database import Database
from storage.errors import WriterFencedError

# To read a large federation at its start keeps the event loop for seconds.
_HANGS_AFTER_S = 60.0
_SAYS_EVERY_S = 1.0


class LeaseKeeper:
    """The lease of one federation in the hands of one process. Use it around all that a leader does.

    Args:
        holder: what the process is called; nobody else is.
        is_well: whether the work goes on; after a minute of no, or of no answer, the lease is not renewed.
    """

    def __init__(self, db: Database, federation: str, holder: str, is_well: Callable[[], bool]) -> None:
        self._federation = federation
        self._is_well = is_well
        self._well_at = time.monotonic()
        self._renewing = Renewing(
            db,
            federation,
            holder,
            is_worth_it=lambda: time.monotonic() - self._well_at < _HANGS_AFTER_S,
            on_answer=self._answered,
            on_failure=self._failed,
        )
        self._changed = asyncio.Event()
        self._has_led = False
        self._renewed_at = -math.inf
        self._failure: Exception | None = None

    async def __aenter__(self) -> Self:
        """Renew the lease from now on, as soon as it is this process's."""
        self._loop = asyncio.get_running_loop()
        self._saying = asyncio.create_task(self._say_well())
        self._renewing.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Give the lease up, so that another may lead at once."""
        self._saying.cancel()
        await self._renewing.end()

    @property
    def leads(self) -> bool:
        """Whether this process has the lease, as far as it knows."""
        return self._has_led and self._failure is None

    def note_claimed(self) -> None:
        """Know that the federation is claimed: from here on a lease that is another's is one that was lost."""
        self._has_led = True

    async def confirm(self) -> None:
        """Return once the lease was renewed after this call; while the database is away, wait for it.

        Raises:
            WriterFencedError: another federator has the lease.
        """
        asked_at = time.monotonic()
        self._renewing.renew_now()
        while self._failure is None and self._renewed_at < asked_at:
            await self._changed.wait()
        if self._failure is not None:
            raise self._failure

    async def wait_lost(self) -> None:
        """Return only by raising: WriterFencedError once another federator has the lease. For a task group to watch."""
        while self._failure is None:
            await self._changed.wait()
        raise self._failure

    async def _say_well(self) -> None:
        while True:
            if self._is_well():
                self._well_at = time.monotonic()
            await asyncio.sleep(_SAYS_EVERY_S)

    def _answered(self, began_at: float, held: bool) -> None:
        self._loop.call_soon_threadsafe(self._note, began_at, held)

    def _failed(self, error: Exception) -> None:
        self._loop.call_soon_threadsafe(self._note, -math.inf, False, error)

    def _note(self, began_at: float, held: bool, error: Exception | None = None) -> None:
        if held:
            self._has_led, self._renewed_at = True, began_at
        elif error is not None or self._has_led:
            self._failure = error or WriterFencedError(
                f"federation {self._federation!r}: another federator has taken the lease. Stop this one, or start it "
                "with --standby: it waits until it may lead"
            )
        self._changed.set()
        self._changed = asyncio.Event()
