"""The plain values of the history views and of other queries for people."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from foltr.core.aggregation.fates import Fate
from foltr.core.protocol.states import OrderOutcome, Pacing, RoundState

BodyState = Literal["plain", "sealed", "deleted", "unreadable"]


@dataclass(frozen=True, slots=True)
class RoundHistoryRow:
    """One line of the view ``round_history``."""

    federation: str
    round: int
    state: RoundState
    reason: str | None
    opened_at: datetime
    closed_at: datetime | None
    duration_s: float | None
    base_version: int
    model_version: int | None
    n_updates: int
    n_interactions: int
    n_rejected: int
    min_clients: int
    max_clients: int
    min_time_s: float
    max_time_s: float
    pacing: Pacing
    n_selected: int | None
    n_eligible: int | None
    aggregation: str
    byzantine: float
    aggregation_parameters: str
    aggregation_fallback: str
    rule: str | None
    fallback_reason: str | None
    n_clipped: int
    n_dropped: int
    anchor_version: int | None
    n_worse: int
    n_none: int
    n_better: int
    tally_n_updates: int | None = None
    tally_worse: float | None = None
    tally_better: float | None = None
    tally_deviation: float | None = None
    n_evaluations: int = 0
    clicked: float | None = None
    reward: float | None = None
    base_reward: float | None = None
    evaluation_deviation: float | None = None


@dataclass(frozen=True, slots=True)
class ClientHistoryRow:
    """One line of the view ``client_history``: a client's contribution to a round.

    Attributes:
        body: unreadable if it is encrypted and its data key is gone, as far as keys are available.
    """

    federation: str
    client_id: str
    round: int
    update_id: str
    n_interactions: int
    n_bytes: int
    received_at: datetime
    base_version: int
    round_state: RoundState
    model_version: int | None
    fate: Fate | None
    share: float | None
    score: float | None
    fate_reason: str | None
    body: BodyState = "plain"


@dataclass(frozen=True, slots=True)
class ProposalRow:
    """A client proposed for quarantine ``n`` times since the operator last decided on it, and the newest evidence."""

    client_id: str
    n: int
    at: datetime
    round: int | None
    detail: str


@dataclass(frozen=True, slots=True)
class RoundAggregationRow:
    """A stored aggregation; ``parameters`` are JSON."""

    federation: str
    round: int
    rule: str
    parameters: str
    fallback_reason: str | None
    n_kept: int
    n_clipped: int
    n_dropped: int


@dataclass(frozen=True, slots=True)
class OrderRow:
    """A stored order of the operator, and its outcome."""

    federation: str
    number: int
    kind: str
    payload: bytes | None
    digest: bytes
    outcome: OrderOutcome
    code: str | None
    detail: str
    client_id: str | None
    at: datetime
