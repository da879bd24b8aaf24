"""Lets go of old updates, a few at a time between messages, so that no round and no receipt waits for it."""

import math

import structlog

from federator.clock import Clock
from federator.plan import FederationPlan
from federator.store import FederationStore

log = structlog.get_logger(__name__)

# Not after every round: each look costs a question to the database.
_ROUNDS_BETWEEN = 50
_UPDATES_AT_ONCE = 200
_BYTES_AT_ONCE = 256 * 1024
# A federation that is given a horizon late has much to delete: the disk is for the rounds in between.
_PAUSE_S = 0.05


class Retention:
    """Deletes what the plan's ``history_rounds`` gives up. Only the federation's single writer calls it.

    Nothing but the rows says how far it has come: the next federator looks through all rounds once, as this one does.
    """

    def __init__(self, plan: FederationPlan, store: FederationStore, clock: Clock) -> None:
        self._plan = plan
        self._store = store
        self._clock = clock
        self._limit = max(1, min(_UPDATES_AT_ONCE, _BYTES_AT_ONCE // (4 * plan.n_values)))
        self._next_at = math.inf
        # All rounds before the first are done; those before the second are to be.
        self._next_round = 1
        self._goal = 0
        self._n_deleted = 0

    def start(self) -> None:
        """Look at all rounds, from the first, once the actor takes its turns."""
        self._next_round, self._goal, self._n_deleted = 1, 0, 0
        self._next_at = math.inf if self._plan.history_rounds is None else 0.0

    def wake_at(self) -> float:
        """When `advance` has something to do although no message arrived; epoch seconds."""
        return self._next_at

    async def advance(self, open_round: int) -> None:
        """Delete a few updates, if some are due: one short transaction."""
        horizon = self._plan.history_rounds
        if horizon is None:
            return
        before = max(1, open_round - horizon)
        if not self._goal or (self._next_round >= self._goal and before >= self._goal + _ROUNDS_BETWEEN):
            self._goal, self._next_at = before, 0.0
        if self._clock.now() < self._next_at:
            return
        step = await self._store.delete_old_bodies(
            self._goal, self._plan.unlearning.interval, first_round=self._next_round, limit=self._limit
        )
        self._next_round = step.next_round
        self._n_deleted += step.n_deleted
        if self._next_round < self._goal:
            self._next_at = self._clock.now() + _PAUSE_S
            return
        self._next_at = math.inf
        if self._n_deleted:
            log.info("history_thinned", before_round=self._goal, n_updates=self._n_deleted)
            self._n_deleted = 0
