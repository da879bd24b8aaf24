"""The plain values of erasure and unlearning; a ``...Row`` mirrors its table (see `foltr.storage.records`)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

from foltr.core.erasure.audit import AuditEntry
from foltr.core.erasure.states import ErasureState, Requester
from foltr.core.protocol.states import JobState, Strategy
from foltr.storage.records import NewEvent, NewOrder, RoundOpening


@dataclass(frozen=True, slots=True)
class ErasureRequest:
    """A client to be forgotten.

    Attributes:
        events: stored in the same transaction. They name the pseudonym, never the client.
        order: of the operator; None without one.
    """

    client_id: str
    pseudonym: str
    requested_at: datetime
    requested_by: Requester
    erased_at: datetime
    events: Sequence[NewEvent] = ()
    order: NewOrder | None = None


@dataclass(frozen=True, slots=True)
class ErasureRow:
    """A stored erasure.

    Attributes:
        client_id: None once its device was notified.
        n_rounds: completed rounds with its updates; 0: nothing to unlearn.
        n_updates: deleted ones, including those of rounds without a model.
        erased_digest: see `foltr.core.erasure.digests`.
    """

    federation: str
    pseudonym: str
    client_id: str | None
    state: ErasureState
    requested_at: datetime
    requested_by: Requester
    erased_at: datetime
    completed_at: datetime | None
    n_rounds: int
    n_updates: int
    n_events: int
    erased_digest: str
    first_round: int | None
    key_fingerprint: bytes | None
    key_destroyed: bool
    told: bool
    job: int | None
    receipt: str | None
    audit_seq: int | None
    overdue_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Gathered:
    """What decides when the next unlearning job begins.

    Attributes:
        oldest_at: when the oldest waiting erasure was requested; None if none waits.
        swapped_at: when a job's model was last put in service, if ever.
    """

    n_waiting: int
    oldest_at: datetime | None
    swapped_at: datetime | None


@dataclass(frozen=True, slots=True)
class HeldReset:
    """An unlearning job that would put the first model in service, and waits for the operator's order.

    Attributes:
        job: the number that it would have.
        n_updates: of remaining clients, in completed rounds from the first to the last: their effect is lost.
        n_clients: the number of clients with these updates.
        ordered_at: None until it is ordered.
    """

    job: int
    held_at: datetime
    first_round: int
    last_round: int
    n_updates: int
    n_clients: int
    ordered_at: datetime | None = None

    @property
    def cost(self) -> str:
        """A sentence about the loss."""
        clients = "one client" if self.n_clients == 1 else f"{self.n_clients} clients"
        return (
            f"job {self.job} puts the first model in service, and what {self.n_updates} updates of {clients} "
            f"taught in rounds {self.first_round} to {self.last_round}, and since, is lost"
        )

    @property
    def in_words(self) -> str:
        """A sentence about what it waits for, and the cost."""
        return f"Waits for the operator: {self.cost}. Order it: foltr erasure allow-reset {self.job}"


@dataclass(frozen=True, slots=True)
class NewJob:
    """An unlearning job about to start: from a model, over rounds."""

    number: int
    strategy: Strategy
    interval: int
    local_interactions: int
    created_at: datetime
    start_version: int
    start_round: int
    n_steps: int


@dataclass(frozen=True, slots=True)
class JobStep:
    """A finished step.

    Attributes:
        step: 1 for the first one.
        round: the stored round that it replays.
        n_steps: total, as known now; live rounds add to it.
        weights: the model after it, little-endian float32.
        coverage: the share of clients with an update in the stored round that took part in the step, 0 to 1.
    """

    step: int
    round: int
    n_steps: int
    weights: bytes
    coverage: float
    optimizer_state: bytes | None = None
    defence_state: bytes | None = None


@dataclass(frozen=True, slots=True)
class UnlearningJobRow:
    """A stored unlearning job; ``figures`` are JSON, ``weights`` None once it is closed."""

    federation: str
    number: int
    state: JobState
    strategy: Strategy
    interval: int
    local_interactions: int
    created_at: datetime
    start_version: int
    start_round: int
    step: int
    n_steps: int
    last_round: int | None
    weights: bytes | None
    coverage_sum: float
    optimizer_state: bytes | None
    defence_state: bytes | None
    reason: str | None
    closed_at: datetime | None
    model_version: int | None
    figures: str

    @property
    def coverage(self) -> float | None:
        """Mean over the finished steps; None before the first."""
        return self.coverage_sum / self.step if self.step else None

    def made_weights(self) -> bytes:
        """Return the model that the job has made so far; RuntimeError if it is closed."""
        if self.weights is None:
            raise RuntimeError(f"unlearning job {self.number} is closed")
        return self.weights


@dataclass(frozen=True, slots=True)
class JobCompletion:
    """The swap: a job's model becomes the federation's newest.

    Attributes:
        version: of that model.
        figures: measurements of it.
        abandons: the open round, whose updates are for a withdrawn model.
        events: stored in the same transaction.
        optimizer_state: from which live rounds continue.
        defence_state: the aggregation rule's, likewise.
    """

    version: int
    completed_at: datetime
    figures: Mapping[str, float] = field(default_factory=dict)
    abandons: int | None = None
    next_opening: RoundOpening | None = None
    events: Sequence[NewEvent] = ()
    optimizer_state: bytes | None = None
    defence_state: bytes | None = None


@dataclass(frozen=True, slots=True)
class ErasureOutcome:
    """How an erasure ended; goes into its receipt.

    Attributes:
        coverage: mean over the steps; None if nothing was to unlearn.
    """

    strategy: Strategy | Literal["none"]
    completed_at: datetime
    rounds_replayed: int = 0
    model_before: int | None = None
    model_after: int | None = None
    models_withdrawn: int = 0
    coverage: float | None = None
    figures: Mapping[str, float] = field(default_factory=dict)


Sign = Callable[[ErasureRow, ErasureOutcome, AuditEntry], str | None]
"""Signs the receipt of a completed erasure, given its row without the receipt; None if receipts are not signed.

May be called again for the same erasure, because a transaction may be repeated.
"""
