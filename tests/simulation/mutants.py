"""The program with one thing wrong, to show that the simulation would see it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any
from unittest import mock

import simulation.changes
import simulation.process
import simulation.store_erasure
import simulation.store_unlearning
from simulation.database import SimulatedStore, Tables
from simulation.scenario import Operation, Scenario
from simulation.store_unlearning import SimulatedFederationStore

import foltr.federator.actor
import foltr.federator.closing.collected_updates
import foltr.federator.deciding.orders
import foltr.federator.eraser
import foltr.federator.resumption
from foltr.core.protocol.audit_heads import AuditHead
from foltr.core.protocol.receipts import ErasureNotice, ReceiptCode
from foltr.core.protocol.signed_orders import SignedOrder
from foltr.core.protocol.signing import BeatSequence, EpochSequence
from foltr.core.protocol.states import Membership
from foltr.edge_client.participation import Outgoing, Participation
from foltr.edge_client.session import Session
from foltr.edge_client.store.knowledge import KnowledgeStore
from foltr.edge_client.store.store import DeviceStore
from foltr.federator.actor import FederationActor
from foltr.federator.deciding.decisions import Decisions, PendingErasure
from foltr.federator.deciding.members import Members
from foltr.federator.deciding.state import FederationState
from foltr.federator.engine import Backlog
from foltr.federator.eraser import Eraser
from foltr.federator.job import Unlearning, UnlearningStep
from foltr.federator.job_driver import Unlearner
from foltr.federator.publishing.audit_heads import AuditHeads
from foltr.federator.round import RecordedUpdate, Round, UpdateHeader
from foltr.storage.records import Batch, ClientRow, NewOrder


def in_place_of(owner: Any, name: str, changed: Callable[..., Any]) -> Callable[[], Any]:
    """A mutant: ``changed`` takes the place of a function, and is given that first."""
    usual = getattr(owner, name)
    return partial(mock.patch.object, owner, name, lambda *args, **options: changed(usual, *args, **options))


async def _receipts_before_the_commit(
    commit: Any, self: FederationActor, decisions: Decisions, now: float, **more: Any
) -> None:
    self._receipts.send(decisions.receipts)
    decisions.receipts = []
    await commit(self, decisions, now, **more)


def _the_mark_is_not_looked_at(decide: Any, self: Round, offer: UpdateHeader, now: float, **more: Any) -> Any:
    return decide(self, offer, now, **more | {"counted_through": offer.after})


def _an_update_moves_no_mark(move: Any, tables: Tables, client_id: str, before: int, after: int) -> None:
    if after < before:
        move(tables, client_id, tables.clients[client_id].counted_through, after)


def _a_mark_moves_without_its_update(store_batch: Any, tables: Tables, batch: Batch) -> None:
    """The last client's update of each batch is lost; the memory has it, and so has its watermark."""
    *stored, lost = batch.updates or [None]
    store_batch(tables, replace(batch, updates=stored))
    if lost is not None:
        simulation.changes.move_watermark(tables, lost.client_id, lost.covers_after, lost.covers_through)


def _what_is_taken_back_goes_back_to_the_beginning(
    move: Any, self: Members, client_id: str, counted_through: int
) -> None:
    is_back = counted_through < (self.counted_through(client_id) or 0)
    move(self, client_id, 0 if is_back else counted_through)


def _devices_put_nothing_back(settle: Any, self: DeviceStore, watermark: int, *more: Any) -> Any:
    return settle(self, max(watermark, self.watermark() or 0), *more)


def _counts_by_when_it_is_looked_at(decide: Any, state: FederationState, backlog: Backlog, now: float) -> Any:
    messages = [timed._replace(at=now) for timed in backlog.messages]
    return decide(state, replace(backlog, messages=messages), now)


def _withdrawals_are_not_stored(store_batch: Any, tables: Tables, batch: Batch) -> None:
    store_batch(tables, replace(batch, withdrawn=()))


def _what_a_batch_holds_is_not_withdrawn(
    _withdraw: Any, self: Decisions, number: int, client_id: str, _withdrawn: RecordedUpdate
) -> None:
    self.withdrawn.append((number, client_id))


def _stored_round_without(**forgotten: Any) -> Callable[[], Any]:
    return in_place_of(
        foltr.federator.resumption, "resumed_round", lambda make, *args: replace(make(*args), **forgotten)
    )


@contextmanager
def _revocations_are_forgotten_at_a_restart() -> Iterator[None]:
    """Those in rows, in the roster and in orders: each of the three tells a federator what the others do."""

    def forgetful(restore: Any, self: Members, rows: list[ClientRow], _roster: bytes | None) -> None:
        restore(self, [replace(row, membership=Membership.JOINED, revoked_at=None) for row in rows], None)

    def without_revocations(restore_orders: Any, self: FederationState, rows: list[NewOrder]) -> None:
        with mock.patch.object(self.members, "revoke"):
            restore_orders(self, rows)

    with (
        in_place_of(Members, "restore", forgetful)(),
        in_place_of(FederationState, "restore_orders", without_revocations)(),
    ):
        yield


def _any_staleness_will_do(decide: Any, self: Round, *args: Any, **options: Any) -> Any:
    policy, self.policy = self.policy, replace(self.policy, staleness_limit=99)
    try:
        return decide(self, *args, **options)
    finally:
        self.policy = policy


def _devices_send_an_update_once(due: Any, self: Participation, now: float) -> list[Outgoing]:
    sent: set[str] = vars(self).setdefault("sent_once", set())
    outgoing = [item for item in due(self, now) if item is Outgoing.JOIN or self.pending.update_id not in sent]
    if Outgoing.JOIN not in outgoing and outgoing:
        sent.add(self.pending.update_id)
    return outgoing


def _orders_are_obeyed_again(
    _answer_again: Any, state: FederationState, signed: SignedOrder, _row: Any, now: float, decisions: Decisions
) -> None:
    """What comes under a number that is used up has its effect once more."""
    newest = state.last_order, state.last_digest
    vars(foltr.federator.deciding.orders)["_obey"](state, signed, now, decisions)
    state.last_order, state.last_digest = newest


async def _a_round_ends_by_a_later_clock(_turn: Any, self: FederationActor, now: float) -> None:
    """A turn as it was before the reproductions of updates in time."""
    current = self.state.round
    if current is not None and current.next_step(now) is not None:
        await self._serve_waiting(min(now, current.wake_at()))
    else:
        await self._serve(self.intake.take(foltr.federator.actor.BATCH_LIMIT), now)
    await self._end_round(self._clock.now())


async def _told_before_it_is_erased(erase: Any, self: Eraser, wanted: PendingErasure) -> Any:
    notice = ErasureNotice(federation="sim", client_id=wanted.client_id, code=ReceiptCode.FORGETTING)
    self._receipts.send([notice])
    return await erase(self, wanted)


async def _receipts_do_not_wait_for_erasures(
    commit: Any, self: FederationActor, decisions: Decisions, now: float, **more: Any
) -> None:
    """The answers to a batch are sent once it is stored, and those to be erased in it are erased then."""
    await commit(self, decisions, now, **more)
    self._receipts.send(decisions.receipts)


async def _bytes_are_left_at_a_restart(start: Any, self: Eraser, published: AuditHead | None) -> None:
    """An eraser that starts as it did before the reproductions of bytes."""
    await start(self, published)
    self._purge_due = False


async def _a_swap_waits_for_no_round(swap: Any, self: FederationActor) -> None:
    current = self.state.round
    if current is None:
        await swap(self)
        return
    contributions, current.contributions = current.contributions, {}
    try:
        await swap(self)
    finally:
        current.contributions = contributions


async def _jobs_end_with_their_federator(start: Any, self: Unlearner, seed: bytes) -> None:
    await start(self, seed)
    self.machine, self._row = Unlearning(self._policy), None


def _audit_heads_wait_for_a_start() -> Any:
    class Late(AuditHeads):
        async def start(self, published: AuditHead | None, at: datetime) -> None:
            await super().start(published, at)
            await super().publish()

        async def publish(self) -> None:
            pass

    return mock.patch.object(foltr.federator.eraser, "AuditHeads", Late)


# Each as a function that makes a context manager.
ERASURE_MUTANTS: dict[str, Callable[[], Any]] = {
    "forgotten names join again": partial(mock.patch.object, Members, "is_forgotten", return_value=False),
    "forgotten names are forgotten at a restart": in_place_of(
        Members, "restore_forgotten", lambda restore, self, key, _pseudonyms: restore(self, key, ())
    ),
    "who is to be forgotten is told before it is erased": in_place_of(Eraser, "erase", _told_before_it_is_erased),
    "receipts do not wait for erasures": in_place_of(FederationActor, "_commit", _receipts_do_not_wait_for_erasures),
    "half erased clients stay so": partial(mock.patch.object, Eraser, "start", mock.AsyncMock()),
    "keys stay": partial(mock.patch.object, SimulatedFederationStore, "destroy_key", return_value=False),
    "requests stay at the broker": partial(mock.patch.object, Eraser, "clear"),
    "bytes are left at a restart": in_place_of(Eraser, "start", _bytes_are_left_at_a_restart),
    "bytes are left at the end": partial(mock.patch.object, Eraser, "close", mock.AsyncMock()),
    "the audit log's head is published at the next start": _audit_heads_wait_for_a_start,
    "tainted models are not marked": partial(mock.patch.object, simulation.store_erasure, "taint"),
    "a swap withdraws nothing": partial(mock.patch.object, simulation.store_unlearning, "withdraw", return_value=0),
    "a swap waits for no round": in_place_of(FederationActor, "_swap", _a_swap_waits_for_no_round),
    "who is forgotten answers on": partial(mock.patch.object, UnlearningStep, "leave_out"),
    "the silent are awaited for ever": partial(mock.patch.object, UnlearningStep, "is_missed", return_value=False),
    "jobs end with their federator": in_place_of(Unlearner, "start", _jobs_end_with_their_federator),
    "a paused job stays so": partial(mock.patch.object, Unlearner, "member_returned", mock.AsyncMock()),
    "a device forgets that it asked": partial(mock.patch.object, KnowledgeStore, "forget_state", return_value=None),
}
MUTANTS: dict[str, Callable[[], Any]] = {
    "receipts are sent before the commit": in_place_of(FederationActor, "_commit", _receipts_before_the_commit),
    "the watermark is not looked at": in_place_of(Round, "decide", _the_mark_is_not_looked_at),
    "an update moves no watermark": in_place_of(simulation.changes, "move_watermark", _an_update_moves_no_mark),
    "a watermark moves without its update": in_place_of(
        simulation.changes, "store_batch", _a_mark_moves_without_its_update
    ),
    "what is taken back goes back to the beginning": in_place_of(
        Members, "move_watermark", _what_is_taken_back_goes_back_to_the_beginning
    ),
    # Neither the database nor the memory takes back what its updates cover; as it was once, when clicks were lost.
    "an abandoned round keeps its watermarks": partial(
        mock.patch.multiple, "simulation.changes", take_back_round=mock.DEFAULT
    ),
    "orders are obeyed again": in_place_of(foltr.federator.deciding.orders, "_answer_again", _orders_are_obeyed_again),
    "devices put nothing back": in_place_of(DeviceStore, "settle", _devices_put_nothing_back),
    "aggregating is not stored": partial(mock.patch.object, simulation.changes, "stop_collecting"),
    "an update counts by when it is looked at": in_place_of(
        foltr.federator.actor, "decide", _counts_by_when_it_is_looked_at
    ),
    "withdrawals are not stored": in_place_of(simulation.changes, "store_batch", _withdrawals_are_not_stored),
    "what a batch holds is not withdrawn": in_place_of(Decisions, "withdraw", _what_a_batch_holds_is_not_withdrawn),
    "the selection is forgotten at a restart": _stored_round_without(selection=None),
    "who contributed is forgotten at a restart": _stored_round_without(contributions={}),
    "revocations are forgotten at a restart": _revocations_are_forgotten_at_a_restart,
    "nobody is fenced": in_place_of(
        SimulatedStore, "transact", lambda transact, self, change, _epoch: transact(self, change, None)
    ),
    "any staleness will do": in_place_of(Round, "decide", _any_staleness_will_do),
    "stale updates weigh as much": partial(
        mock.patch.object, foltr.federator.closing.collected_updates, "staleness_weight", return_value=1.0
    ),
    "deadlines pass unseen": in_place_of(
        Round, "next_step", lambda next_step, self, _now: next_step(self, self.opened_at)
    ),
    "the federator wakes for messages only": partial(mock.patch.object, Round, "wake_at", return_value=float("inf")),
    "rounds are never full": partial(mock.patch.object, Round, "full", property(lambda _: False)),
    "announcements begin anew at a restart": partial(mock.patch.object, EpochSequence, "begin"),
    # A claim looks at no clock: it is one above what the database has, even after a database was restored.
    "the epoch is not raised": in_place_of(
        SimulatedFederationStore, "claim_federation", lambda claim, self, _at: claim(self, 0.0)
    ),
    # A claim looks at the clock and the database, and not at what the broker has.
    "nobody hears what was announced before": in_place_of(
        FederationActor, "start", lambda start, self, _newest_epoch=0, published=None: start(self, 0, published)
    ),
    "devices forget what is pending": partial(mock.patch.object, Session, "signed_pending_update", return_value=None),
    "devices send an update once": in_place_of(Participation, "due", _devices_send_an_update_once),
    # Any message about the name's membership counts as an answer to this process' own question.
    "devices take the answers to others": partial(mock.patch.object, Session, "is_of_this_session", return_value=True),
    "a round ends by a later clock": in_place_of(FederationActor, "turn", _a_round_ends_by_a_later_clock),
    # All connections of a federator are one to its heartbeat, and nothing is newer than the last will of the first.
    "last wills come too late": partial(mock.patch.object, BeatSequence, "begin_connection"),
} | ERASURE_MUTANTS

# What must happen for one to show: one of these.
_SHOWN_BY = {
    "revocations are forgotten at a restart": {Operation.REVOKE},
    "devices take the answers to others": {Operation.ENROL_ANEW, Operation.COME_BACK},
    "nobody hears what was announced before": {Operation.RESTORE_DATABASE},
}

# Seeds that have shown those that few seeds show. They are tried first; if one no longer shows its mutant, all other
# seeds are tried again, which takes minutes for some.
SEEN_IN = {
    "what is taken back goes back to the beginning": 15,
    "devices put nothing back": 10,
    "withdrawals are not stored": 75,
    "what a batch holds is not withdrawn": 170,
    "revocations are forgotten at a restart": 89,
    "the epoch is not raised": 19,
    "nobody hears what was announced before": 250,
    "devices take the answers to others": 366,
    "receipts do not wait for erasures": 70,
    "bytes are left at a restart": 106,
    "bytes are left at the end": 240,
    "a swap waits for no round": 29,
    "a paused job stays so": 294,
    "a device forgets that it asked": 22,
    "devices forget what is pending": 5,
    "stale updates weigh as much": 7,
    "an update counts by when it is looked at": 9,
    "who is forgotten answers on": 22,
}


def may_show(name: str, scenario: Scenario) -> bool:
    """Whether a scenario could tell the mutant from the program: no other one needs to be played."""
    if name in ERASURE_MUTANTS:
        return scenario.forgets
    return name not in _SHOWN_BY or any(step.operation in _SHOWN_BY[name] for step in scenario.steps)


@contextmanager
def mutated(name: str) -> Iterator[None]:
    """As long as this lasts, the program is the mutant."""
    with MUTANTS[name]():
        yield
