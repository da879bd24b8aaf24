"""The round's state machine: everything that decides whether an update counts and when a round ends.

Theory of operation. A round collects updates of one base model from distinct clients. It stops collecting

* at once when ``max_clients`` have contributed (nobody else could),
* after ``min_time_s`` as soon as ``min_clients`` have,
* and at its deadline, ``max_time_s`` after it opened, whatever has arrived.

Enough updates make a model (``aggregating``, then ``completed``); otherwise the round is ``abandoned`` with a
reason, and so it is when aggregation fails. The deadline needs no message to fire: `Round.wake_at` says when
to look again. Nothing here reads a clock, awaits or stores; the caller commits what was decided before it
tells anyone. An event that a state does not allow raises ProtocolViolationError and changes nothing.

``aggregating`` is a state of its own, and stored, because a decided round must stay decided: after a crash
between the decision and the model no further update may enter, or the receipts already sent would be untrue.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from foltr.errors import ProtocolViolationError
from foltr.messages import ReceiptCode


class RoundState(StrEnum):
    COLLECTING = "collecting"
    AGGREGATING = "aggregating"
    COMPLETED = "completed"
    ABANDONED = "abandoned"


class RoundEvent(StrEnum):
    UPDATE_RECORDED = "update_recorded"
    QUORUM_REACHED = "quorum_reached"
    DEADLINE_MISSED = "deadline_missed"
    MODEL_COMMITTED = "model_committed"
    AGGREGATION_FAILED = "aggregation_failed"


TRANSITIONS: dict[tuple[RoundState, RoundEvent], RoundState] = {
    (RoundState.COLLECTING, RoundEvent.UPDATE_RECORDED): RoundState.COLLECTING,
    (RoundState.COLLECTING, RoundEvent.QUORUM_REACHED): RoundState.AGGREGATING,
    (RoundState.COLLECTING, RoundEvent.DEADLINE_MISSED): RoundState.ABANDONED,
    (RoundState.AGGREGATING, RoundEvent.MODEL_COMMITTED): RoundState.COMPLETED,
    (RoundState.AGGREGATING, RoundEvent.AGGREGATION_FAILED): RoundState.ABANDONED,
}


class AbandonReason(StrEnum):
    """Why a round ended without a model."""

    NO_UPDATES = "no_updates"
    TOO_FEW_CLIENTS = "too_few_clients"
    AGGREGATION_FAILED = "aggregation_failed"


@dataclass(frozen=True)
class RoundPolicy:
    """Quorum and deadline: clients are counts, times are seconds since the round opened."""

    min_clients: int = 1
    max_clients: int = 100
    min_time_s: float = 0.0
    max_time_s: float = 600.0


@dataclass(frozen=True)
class Offer:
    """The part of an update that decides whether it counts."""

    client_id: str
    update_id: str
    round: int
    base_version: int


@dataclass(frozen=True)
class Record:
    """The update counts: store it, then receipt it ``accepted``."""


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


@dataclass
class Round:
    """One round. ``contributions``: client_id to the update_id recorded for it. Times are epoch seconds."""

    number: int
    base_version: int
    policy: RoundPolicy
    opened_at: float
    closes_at: float
    state: RoundState = RoundState.COLLECTING
    contributions: dict[str, str] = field(default_factory=dict)

    @classmethod
    def open(cls, number: int, base_version: int, policy: RoundPolicy, now: float) -> "Round":
        return cls(number, base_version, policy, opened_at=now, closes_at=now + policy.max_time_s)

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
        contributions: Mapping[str, str],
        now: float,
        grace_s: float,
    ) -> "Round":
        """A stored round after a restart.

        Its deadline is at least ``grace_s`` away: updates that waited in the broker or on devices while the
        federator was down deserve the chance to be counted before the round is given up. Nor is it further away
        than a new round's would be: the clock may have been set back since.
        """
        return cls(
            number,
            base_version,
            policy,
            opened_at=min(opened_at, now),
            closes_at=min(max(closes_at, now + grace_s), now + max(policy.max_time_s, grace_s)),
            state=state,
            contributions=dict(contributions),
        )

    def decide(self, offer: Offer, now: float, *, stored_in_round: int | None = None) -> Record | Reject:
        """Decide on an update; a recorded one is part of the round from here on.

        Args:
            stored_in_round: the round in which this very update_id is stored already, if it is.
        """
        recorded = self.contributions.get(offer.client_id)
        if recorded == offer.update_id or stored_in_round is not None:
            counted_in = self.number if stored_in_round is None else stored_in_round
            return Reject(ReceiptCode.DUPLICATE, f"counted once, in round {counted_in}")
        if offer.round > self.number:
            return Reject(ReceiptCode.UNKNOWN_ROUND, f"round {offer.round}; the newest is {self.number}")
        if offer.round < self.number:
            return Reject(ReceiptCode.LATE, f"round {offer.round} is over; round {self.number} is open")
        if recorded is not None:
            return Reject(ReceiptCode.ALREADY_CONTRIBUTED, f"round {self.number} has update {recorded} of this client")
        if self.state is not RoundState.COLLECTING or now >= self.closes_at or self._full:
            return Reject(ReceiptCode.LATE, f"round {self.number} no longer takes updates")
        if offer.base_version != self.base_version:
            return Reject(
                ReceiptCode.STALE,
                f"trained on model {offer.base_version}; round {self.number} is based on {self.base_version}",
            )
        self._move(RoundEvent.UPDATE_RECORDED)
        self.contributions[offer.client_id] = offer.update_id
        return Record()

    def next_step(self, now: float) -> Aggregate | Abandon | None:
        """What is due at ``now``; None while the round goes on collecting."""
        if self.state is RoundState.AGGREGATING:
            return Aggregate()
        if self.state is not RoundState.COLLECTING:
            return None
        n_clients = len(self.contributions)
        quorum = n_clients >= self.policy.min_clients
        if self._full or (quorum and now >= min(self.opened_at + self.policy.min_time_s, self.closes_at)):
            return Aggregate()
        if now >= self.closes_at:
            return Abandon(AbandonReason.TOO_FEW_CLIENTS if n_clients else AbandonReason.NO_UPDATES)
        return None

    def wake_at(self) -> float:
        """When `next_step` may change its answer although no message arrived."""
        if self.state is not RoundState.COLLECTING or self._full:
            return self.opened_at
        quorum = len(self.contributions) >= self.policy.min_clients
        return min(self.opened_at + self.policy.min_time_s, self.closes_at) if quorum else self.closes_at

    def stop_collecting(self) -> None:
        self._move(RoundEvent.QUORUM_REACHED)

    def complete(self) -> None:
        self._move(RoundEvent.MODEL_COMMITTED)

    def abandon(self, reason: AbandonReason) -> None:
        failed = reason is AbandonReason.AGGREGATION_FAILED
        self._move(RoundEvent.AGGREGATION_FAILED if failed else RoundEvent.DEADLINE_MISSED)

    @property
    def _full(self) -> bool:
        return len(self.contributions) >= self.policy.max_clients

    def _move(self, event: RoundEvent) -> None:
        following = TRANSITIONS.get((self.state, event))
        if following is None:
            raise ProtocolViolationError(f"round {self.number} is {self.state}: {event} is not allowed")
        self.state = following
