"""The plain values that `foltr.storage.activity` answers with."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from foltr.core.protocol.states import JobState, RoundState, Strategy


@dataclass(frozen=True, slots=True)
class RecentRound:
    """A round in short; ``n_updates`` are those that it closed with, None while it is open."""

    number: int
    state: RoundState
    reason: str | None
    opened_at: datetime
    closed_at: datetime | None
    n_updates: int | None
    policy_hash: bytes | None


@dataclass(frozen=True, slots=True)
class EvaluatedRound:
    """What a completed round's updates said of how the ranker does: means, in secure sums with noise.

    Attributes:
        round: its number.
        n_evaluations: updates that say so; of secure sums all in them.
        clicked: the share of lists with a click.
        reward: the reciprocal rank of the first click, in lists as shown.
        base_reward: the reciprocal rank of these clicks in the base order.
        evaluation_deviation: standard deviation of the noise in each mean; None: none is added.
    """

    round: int
    n_evaluations: int
    clicked: float
    reward: float
    base_reward: float
    evaluation_deviation: float | None


@dataclass(frozen=True, slots=True)
class MemberCounts:
    """How many clients stand how.

    Attributes:
        n_members: those that have joined and not left.
        n_online: of them, connected as far as was last heard.
        n_quarantined: of them, in quarantine.
        n_left: those that left by themselves.
        n_revoked: those whose enrolment the operator made void.
    """

    n_members: int
    n_online: int
    n_quarantined: int
    n_left: int
    n_revoked: int


@dataclass(frozen=True, slots=True)
class RecentRefusals:
    """Messages refused since a moment, by reason code; not from earlier on, where too much has happened since."""

    since: datetime
    by_reason: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class NewestModel:
    """The newest model without its weights.

    Attributes:
        round: that made it; None of any other origin.
        published_at: when the broker took it; None: not yet.
        tainted_at: since when it is known to hold what an erased client sent.
        unlearning_job: that made it; None of any other origin.
        restored_version: the older model whose weights it has again; None of any other origin.
    """

    version: int
    round: int | None
    created_at: datetime
    published_at: datetime | None
    tainted_at: datetime | None
    unlearning_job: int | None
    restored_version: int | None


@dataclass(frozen=True, slots=True)
class JobProgress:
    """How far an unlearning job is; ``reason`` says why it is paused or failed."""

    number: int
    state: JobState
    strategy: Strategy
    created_at: datetime
    step: int
    n_steps: int
    reason: str | None
    closed_at: datetime | None
    model_version: int | None


@dataclass(frozen=True, slots=True)
class ErasureCounts:
    """How many of those who asked to be forgotten are how far.

    Attributes:
        n_erasing: what is stored of them is being deleted.
        n_waiting: what is stored of them is gone, and a model that learned from them may be in service.
        n_unlearning: they are in the job that is open.
        n_done: they are forgotten.
        n_overdue: of those that are not, past their deadline.
        oldest_at: when the first of those that are not was asked for; None if there are none.
    """

    n_erasing: int
    n_waiting: int
    n_unlearning: int
    n_done: int
    n_overdue: int
    oldest_at: datetime | None
