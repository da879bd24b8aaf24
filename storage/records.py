"""The plain values that go into and come out of the database.

A ``...Row`` mirrors its table or view: same fields, same order (a test compares them), so that a stored row
becomes a record by position.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal
from uuid import uuid4

RoundState = Literal["collecting", "aggregating", "completed", "abandoned"]
Membership = Literal["joined", "left"]


@dataclass(frozen=True, slots=True)
class NewUpdate:
    """An accepted update, about to be stored."""

    round: int
    client_id: str
    update_id: str
    base_version: int
    n_interactions: int
    encoding: str
    body: bytes
    received_at: datetime


@dataclass(frozen=True, slots=True)
class NewEvent:
    """Something to remember. Texts may come from a peer as they are: storing cuts and cleans them."""

    at: datetime
    kind: str
    detail: str = ""
    code: str | None = None
    client_id: str | None = None
    round: int | None = None


@dataclass(frozen=True, slots=True)
class MembershipChange:
    """A client joined, left, came online or went offline."""

    client_id: str
    kind: Literal["joined", "left", "online", "offline"]
    at: datetime
    n_features: int | None = None
    sdk_version: str | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """What one transaction of the federator stores. When a commit is in doubt, offer the same again.

    Attributes:
        stop_collecting: the round that these updates fill: it is aggregating from then on.
        published: the model version that the broker has taken, and when.
    """

    updates: Sequence[NewUpdate] = ()
    events: Sequence[NewEvent] = ()
    membership: Sequence[MembershipChange] = ()
    stop_collecting: int | None = None
    published: tuple[int, datetime] | None = None
    batch_id: str = field(default_factory=lambda: str(uuid4()))

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to store."""
        parts = (self.updates, self.events, self.membership, self.stop_collecting is not None, self.published)
        return not any(parts)


@dataclass(frozen=True, slots=True)
class RoundOpening:
    """A round about to open."""

    number: int
    base_version: int
    min_clients: int
    max_clients: int
    min_time_s: float
    max_time_s: float
    opened_at: datetime
    closes_at: datetime


@dataclass(frozen=True, slots=True)
class FederationRow:
    """A stored federation."""

    name: str
    writer_epoch: int
    last_batch_id: str | None
    ranker: str
    n_features: int
    created_at: datetime


@dataclass(frozen=True, slots=True)
class ClientRow:
    """A stored client."""

    federation: str
    client_id: str
    membership: Membership
    online: bool
    joined_at: datetime
    left_at: datetime | None
    last_seen_at: datetime
    n_features: int | None
    sdk_version: str | None


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A stored model; ``weights`` are little-endian float32."""

    federation: str
    version: int
    base_version: int | None
    round: int | None
    n_features: int
    weights: bytes
    created_at: datetime
    published_at: datetime | None


@dataclass(frozen=True, slots=True)
class RoundRow:
    """A stored round."""

    federation: str
    number: int
    state: RoundState
    base_version: int
    min_clients: int
    max_clients: int
    min_time_s: float
    max_time_s: float
    opened_at: datetime
    closes_at: datetime
    closed_at: datetime | None
    reason: str | None
    n_updates: int | None
    n_interactions: int | None
    model_version: int | None


@dataclass(frozen=True, slots=True)
class UpdateRow:
    """A stored update."""

    federation: str
    round: int
    client_id: str
    update_id: str
    base_version: int
    n_interactions: int
    encoding: str
    n_bytes: int
    received_at: datetime
    body: bytes


@dataclass(frozen=True, slots=True)
class EventRow:
    """A stored event."""

    id: int
    federation: str
    at: datetime
    kind: str
    code: str | None
    client_id: str | None
    round: int | None
    detail: str


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


@dataclass(frozen=True, slots=True)
class ClientHistoryRow:
    """One line of the view ``client_history``: what a client contributed to a round."""

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
