"""The plain values that go into and come out of the database.

A ``...Row`` mirrors its table or view: its fields are the columns (a test compares them), and a stored row becomes a
record by their names.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Literal
from uuid import uuid4

from foltr.core.aggregation.fates import Fate
from foltr.core.aggregation.vote_result import RoundEvaluation, RoundTally
from foltr.core.protocol.evaluations import Evaluation
from foltr.core.protocol.helper_messages import TicketFault
from foltr.core.protocol.states import Membership, OrderOutcome, Pacing, Privacy, RoundState
from foltr.core.protocol.trainings import Activation
from foltr.storage.sum_records import PolicyRecord


@dataclass(frozen=True, slots=True)
class NewUpdate:
    """An accepted update, about to be stored.

    Attributes:
        cohort, position, ticket: of a masked one; the position is its ticket's in the cohort.
        vote: of the newest model against its round's anchor: -1 worse, 0 undecided, 1 better; None: without a vote.
        evaluation: the reward of its lists; None: without one.
    """

    round: int
    client_id: str
    update_id: str
    base_version: int
    covers_after: int
    covers_through: int
    n_interactions: int
    encoding: str
    body: bytes
    received_at: datetime
    cohort: int | None = None
    position: int | None = None
    ticket: bytes | None = None
    vote: int | None = None
    evaluation: Evaluation | None = None


@dataclass(frozen=True, slots=True)
class StoredUpdate:
    """A stored update. It ``counts`` unless its round ended without a model."""

    round: int
    counts: bool


@dataclass(frozen=True, slots=True)
class CountingUpdate:
    """An update that counts in the open round; ``covers_after`` is its client's watermark before it."""

    client_id: str
    update_id: str
    covers_after: int
    cohort: int | None = None
    position: int | None = None


@dataclass(frozen=True, slots=True)
class NewEvent:
    """Something to remember. Texts may come from a peer unchecked: storing cuts and cleans them."""

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
        sequence: of the message that reports it.
        public_key: 32 bytes, with ``joined``; None if clients need no identity.
        enrolment: with ``joined``, the signed one it showed.
        online: with ``joined``, whether it is connected, as `foltr.federator.deciding.members` decides.
        status_sequence: with ``joined``, of its newest status, as `foltr.federator.deciding.members` decides.
    """

    client_id: str
    kind: Literal["joined", "left", "online", "offline", "revoked"]
    at: datetime
    sequence: int = 0
    sdk_version: str | None = None
    public_key: bytes | None = None
    enrolment_serial: int | None = None
    online: bool = True
    status_sequence: int = 0
    enrolment: bytes | None = None


@dataclass(frozen=True, slots=True)
class DeadlineChange:
    """A round has a new deadline: the operator ordered it, a policy arrived, or no client was online.

    Attributes:
        opened_at: by the federator's clock; earlier than the stored time if its clock was set back since.
    """

    round: int
    opened_at: datetime
    max_time_s: float
    closes_at: datetime


@dataclass(frozen=True, slots=True)
class ResetAllowed:
    """The operator ordered that an unlearning job may put the first model in service."""

    job: int
    at: datetime


@dataclass(frozen=True, slots=True)
class QuarantineChange:
    """The operator put a client into quarantine, or lifted it.

    Attributes:
        reason: the operator's text; None lifts the quarantine.
    """

    client_id: str
    at: datetime
    reason: str | None


@dataclass(frozen=True, slots=True)
class NewOrder:
    """An order of the operator with its outcome; stored in one transaction with its effect.

    Attributes:
        payload: as signed; None if it names a forgotten client.
        digest: SHA-256 of it.
        code: why it was refused; None if it was carried out.
        client_id: the client it names, if any.
    """

    number: int
    kind: str
    payload: bytes | None
    digest: bytes
    outcome: OrderOutcome
    at: datetime
    code: str | None = None
    detail: str = ""
    client_id: str | None = None

    def refused(self, code: str, detail: str) -> "NewOrder":
        """The same order, refused."""
        return replace(self, outcome=OrderOutcome.REFUSED, code=code, detail=detail)

    def naming_nobody(self) -> "NewOrder":
        """The same order without the name in it."""
        return replace(self, payload=None, client_id=None)


@dataclass(frozen=True, slots=True)
class Batch:
    """What one transaction of the federator stores. When a commit is in doubt, offer the same again.

    Attributes:
        stop_collecting: the round that these updates fill: it is aggregating from then on.
        published: the model version that the broker has taken, and when.
        withdrawn: (round, client_id) of updates that no longer count, and whose clients' watermarks go back; their
            round must be collecting.
        roster: version and signed bytes of a newer roster.
        orders: those carried out or refused, in order.
        policy: a newer policy of the operator.
        allowed_reset: the job that was ordered to go on.
    """

    updates: Sequence[NewUpdate] = ()
    events: Sequence[NewEvent] = ()
    membership: Sequence[MembershipChange] = ()
    stop_collecting: int | None = None
    published: tuple[int, datetime] | None = None
    withdrawn: Sequence[tuple[int, str]] = ()
    roster: tuple[int, bytes] | None = None
    deadline: DeadlineChange | None = None
    quarantines: Sequence[QuarantineChange] = ()
    orders: Sequence[NewOrder] = ()
    policy: PolicyRecord | None = None
    allowed_reset: ResetAllowed | None = None
    batch_id: str = field(default_factory=lambda: str(uuid4()))

    @property
    def is_empty(self) -> bool:
        """Whether the batch is empty."""
        given = (self.updates, self.events, self.membership, self.withdrawn, self.quarantines, self.orders)
        changes = (self.stop_collecting, self.published, self.roster, self.deadline, self.policy, self.allowed_reset)
        return not any(given) and all(change is None for change in changes)

    @property
    def only_refuses(self) -> bool:
        """Whether it stores only refusals, which promise nothing to anybody."""
        refusals = [event for event in self.events if event.code is not None]
        return replace(self, events=()).is_empty and len(refusals) == len(self.events) > 0


@dataclass(frozen=True, slots=True)
class RoundOpening:
    """A round about to open.

    Attributes:
        anchor_version: of the model that devices compare the newest with; None: no comparison.
        period_s: how often devices should connect; None: they stay connected.
    """

    number: int
    base_version: int
    min_clients: int
    max_clients: int
    min_time_s: float
    max_time_s: float
    opened_at: datetime
    closes_at: datetime
    pacing: Pacing = Pacing.DEADLINE
    staleness_limit: int = 0
    staleness_exponent: float = 0.5
    selection_seed: bytes | None = None
    selection_cutoff: bytes | None = None
    n_selected: int | None = None
    n_eligible: int | None = None
    aggregation: str = "mean"
    byzantine: float = 0.2
    aggregation_parameters: str = "{}"
    aggregation_fallback: str = "median"
    policy_hash: bytes | None = None
    clip_norm: float | None = None
    anchor_version: int | None = None
    period_s: float | None = None


@dataclass(frozen=True, slots=True)
class NewFate:
    """What a rule did with one update. ``share`` and ``score`` may be any number; storing cleans them."""

    client_id: str
    fate: Fate
    share: float | None
    score: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class NewAggregation:
    """How a round was aggregated; ``parameters`` are JSON. Fates of all its updates, or none: all were kept.

    Attributes:
        of_sums: the fates are those of its sums, in order of cohort.
    """

    rule: str
    parameters: str
    fallback_reason: str | None
    fates: Sequence[NewFate] = ()
    of_sums: bool = False


@dataclass(frozen=True, slots=True)
class NewModel:
    """A model about to be stored, with what the federator keeps from round to round.

    Attributes:
        aggregation: None for the plain mean.
        events: findings from its making.
        tally: of the votes in its round's secure sums; None without sums or an anchor.
        evaluation: the result of the evaluations in its round's secure sums; None without any.
    """

    version: int
    weights: bytes
    optimizer_state: bytes | None = None
    defence_state: bytes | None = None
    aggregation: NewAggregation | None = None
    events: Sequence[NewEvent] = ()
    tally: RoundTally | None = None
    evaluation: RoundEvaluation | None = None


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
    last_order: int
    method: str
    hidden: int | None
    aggregation_seed: bytes | None
    pseudonym_key: bytes | None
    n_deletions: int
    n_purged: int
    privacy: Privacy = Privacy.TRUSTED
    schema_hash: bytes | None = None
    activation: Activation | None = None


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
    sdk_version: str | None
    public_key: bytes | None
    enrolment_serial: int | None
    revoked_at: datetime | None
    membership_sequence: int
    status_sequence: int
    quarantined_at: datetime | None
    quarantine_reason: str | None
    counted_through: int = 0
    enrolment: bytes | None = None


@dataclass(frozen=True, slots=True)
class ModelRow:
    """A stored model; ``weights`` are ``n_values`` little-endian float32 values (see `foltr.storage.tables`).

    Attributes:
        weights: empty once the model is withdrawn.
        round: None for version 0, and for a model from an unlearning job or a restore.
        restored_version: for a restored one, the model whose weights it has.
    """

    federation: str
    version: int
    base_version: int | None
    round: int | None
    n_values: int
    weights: bytes
    weights_hash: bytes
    created_at: datetime
    published_at: datetime | None
    optimizer_state: bytes | None = None
    defence_state: bytes | None = None
    tainted_at: datetime | None = None
    withdrawn_at: datetime | None = None
    unlearning_job: int | None = None
    restored_version: int | None = None


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
    pacing: Pacing
    staleness_limit: int
    staleness_exponent: float
    selection_seed: bytes | None
    selection_cutoff: bytes | None
    n_selected: int | None
    n_eligible: int | None
    aggregation: str
    byzantine: float
    aggregation_parameters: str
    aggregation_fallback: str
    policy_hash: bytes | None = None
    clip_norm: float | None = None
    anchor_version: int | None = None
    period_s: float | None = None
    part: int = 0


@dataclass(frozen=True, slots=True)
class UpdateRow:
    """A stored update with its body as sent; ``cipher`` says how the database encrypts it."""

    federation: str
    round: int
    client_id: str
    update_id: str
    base_version: int
    n_interactions: int
    encoding: str
    n_bytes: int
    received_at: datetime
    covers_after: int | None
    covers_through: int | None
    cohort: int | None
    position: int | None
    fault: TicketFault | None
    vote: int | None
    clicked: float | None
    reward: float | None
    base_reward: float | None
    credit_total: float | None
    credit_squares: float | None
    cipher: str
    key_fingerprint: bytes | None
    ticket: bytes | None
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
    minute: int | None
