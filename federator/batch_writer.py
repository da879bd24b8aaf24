"""Commits what a federator has decided, and with it what may reach the disk a little later."""

import asyncio
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

from foltr.core.failpoints import Failpoint, failpoint
from foltr.federator.clock import Clock, to_datetime
from foltr.federator.deciding.decisions import Decisions
from foltr.federator.log_lines import log_batch
from foltr.federator.rows import batch_of
from foltr.federator.store import FederationStore
from foltr.storage.records import NewEvent

# How many seconds of events a killed federator loses; promises are never lost.
HELD_S = 2.0
_PUBLISHED_NOTE_S = 1.0


class BatchWriter:
    """Commits batches; every commit waits for the disk, so refusals and notes go with the next one.

    Args:
        wake: ends the wait for messages, so that notes are stored although none comes.

    Attributes:
        due_at: when to store the refusals that wait, in epoch seconds; infinity without any.
    """

    def __init__(self, store: FederationStore, clock: Clock, wake: Callable[[], None]) -> None:
        self._store = store
        self._clock = clock
        self._wake = wake
        self._deferred = Decisions()  # equal events are one, as within a batch
        self.due_at = math.inf
        self._published: tuple[int, datetime] | None = None

    def is_due(self, now: float) -> bool:
        """Whether to commit although nothing was decided."""
        return self._published is not None or now >= self.due_at

    def model_published(self, version: int) -> None:
        """Note that the broker has taken this model, with the next commit or a little later.

        Messages usually follow a new model.
        """
        self._published = (version, to_datetime(self._clock.now()))
        asyncio.get_running_loop().call_later(_PUBLISHED_NOTE_S, self._wake)

    def note_undelivered(self, detail: str) -> None:
        """Store, with the next commit or a little later, that updates reach no ingest worker."""
        now = self._clock.now()
        self._defer([NewEvent(to_datetime(now), "updates_undelivered", detail)], now)
        self._wake()

    async def commit(self, decisions: Decisions, filled: int | None, now: float) -> None:
        """Commit decisions, in one transaction with what waits; refusals alone are answered first and stored later.

        Args:
            filled: the round that takes no further updates after these, if any.
        """
        batch = batch_of(decisions, filled, self._published)
        self._published = None
        failpoint(Failpoint.BATCH_DECIDED)
        # An event stored after the erasure must not name the client.
        if batch.only_refuses and now < self.due_at and not decisions.erasures:
            # Refusals were decided by stored state; check, without a write, that this process is still the writer.
            await self._store.require_writer()
            self._defer(batch.events, now)
        else:
            batch = replace(batch, events=[*self._deferred.events, *batch.events])
            self._deferred, self.due_at = Decisions(), math.inf
            if not batch.is_empty:
                await self._store.commit_batch(batch)
        failpoint(Failpoint.BATCH_COMMITTED)
        log_batch(decisions.events)

    async def commit_deferred(self) -> None:
        """Commit what waits for a batch that may not come: the note of `model_published`, and refusals."""
        now = self._clock.now()
        self.due_at = min(self.due_at, now)
        await self.commit(Decisions(), None, now)

    def _defer(self, events: Sequence[NewEvent], now: float) -> None:
        for event in events:
            self._deferred.note(event)
        self.due_at = min(self.due_at, now + HELD_S)
