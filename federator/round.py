"""The round's state machine: everything that decides whether an update counts and when a round ends.

Theory of operation. A round collects updates of one base model from at most ``max_clients`` distinct clients. It stops
collecting

* once ``min_clients`` have contributed, but not before ``min_time_s``,
* and in any case at its deadline, ``max_time_s`` after it opened (or as the operator ordered).

No round is shorter than ``min_time_s``: a small federation would otherwise make rounds as fast as its devices answer. A
round with a target (``fills``) ends before its deadline only with ``max_clients``.

Two policies share this. With ``deadline`` an update counts only in the round it was made for, and only on that round's
base model; the round may ask a random selection of the clients. With ``buffered`` (FedBuff; Nguyen et al. 2022,
Algorithm 1) a round is one filling of the buffer: its updates were made for this round or an earlier one, on a base
model at most ``staleness_limit`` versions old, and each is weighted by its staleness.

A round with a secure sum (`foltr.federator.summing`) goes from collecting to ``checking``, while helpers say which
clients they take out, then to ``opening``, once the sets are stored whose sums helpers should open. A client can leave
a checking round like a collecting one. But nobody can be taken out of a set that helpers were asked about: such a round
is abandoned. A client that is not in a set, e.g. because its norm proof fails, costs the others nothing. In such a
round an update counts by its participation number, ``through``: it must be above its client's watermark.

While no member is online, a round without updates begins again at its deadline: an unused federation writes no rounds.
The federation decides that (`FederationState.is_idle`), not the round.

Enough updates make a model (``aggregating``, then ``completed``); otherwise, or if aggregation fails, the round is
``abandoned`` with a reason. The deadline needs no message to fire: `Round.wake_at` says when to look again. Nothing
here reads a clock, awaits or stores; the caller commits decisions before it announces them. An event that a state does
not allow raises ProtocolViolationError and changes nothing.

Which interactions count is one number for each client, its watermark (`foltr.federator.deciding.members`): an update
counts only if it begins there. So no interaction is in two updates that count, even after abandoned rounds.

``aggregating`` is a separate, stored state because a decided round must stay decided: after a crash between the
decision and the model no further update may enter, or the receipts already sent would be untrue.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import NamedTuple

from foltr.core.aggregation.rule_spec import MEAN, RuleSpec
from foltr.core.errors import ProtocolViolationError
from foltr.core.protocol.client_selection import HIGHEST_TICKET, is_selected
from foltr.core.protocol.epochs import has_ended
from foltr.core.protocol.helper_messages import has_position
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.states import ASKING_HELPERS, WITHDRAWABLE, AbandonReason, Pacing, RoundState
from foltr.federator.secure_terms import SecureTerms
from foltr.storage.records import CountingUpdate, StoredUpdate


class RoundEvent(StrEnum):
    UPDATE_RECORDED = "update_recorded"
    UPDATE_WITHDRAWN = "update_withdrawn"
    DEADLINE_SET = "deadline_set"
    RESTARTED = "restarted"
    QUORUM_REACHED = "quorum_reached"
    TICKETS_COLLECTED = "tickets_collected"
    SETS_FIXED = "sets_fixed"
    SUMS_OPENED = "sums_opened"
    SUMS_FAILED = "sums_failed"
    DEADLINE_MISSED = "deadline_missed"
    MODEL_COMMITTED = "model_committed"
    AGGREGATION_FAILED = "aggregation_failed"
    MODEL_REPLACED = "model_replaced"


TRANSITIONS: dict[tuple[RoundState, RoundEvent], RoundState] = {
    (RoundState.COLLECTING, RoundEvent.UPDATE_RECORDED): RoundState.COLLECTING,
    (RoundState.COLLECTING, RoundEvent.UPDATE_WITHDRAWN): RoundState.COLLECTING,
    (RoundState.COLLECTING, RoundEvent.DEADLINE_SET): RoundState.COLLECTING,
    (RoundState.COLLECTING, RoundEvent.RESTARTED): RoundState.COLLECTING,
    (RoundState.COLLECTING, RoundEvent.QUORUM_REACHED): RoundState.AGGREGATING,
    (RoundState.COLLECTING, RoundEvent.TICKETS_COLLECTED): RoundState.CHECKING,
    (RoundState.COLLECTING, RoundEvent.DEADLINE_MISSED): RoundState.ABANDONED,
    (RoundState.COLLECTING, RoundEvent.MODEL_REPLACED): RoundState.ABANDONED,
    (RoundState.CHECKING, RoundEvent.UPDATE_WITHDRAWN): RoundState.CHECKING,
    (RoundState.CHECKING, RoundEvent.SETS_FIXED): RoundState.OPENING,
    (RoundState.CHECKING, RoundEvent.SUMS_FAILED): RoundState.ABANDONED,
    (RoundState.CHECKING, RoundEvent.AGGREGATION_FAILED): RoundState.ABANDONED,
    (RoundState.OPENING, RoundEvent.SUMS_OPENED): RoundState.AGGREGATING,
    (RoundState.OPENING, RoundEvent.SUMS_FAILED): RoundState.ABANDONED,
    (RoundState.OPENING, RoundEvent.AGGREGATION_FAILED): RoundState.ABANDONED,
    (RoundState.AGGREGATING, RoundEvent.MODEL_COMMITTED): RoundState.COMPLETED,
    (RoundState.AGGREGATING, RoundEvent.AGGREGATION_FAILED): RoundState.ABANDONED,
    (RoundState.AGGREGATING, RoundEvent.MODEL_REPLACED): RoundState.ABANDONED,
}


_ENDS_WITH = {
    AbandonReason.AGGREGATION_FAILED: RoundEvent.AGGREGATION_FAILED,
    AbandonReason.TOO_FEW_FOR_RULE: RoundEvent.AGGREGATION_FAILED,
    AbandonReason.ONLY_SUSPECTS: RoundEvent.AGGREGATION_FAILED,
    AbandonReason.SUM_IMPLAUSIBLE: RoundEvent.AGGREGATION_FAILED,
    AbandonReason.UNLEARNED: RoundEvent.MODEL_REPLACED,
    AbandonReason.MODEL_ROLLED_BACK: RoundEvent.MODEL_REPLACED,
    AbandonReason.COHORTS_TOO_SMALL: RoundEvent.SUMS_FAILED,
    AbandonReason.HELPERS_SILENT: RoundEvent.SUMS_FAILED,
    AbandonReason.HELPERS_REFUSED: RoundEvent.SUMS_FAILED,
    AbandonReason.CLIENT_WITHDRAWN: RoundEvent.SUMS_FAILED,
    AbandonReason.VERIFIERS_DISAGREE: RoundEvent.SUMS_FAILED,
}


@dataclass(frozen=True)
class RoundPolicy:
    """Quorum and deadline: clients are counts, times are seconds since the round opened.

    Args:
        over_selection: with ``deadline``, ask ``max_clients * (1 + over_selection)`` random clients; None asks all.
        staleness_limit: with ``buffered``, how many model versions old the base of an update may be.
        staleness_exponent: with ``buffered``, an update of staleness s weighs (1 + s) ** -staleness_exponent; 0.5 is
            FedBuff's (Nguyen et al. 2022, Section 4).
        rule: how its updates become one; it decides only after the round has ended.
        fills: whether it ends before its deadline only with ``max_clients``, its target.
    """

    min_clients: int = 1
    max_clients: int = 100
    min_time_s: float = 0.0
    max_time_s: float = 600.0
    pacing: Pacing = Pacing.DEADLINE
    over_selection: float | None = None
    staleness_limit: int = 0
    staleness_exponent: float = 0.5
    rule: RuleSpec = MEAN
    fills: bool = False

    @property
    def n_wanted(self) -> int | None:
        """How many clients a round asks; None: all."""
        return None if self.over_selection is None else math.ceil(self.max_clients * (1 + self.over_selection))


class UpdateHeader(NamedTuple):
    """The part of an update that decides whether it counts; covers interactions above ``after`` up to ``through``."""

    client_id: str
    update_id: str
    round: int
    base_version: int
    after: int
    through: int


@dataclass(frozen=True)
class RecordedUpdate:
    """An update that counts in a round. ``after`` is its client's watermark before it.

    Attributes:
        cohort, position: of a masked one; the position is its ticket's in the cohort.
    """

    update_id: str
    after: int
    cohort: int | None = None
    position: int | None = None

    @classmethod
    def by_client(cls, rows: Iterable[CountingUpdate]) -> "dict[str, RecordedUpdate]":
        """Return stored updates by client_id."""
        return {row.client_id: cls(row.update_id, row.covers_after, row.cohort, row.position) for row in rows}


@dataclass(frozen=True)
class Record:
    """The update counts: store it, then receipt it ``accepted``."""

    staleness: int = 0


@dataclass(frozen=True)
class Reject:
    """The update does not count (or counts already): receipt it with this code."""

    code: ReceiptCode
    detail: str


@dataclass(frozen=True)
class Aggregate:
    """Stop collecting and make a model of what was recorded."""


@dataclass(frozen=True)
class Abandon:
    """End the round without a model."""

    reason: AbandonReason


@dataclass(frozen=True)
class SelectedClients:
    """A random selection (`foltr.core.protocol.client_selection`): clients whose ticket is at most ``cutoff``."""

    seed: bytes
    cutoff: bytes
    n_selected: int
    n_eligible: int

    def includes(self, client_id: str) -> bool:
        return is_selected(self.seed, self.cutoff, client_id)

    @property
    def asks_all(self) -> bool:
        """Whether all clients are asked, including later ones."""
        return self.cutoff == HIGHEST_TICKET


@dataclass
class Round:
    """One round. ``contributions``: client_id to the update recorded for it. Times are epoch seconds.

    Attributes:
        terms: of its secure sum; None if the federator sees every update.
        kept: the sets that helpers are asked to open, by cohort, each as its bits; None until they are known.
        n_others: further updates that count, stored by other processes and known here only by number.
    """

    number: int
    base_version: int
    policy: RoundPolicy
    opened_at: float
    closes_at: float
    selection: SelectedClients | None = None
    state: RoundState = RoundState.COLLECTING
    contributions: dict[str, RecordedUpdate] = field(default_factory=dict)
    terms: SecureTerms | None = None
    kept: Mapping[int, bytes] | None = None
    n_others: int = 0
    _n_positions: dict[int, int] = field(default_factory=dict)

    @classmethod
    def open(
        cls,
        number: int,
        base_version: int,
        policy: RoundPolicy,
        now: float,
        selection: SelectedClients | None = None,
        terms: SecureTerms | None = None,
    ) -> "Round":
        closes_at = now + policy.max_time_s
        return cls(number, base_version, policy, now, closes_at, selection=selection, terms=terms)

    @property
    def is_after_policy(self) -> bool:
        """Whether it was opened after the end of its policy: helpers have no keys for it."""
        return self.terms is not None and has_ended(self.terms.policy.policy, self.opened_at)

    @classmethod
    def resume(
        cls,
        number: int,
        base_version: int,
        policy: RoundPolicy,
        *,
        opened_at: float,
        closes_at: float,
        state: RoundState,
        contributions: Mapping[str, RecordedUpdate],
        selection: SelectedClients | None = None,
        terms: SecureTerms | None = None,
        now: float,
        grace_s: float,
    ) -> "Round":
        """A stored round after a restart.

        Its deadline is at least ``grace_s`` away: updates that waited in the broker or on devices while the federator
        was down deserve the chance to be counted. Nor is it further away than a new round's: the clock may have been
        set back.
        """
        return cls(
            number,
            base_version,
            policy,
            opened_at=min(opened_at, now),
            closes_at=min(max(closes_at, now + grace_s), now + max(policy.max_time_s, grace_s)),
            selection=selection,
            state=state,
            contributions=dict(contributions),
            terms=terms,
            _n_positions=_positions_taken(contributions.values()),
        )

    def decide(
        self, offer: UpdateHeader, now: float, *, counted_through: int, stored: StoredUpdate | None = None
    ) -> Record | Reject:
        """Decide on an update; a recorded one is part of the round from here on.

        Args:
            counted_through: the client's watermark.
            stored: the stored update with this update_id, if any.
        """
        recorded = self.contributions.get(offer.client_id)
        if recorded is not None and recorded.update_id == offer.update_id:
            return _stored_before(StoredUpdate(self.number, counts=self.state is not RoundState.ABANDONED))
        if stored is not None:
            return _stored_before(stored)
        if offer.round > self.number:
            return Reject(ReceiptCode.UNKNOWN_ROUND, f"round {offer.round}; the newest is {self.number}")
        buffered = self.policy.pacing is Pacing.BUFFERED
        if offer.round < self.number and not buffered:
            return Reject(ReceiptCode.LATE, f"round {offer.round} is over; round {self.number} is the newest")
        if recorded is not None:
            return Reject(ReceiptCode.ALREADY_CONTRIBUTED, f"round {self.number} has another update of this client")
        if self.selection is not None and not self.selection.includes(offer.client_id):
            return Reject(ReceiptCode.NOT_SELECTED, f"round {self.number} asked others")
        if self.terms is not None and not self.terms.is_turn_of(self.number, offer.client_id):
            return Reject(ReceiptCode.NOT_SELECTED, f"round {self.number} is not this client's turn")
        if self.state is not RoundState.COLLECTING or now >= self.closes_at:
            return Reject(ReceiptCode.LATE, f"round {self.number} no longer takes updates")
        if self.full:
            return Reject(ReceiptCode.LATE, f"round {self.number} is full: it has {self.n_clients} updates")
        staleness = self.base_version - offer.base_version
        if not 0 <= staleness <= (self.policy.staleness_limit if buffered else 0):
            return Reject(ReceiptCode.STALE, self._why_stale(offer.base_version))
        if self.terms is not None:
            return self._record_masked(self.terms, offer, counted_through)
        if offer.after != counted_through:
            # Checked last: the device may send another update that begins at the watermark, and would count.
            return Reject(
                ReceiptCode.OVERLAPS,
                f"it covers interactions {offer.after + 1} to {offer.through}; those up to {counted_through} count",
            )
        self.move(RoundEvent.UPDATE_RECORDED)
        self.contributions[offer.client_id] = RecordedUpdate(offer.update_id, offer.after)
        return Record(staleness)

    def _record_masked(self, terms: SecureTerms, offer: UpdateHeader, counted_through: int) -> Record | Reject:
        """Record an update that is one participation: numbers only rise, and skipped ones are spent."""
        if offer.through <= counted_through:
            detail = f"participation {offer.through} is not above {counted_through}, the newest that counts or is spent"
            return Reject(ReceiptCode.OVERLAPS, detail)
        self.move(RoundEvent.UPDATE_RECORDED)
        cohort = terms.cohort_of(self.number, offer.client_id)
        position = self._n_positions.get(cohort, 0)
        self._n_positions[cohort] = position + 1
        self.contributions[offer.client_id] = RecordedUpdate(offer.update_id, counted_through, cohort, position)
        return Record()

    def add_stored(self, recorded: Mapping[str, RecordedUpdate]) -> None:
        """Load rows that others have stored: they decide by the same rules."""
        self.contributions.update(recorded)
        self.n_others = 0

    def withdraw(self, client_id: str) -> RecordedUpdate | None:
        """Take a client's update out of a round that is not decided; None if it has none, or the round is decided."""
        if self.state not in WITHDRAWABLE or client_id not in self.contributions:
            return None
        self.move(RoundEvent.UPDATE_WITHDRAWN)
        return self.contributions.pop(client_id)

    def is_left_out(self, client_id: str) -> bool:
        """Whether a client has contributed, but is not in the sets that helpers are asked to open."""
        recorded = self.contributions.get(client_id)
        if recorded is None or self.kept is None or recorded.cohort is None or recorded.position is None:
            return False
        kept = self.kept.get(recorded.cohort)
        return kept is None or not has_position(kept, recorded.position)

    def set_deadline(self, max_time_s: float, not_before: float = -math.inf) -> None:
        """End this round ``max_time_s`` after it opened, but not before ``not_before``.

        Updates that have arrived must not become late: the end is not stored, and another order could move it.
        """
        self.move(RoundEvent.DEADLINE_SET)
        self.closes_at = max(self.opened_at + max_time_s, not_before)
        self.policy = replace(self.policy, max_time_s=max_time_s, min_time_s=min(self.policy.min_time_s, max_time_s))

    def restart(self, now: float) -> None:
        """Restart collecting for the original time; done for a due round of an idle federation."""
        self.move(RoundEvent.RESTARTED)
        self.opened_at, self.closes_at = now, now + self.policy.max_time_s

    def next_step(self, now: float) -> Aggregate | Abandon | None:
        """What is due at ``now``; None while the round goes on collecting."""
        if self.state is RoundState.AGGREGATING:
            return Aggregate()
        if self.state is not RoundState.COLLECTING or now < self.wake_at():
            return None
        n_clients = self.n_clients
        if n_clients >= self.policy.min_clients:
            return Aggregate()
        return Abandon(AbandonReason.TOO_FEW_CLIENTS if n_clients else AbandonReason.NO_UPDATES)

    def wake_at(self) -> float:
        """When `next_step` may change without a message."""
        if self.state in ASKING_HELPERS:
            return math.inf
        if self.state is not RoundState.COLLECTING:
            return self.opened_at
        enough = self.policy.max_clients if self.policy.fills else self.policy.min_clients
        is_enough = self.n_clients >= enough
        return min(self.opened_at + self.policy.min_time_s, self.closes_at) if is_enough else self.closes_at

    def stop_collecting(self) -> None:
        self.move(RoundEvent.QUORUM_REACHED if self.terms is None else RoundEvent.TICKETS_COLLECTED)

    def complete(self) -> None:
        self.move(RoundEvent.MODEL_COMMITTED)

    def abandon(self, reason: AbandonReason) -> None:
        self.move(_ENDS_WITH.get(reason, RoundEvent.DEADLINE_MISSED))

    def _why_stale(self, base_version: int) -> str:
        limit = f"; at most {self.policy.staleness_limit} older" if self.policy.pacing is Pacing.BUFFERED else ""
        return f"trained on model {base_version}; round {self.number} is based on {self.base_version}{limit}"

    @property
    def asks_all(self) -> bool:
        """Whether it asks all clients: none is left out by chance, or waits for a turn."""
        by_turns = self.terms is not None and self.terms.policy.policy.period > 1
        return not by_turns and (self.selection is None or self.selection.asks_all)

    @property
    def n_clients(self) -> int:
        """How many clients have contributed."""
        return len(self.contributions) + self.n_others

    @property
    def full(self) -> bool:
        return self.n_clients >= self.policy.max_clients

    def move(self, event: RoundEvent) -> None:
        """Change the state by the table for an event, or raise and change nothing."""
        following = TRANSITIONS.get((self.state, event))
        if following is None:
            raise ProtocolViolationError(f"round {self.number} is {self.state}: {event} is not allowed")
        self.state = following


def _positions_taken(recorded: Iterable[RecordedUpdate]) -> dict[int, int]:
    """How many positions each cohort has, including those of clients that left."""
    taken: dict[int, int] = {}
    for update in recorded:
        if update.cohort is not None and update.position is not None:
            taken[update.cohort] = max(taken.get(update.cohort, 0), update.position + 1)
    return taken


def _stored_before(stored: StoredUpdate) -> Reject:
    if stored.counts:
        return Reject(ReceiptCode.DUPLICATE, f"counted once, in round {stored.round}")
    return Reject(ReceiptCode.ROUND_ABANDONED, f"round {stored.round} ended without a model")
