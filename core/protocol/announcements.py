"""Announcements to all devices: the newest model, the newest round, and the progress of an unlearning job."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from foltr.core.protocol.fields import (
    MAX_DIM,
    Count,
    Detail,
    InFederation,
    Message,
    ModelHash,
    Sha256,
    Timestamp,
    check_vector_length,
)
from foltr.core.protocol.policies import SecureRound
from foltr.core.protocol.states import JobState, Strategy
from foltr.core.protocol.trainings import RankerSpec, Training

MOST_NAMED = 32
"""The most erasures of its job that a step names: one that no other job has used up is enough."""

# Of the federation's features (`foltr.core.protocol.schemas`); None if each application agrees on them itself.
SchemaHash = Sha256 | None


class ModelAnnouncement(InFederation):
    """Federator to all, retained: the newest global model.

    ``weights`` is a little-endian float32 vector: ``ranker.n_weights`` entries of the ranker, then ``n_auxiliary`` used
    only in training.
    """

    kind_name: ClassVar[str] = "model"
    version: Count
    ranker: RankerSpec
    n_auxiliary: Annotated[int, Field(ge=0, le=MAX_DIM)] = 0
    weights: bytes
    schema_hash: SchemaHash = None

    @model_validator(mode="after")
    def _weights_fit_the_ranker(self) -> "ModelAnnouncement":
        check_vector_length(self.weights, self.ranker.n_weights + self.n_auxiliary)
        return self


class Selection(Message):
    """Who may contribute to a round: clients with tickets up to ``cutoff`` (`foltr.core.protocol.client_selection`).

    The round's seed follows from the federation's first seed and the round's number alone, so nobody chose it for this
    round; ``cutoff`` lies between the ``n_selected``-th lowest ticket of the ``n_eligible`` clients online at the
    opening and the next.
    """

    first_seed: Sha256
    cutoff: Annotated[bytes, Field(min_length=8, max_length=8)]
    n_selected: Count
    n_eligible: Count


class RoundAnnouncement(InFederation):
    """Federator to all, retained: the newest round, whether it takes updates, and if not whether another follows.

    ``base_hash`` identifies the base model by its weights too: after a restore a version may have other weights. Models
    below ``withdraws_below`` contain what was unlearned since, and must not be used. ``opened_at`` and ``closes_at``
    are seconds since the epoch by the federator's clock; a device needs neither to take part, so its own clock may be
    wrong.
    """

    kind_name: ClassVar[str] = "round"
    round: Count
    open: bool
    # Closed, and no other round follows.
    last: bool = False
    base_version: Count
    base_hash: ModelHash
    withdraws_below: Count
    opened_at: Timestamp
    closes_at: Timestamp
    training: Training
    # None: any client.
    selection: Selection | None = None
    # None: the federator sees every update.
    secure: SecureRound | None = None
    schema_hash: SchemaHash = None

    @model_validator(mode="after")
    def _last_is_closed(self) -> "RoundAnnouncement":
        if self.open and self.last:
            raise ValueError("an open round cannot be marked last")
        return self


class NamedErasure(Message):
    """An entry of the federation's audit log (`foltr.core.erasure.audit`) which records that a client was erased."""

    audit_seq: Annotated[int, Field(ge=1, le=2**31 - 1)]
    audit_hash: Sha256


class UnlearningRound(InFederation):
    """Federator to all, retained: a step of an unlearning job (`foltr.core.unlearning`), or that no step is open.

    A device that was asked learns ``local_interactions`` of the interactions it has kept from ``weights``, and answers
    with the delta. ``erasures`` are those of the job's clients, the newest first: a device remembers for which jobs
    each of them was named, and answers no job whose erasures others have used up. ``weights`` and ``n_auxiliary`` are
    as in `ModelAnnouncement`; ``closes_at`` as in `RoundAnnouncement`.
    """

    kind_name: ClassVar[str] = "unlearning_round"
    longest_list: ClassVar[int] = MOST_NAMED
    job: Count
    step: Count
    open: bool
    ranker: RankerSpec
    n_auxiliary: Annotated[int, Field(ge=0, le=MAX_DIM)] = 0
    weights: bytes
    local_interactions: Annotated[int, Field(ge=1, le=100_000)]
    erasures: Annotated[list[NamedErasure], Field(min_length=1, max_length=MOST_NAMED)]
    closes_at: Timestamp
    training: Training
    schema_hash: SchemaHash = None

    @model_validator(mode="after")
    def _weights_fit_the_ranker(self) -> "UnlearningRound":
        check_vector_length(self.weights, self.ranker.n_weights + self.n_auxiliary)
        return self


class UnlearningProgress(InFederation):
    """Federator to all, retained on the job's topic: its progress. ``coverage`` is the mean over its steps."""

    kind_name: ClassVar[str] = "unlearning_progress"
    job: Count
    state: Literal[JobState.RUNNING, JobState.PAUSED, JobState.DONE]
    strategy: Annotated[Strategy, Field(strict=False)]
    step: Count
    n_steps: Count
    n_clients: Count
    coverage: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    model_version: Count | None = None
    detail: Detail = ""
