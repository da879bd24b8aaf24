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
    n: int = 1


@dataclass(frozen=True, slots=True)
class MembershipChange:
    """A client joined, left, came online, went offline, or was revoked by the operator.

    Attributes:
        nonce: of the message that says so.
        public_key: 32 bytes, with ``joined``; None where clients need no identity.
    """

    client_id: str
    kind: Literal["joined", "left", "online", "offline", "revoked"]
    at: datetime
    nonce: int = 0
    n_features: int | None = None
    sdk_version: str | None = None
    public_key: bytes | None = None
    enrolment_serial: int | None = None


@dataclass(frozen=True, slots=True)
class DeadlineChange:
    """The operator gave a round another deadline.

    Attributes:
        opened_at: as the federator counts; earlier than what is stored where its clock was set back since.
    """

    round: int
    opened_at: datetime
    max_time_s: float
    closes_at: datetime
    nonce: int


@dataclass(frozen=True, slots=True)
class Batch:
    """What one transaction of the federator stores. When a commit is in doubt, offer the same again.

    Attributes:
        stop_collecting: the round that these updates fill: it is aggregating from then on.
        published: the model version that the broker has taken, and when.
        withdrawn: (round, client_id) of updates that count no more; their round must be collecting.
        roster: version and signed bytes of a newer roster.
    """

    updates: Sequence[NewUpdate] = ()
    events: Sequence[NewEvent] = ()
    membership: Sequence[MembershipChange] = ()
    stop_collecting: int | None = None
    published: tuple[int, datetime] | None = None
    withdrawn: Sequence[tuple[int, str]] = ()
    roster: tuple[int, bytes] | None = None
    deadline: DeadlineChange | None = None
    batch_id: str = field(default_factory=lambda: str(uuid4()))

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to store."""
        given = (self.updates, self.events, self.membership, self.withdrawn)
        orders = (self.stop_collecting, self.published, self.roster, self.deadline)
        return not any(given) and all(order is None for order in orders)


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
    pacing: str = "deadline"
    staleness_limit: int = 0
    staleness_exponent: float = 0.5
    selection_seed: bytes | None = None
    selection_cutoff: bytes | None = None
    n_selected: int | None = None
    n_eligible: int | None = None


@dataclass(frozen=True, slots=True)
class FederationRow:
    """A stored federation."""

    name: str
    writer_epoch: int
    last_batch_id: str | None
    ranker: str
    n_features: int
    created_at: datetime
    selection_seed: bytes | None
    roster_version: int
    roster: bytes | None
    operator_nonce: int
    method: str
    hidden: int | None


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
    public_key: bytes | None
    enrolment_serial: int | None
    revoked_at: datetime | None
    membership_nonce: int
    status_nonce: int


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A stored model; ``weights`` are ``n_features`` little-endian float32 values (see `storage.tables`)."""

    federation: str
    version: int
    base_version: int | None
    round: int | None
    n_features: int
    weights: bytes
    created_at: datetime
    published_at: datetime | None
    optimizer_state: bytes | None = None


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
    pacing: str
    staleness_limit: int
    staleness_exponent: float
    selection_seed: bytes | None
    selection_cutoff: bytes | None
    n_selected: int | None
    n_eligible: int | None


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
    n: int


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
    pacing: str
    n_selected: int | None
    n_eligible: int | None


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
