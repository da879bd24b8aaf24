"""Measures a federator by what it stores.

Everything that counts passes the store: only stored decisions are promised. So neither the loop nor the rounds need to
know that they are measured.
"""

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import UTC, datetime
from statistics import fmean
from typing import Any, TypeVar

from foltr.core.protocol.evaluations import Evaluation
from foltr.core.protocol.states import AbandonReason, RoundState
from foltr.federator.measures import FederatorMeasures
from foltr.storage.records import Batch, CountingUpdate, NewEvent, NewModel, RoundOpening, RoundRow

T = TypeVar("T")


class TransactionMetrics:
    """Measures a federator's transactions, in the order in which they are made."""

    def __init__(self, measures: FederatorMeasures) -> None:
        self._measures = measures
        self._opened_at: datetime | None = None
        self._closing_since: datetime | None = None
        self._earned: dict[str, Evaluation] = {}
        self._is_whole = True

    async def measure(self, make: Callable[[], Awaitable[T]], transaction: str, arguments: Sequence[Any]) -> T:
        """Measure a transaction, whether it succeeds or not."""
        began = time.monotonic()
        try:
            answer = await make()
        except Exception:
            self._measures.transactions_failed.add()
            raise
        self.record(transaction, time.monotonic() - began, arguments, answer)
        return answer

    def record(self, transaction: str, seconds: float, arguments: Sequence[Any], answer: Any) -> None:
        """Measure a committed transaction."""
        self._measures.transaction_took.observe(seconds, transaction)
        for event in _events_of(arguments):
            self._measures.events.add(of=event.kind)
            if event.code is not None:
                self._measures.refused.add(event.n, event.code)
        match transaction, arguments:
            case "commit_batch", (batch,):
                self._measures.updates.add(len(batch.updates))
                self._note_evaluations(batch)
                if batch.stop_collecting is not None:
                    self._closing_since = datetime.now(UTC)
            case "begin_aggregation", _:
                self._closing_since = datetime.now(UTC)
            case "erase_client", (request,):
                self._measures.erasures.add()
                self._earned.pop(request.client_id, None)
            case "complete_round", (_, model, closed_at, *_):
                self._completed(model, closed_at)
            case "abandon_round", (_, reason, *_):
                self._abandoned(reason)
            case "restore_anchor", (restoration, *_) if restoration.abandons is not None:
                self._abandoned(AbandonReason.MODEL_ROLLED_BACK)
            case "complete_job", (_, completion, *_) if completion.abandons is not None:
                self._abandoned(AbandonReason.UNLEARNED)
            case "load_open_round", _ if answer is not None:
                self._resumed(*answer)
            case _:
                pass
        opening = _opening_of(arguments)
        if opening is not None:
            self._begin(opening.opened_at)

    def _note_evaluations(self, batch: Batch) -> None:
        for _, client_id in batch.withdrawn:
            self._earned.pop(client_id, None)
        said = {update.client_id: update.evaluation for update in batch.updates if update.evaluation is not None}
        self._earned |= said

    def _resumed(self, row: RoundRow, updates: Sequence[CountingUpdate]) -> None:
        self._begin(row.opened_at)
        # Updates that another process has stored are not known here.
        self._is_whole = not updates
        if row.state is not RoundState.COLLECTING:
            self._closing_since = datetime.now(UTC)

    def _begin(self, opened_at: datetime) -> None:
        self._opened_at, self._closing_since = opened_at, None
        self._earned, self._is_whole = {}, True

    def _completed(self, model: NewModel, closed_at: datetime) -> None:
        self._measures.rounds.add(of=RoundState.COMPLETED)
        self._rewarded(model)
        if self._opened_at is not None:
            self._measures.round_took.observe(max(0.0, (closed_at - self._opened_at).total_seconds()))
        if self._closing_since is not None:
            self._measures.closing_took.observe(max(0.0, (datetime.now(UTC) - self._closing_since).total_seconds()))
        self._opened_at = self._closing_since = None

    def _rewarded(self, model: NewModel) -> None:
        """Measure the rewards of a round's lists, if its updates or its sums report them."""
        summed = model.evaluation
        if summed is not None:
            self._measures.reward.set(summed.reward / summed.n_updates, "shown")
            self._measures.reward.set(summed.base_reward / summed.n_updates, "base")
        elif self._earned and self._is_whole:
            self._measures.reward.set(fmean(each.reward for each in self._earned.values()), "shown")
            self._measures.reward.set(fmean(each.base_reward for each in self._earned.values()), "base")

    def _abandoned(self, reason: str) -> None:
        self._measures.rounds.add(of=RoundState.ABANDONED)
        self._measures.abandoned.add(of=reason)
        self._opened_at = self._closing_since = None


def _events_of(arguments: Iterable[Any]) -> Iterable[NewEvent]:
    """Find the events that a transaction stores, in any of its arguments."""
    for argument in arguments:
        found = argument if isinstance(argument, list | tuple) else getattr(argument, "events", ())
        yield from (event for event in found if isinstance(event, NewEvent))


def _opening_of(arguments: Iterable[Any]) -> RoundOpening | None:
    """Find the round that a transaction opens, alone or within another argument."""
    given = (one if isinstance(one, RoundOpening) else getattr(one, "next_opening", None) for one in arguments)
    return next((one for one in given if one is not None), None)
