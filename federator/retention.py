"""Deletes old updates, a few at a time between messages, so that no round and no receipt waits for it."""

import math
from datetime import UTC, datetime

import structlog

from foltr.federator.clock import Clock
from foltr.federator.plan import FederationPlan
from foltr.federator.store import FederationStore
from foltr.storage.errors import PartsRefusedError

log = structlog.get_logger(__name__)

# Not after every round: each look costs a query.
_ROUNDS_BETWEEN = 50
_UPDATES_AT_ONCE = 200
_BYTES_AT_ONCE = 256 * 1024
# A federation that gets a horizon late has much to delete: rounds need the disk in between.
_PAUSE_S = 0.05
# How much of a kept round moves out of a part in one transaction.
_BYTES_MOVED_AT_ONCE = 16 * 1024 * 1024
# How many parts cover the rounds that are kept whole: a part is dropped once all its rounds are older.
_PARTS = 10
# While a session is in the way, such as a backup: each attempt blocks others for a moment.
_DELAYS_S = (1.0, 5.0, 20.0, 60.0)


class Retention:
    """Deletes what is beyond the plan's ``history_rounds``. Only the federation's single writer calls it.

    Progress is visible only in the rows, so each new federator looks through all rounds once.
    """

    def __init__(self, plan: FederationPlan, store: FederationStore, clock: Clock) -> None:
        self._plan = plan
        self._store = store
        self._clock = clock
        self._limit = max(1, min(_UPDATES_AT_ONCE, _BYTES_AT_ONCE // (4 * plan.n_values)))
        self._most_moved = _BYTES_MOVED_AT_ONCE // (4 * plan.n_values)
        self._part_rounds = max(_ROUNDS_BETWEEN, (plan.history_rounds or 0) // _PARTS)
        self._prepared_through = 0
        self._prepare_at = 0.0
        self._next_at = math.inf
        # Rounds before the first are done; those before the second should be.
        self._next_round = 1
        self._goal = 0
        self._rows_before: int | None = None
        self._n_deleted = 0
        self._n_delays = 0

    def start(self) -> None:
        """Look at all rounds, from the first, once the actor takes its turns."""
        self._next_round, self._goal, self._n_deleted, self._n_delays = 1, 0, 0, 0
        self._rows_before, self._prepared_through, self._prepare_at = None, 0, 0.0
        self._next_at = math.inf if self._plan.history_rounds is None else 0.0

    def wake_at(self) -> float:
        """When `advance` has something to do without a message; epoch seconds."""
        return self._next_at

    async def advance(self, open_round: int, *, may_delete: bool) -> None:
        """Drop a part, or delete a few bodies, if any are due: one short transaction.

        Args:
            may_delete: False to delete nothing at present; parts are made anyway.
        """
        horizon = self._plan.history_rounds
        if horizon is None:
            return
        await self._prepare(open_round)
        if not may_delete:
            return
        before = max(1, open_round - horizon)
        is_done = self._next_at == math.inf
        if not self._goal or (is_done and before >= self._goal + _ROUNDS_BETWEEN):
            self._goal, self._rows_before, self._next_at = before, None, 0.0
        if self._clock.now() < self._next_at:
            return
        if self._rows_before is None:
            await self._drop()
        if self._rows_before is not None:
            await self._delete(self._rows_before)

    async def _prepare(self, open_round: int) -> None:
        """Prepare parts so that bodies of future rounds can be dropped together, if the database supports it."""
        now, before = self._clock.now(), self._prepared_through
        if before - open_round > self._part_rounds // 2 or now < self._prepare_at:
            return
        interval = self._plan.unlearning.interval
        try:
            self._prepared_through = await self._store.prepare_part(open_round, self._part_rounds, interval)
        except PartsRefusedError as error:
            # Bodies are then in part 0, and are deleted row by row: rounds go on.
            log.warning("partitioning_denied", cause=str(error))
            self._prepare_at = math.inf
            return
        if self._prepared_through == before:
            self._prepare_at = now + _DELAYS_S[0]

    async def _drop(self) -> None:
        at = datetime.fromtimestamp(self._clock.now(), UTC)
        step = await self._store.drop_old_part(
            self._goal, self._plan.unlearning.interval, at, most_moved=self._most_moved
        )
        if step.is_delayed:
            delay_s = _DELAYS_S[min(self._n_delays, len(_DELAYS_S) - 1)]
            self._n_delays += 1
            if delay_s == _DELAYS_S[-1]:
                log.warning("history_thinning_delayed", before_round=self._goal, retry_s=delay_s)
            self._next_at = self._clock.now() + delay_s
            return
        self._n_delays = 0
        self._n_deleted += step.n_updates
        self._rows_before = step.rows_before
        if step.rows_before is None:
            self._next_at = self._clock.now() + _PAUSE_S

    async def _delete(self, before: int) -> None:
        if self._next_round < before:
            step = await self._store.delete_old_bodies(
                before, self._plan.unlearning.interval, first_round=self._next_round, limit=self._limit
            )
            self._next_round = step.next_round
            self._n_deleted += step.n_deleted
        if self._next_round < before:
            self._next_at = self._clock.now() + _PAUSE_S
            return
        self._next_at = math.inf
        if self._n_deleted:
            log.info("history_thinned", before_round=self._goal, n_updates=self._n_deleted)
            self._n_deleted = 0
