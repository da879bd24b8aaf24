"""Measures and traces a federator by what it stores.

All that counts passes the store: what was stored was promised, and nothing else was. So neither the loop nor the rounds
know that they are measured.
"""

import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from statistics import fmean
from typing import Any, TypeVar

from foltr.core.protocol.evaluations import Evaluation
from foltr.core.protocol.states import AbandonReason, RoundState
from foltr.core.tracing import NO_SPAN, NO_TRACER, Attributes, Span, Tracer
from foltr.federator.measures import FederatorMeasures
from foltr.storage.records import Batch, CountingUpdate, NewEvent, NewModel, RoundOpening, RoundRow

T = TypeVar("T")

# Traced are transactions that write: a trace of a round is to be read, and what is read has no end.
_TRACED = (
    *("commit_batch", "begin_aggregation", "complete_round", "abandon_round", "restore_anchor", "open_round"),
    *("begin_opening", "store_answers", "begin_summing", "erase_client", "commit_step", "complete_job"),
)


class Watch:
    """What is seen of a federator's transactions, in the order in which they are made."""

    def __init__(self, measures: FederatorMeasures, tracer: Tracer = NO_TRACER) -> None:
        self._measures = measures
        self._tracer = tracer
        self._round: Span = NO_SPAN
        self._opened_at: datetime | None = None
        self._closing_since: datetime | None = None
        self._earned: dict[str, Evaluation] = {}
        self._is_whole = True

    async def measured(self, make: Callable[[], Awaitable[T]], transaction: str, arguments: Sequence[Any]) -> T:
        """Note a transaction, once the database has made it or has not."""
        began = time.monotonic()
        try:
            with self.span(transaction, arguments):
                answer = await make()
        except Exception:
            self._measures.transactions_failed.add()
            raise
        self.made(transaction, time.monotonic() - began, arguments, answer)
        return answer

    def span(self, transaction: str, arguments: Iterable[Any]) -> AbstractContextManager[None]:
        """Trace a transaction as a part of the open round, if it is one that writes."""
        if transaction not in _TRACED:
            return nullcontext()
        sizes: dict[str, int] = {}
        for batch in arguments:
            if isinstance(batch, Batch):
                sizes |= {"n_updates": len(batch.updates), "n_events": len(batch.events)}
        return self._round.child(transaction, sizes)

    def made(self, transaction: str, seconds: float, arguments: Sequence[Any], answer: Any) -> None:
        """Note a transaction that the database has made."""
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
            case "abandon_round", (_, reason, closed_at, *_):
                self._abandoned(reason, closed_at)
            case "restore_anchor", (restoration, *_) if restoration.abandons is not None:
                self._abandoned(AbandonReason.MODEL_TAKEN_BACK, restoration.restored_at)
            case "complete_job", (_, completion, *_) if completion.abandons is not None:
                self._abandoned(AbandonReason.UNLEARNED, completion.completed_at)
            case "load_open_round", _ if answer is not None:
                self._resumed(*answer)
            case _:
                pass
        opening = _opening_of(arguments)
        if opening is not None:
            self._begin(opening.number, opening.opened_at)

    def _note_evaluations(self, batch: Batch) -> None:
        for _, client_id in batch.withdrawn:
            self._earned.pop(client_id, None)
        said = {update.client_id: update.evaluation for update in batch.updates if update.evaluation is not None}
        self._earned |= said

    def _resumed(self, row: RoundRow, updates: Sequence[CountingUpdate]) -> None:
        self._begin(row.number, row.opened_at)
        # What those say that another process has stored is not known here.
        self._is_whole = not updates
        if row.state is not RoundState.COLLECTING:
            self._closing_since = datetime.now(UTC)

    def _begin(self, number: int, opened_at: datetime) -> None:
        self._opened_at, self._closing_since = opened_at, None
        self._earned, self._is_whole = {}, True
        self._round = self._tracer.begin("round", opened_at.timestamp(), {"round": number})

    def _completed(self, model: NewModel, closed_at: datetime) -> None:
        self._measures.rounds.add(of=RoundState.COMPLETED)
        self._rewarded(model)
        if self._opened_at is not None:
            self._measures.round_took.observe(max(0.0, (closed_at - self._opened_at).total_seconds()))
        if self._closing_since is not None:
            began, ended = self._closing_since.timestamp(), datetime.now(UTC).timestamp()
            self._measures.closing_took.observe(max(0.0, ended - began))
            self._round.note("aggregation", began, ended)
        self._end(closed_at, {"state": RoundState.COMPLETED, "model": model.version})

    def _rewarded(self, model: NewModel) -> None:
        """Measure what a round's lists have earned, where its updates or its sums say so."""
        summed = model.evaluation
        if summed is not None:
            self._measures.reward.set(summed.reward / summed.n_updates, "shown")
            self._measures.reward.set(summed.base_reward / summed.n_updates, "base")
        elif self._earned and self._is_whole:
            self._measures.reward.set(fmean(each.reward for each in self._earned.values()), "shown")
            self._measures.reward.set(fmean(each.base_reward for each in self._earned.values()), "base")

    def _abandoned(self, reason: str, closed_at: datetime) -> None:
        self._measures.rounds.add(of=RoundState.ABANDONED)
        self._measures.abandoned.add(of=reason)
        self._end(closed_at, {"state": RoundState.ABANDONED, "reason": reason})

    def _end(self, closed_at: datetime, attributes: Attributes) -> None:
        self._round.end(closed_at.timestamp(), attributes)
        self._round, self._opened_at, self._closing_since = NO_SPAN, None, None


def _events_of(arguments: Iterable[Any]) -> Iterable[NewEvent]:
    """Find the events that a transaction stores, wherever its arguments have them."""
    for argument in arguments:
        found = argument if isinstance(argument, list | tuple) else getattr(argument, "events", ())
        yield from (event for event in found if isinstance(event, NewEvent))


def _opening_of(arguments: Iterable[Any]) -> RoundOpening | None:
    """Find the round that a transaction opens, by itself or with what it is about."""
    given = (one if isinstance(one, RoundOpening) else getattr(one, "next_opening", None) for one in arguments)
    return next((one for one in given if one is not None), None)
