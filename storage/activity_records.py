"""The plain values that `foltr.storage.activity` returns."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from foltr.core.protocol.states import JobState, RoundState, Strategy


@dataclass(frozen=True, slots=True)
class RecentRound:
    """A round in short; ``n_updates`` is the number that it closed with, None while it is open."""

    number: int
    state: RoundState
    reason: str | None
    opened_at: datetime
    closed_at: datetime | None
    n_updates: int | None
    policy_hash: bytes | None


@dataclass(frozen=True, slots=True)
class EvaluatedRound:
    """What a completed round's updates report of the ranker's quality: means, in secure sums with noise.

    Attributes:
        round: its number.
        n_evaluations: updates with a report; in secure sums all updates.
        clicked: the share of lists with a click.
        reward: the reciprocal rank of the first click, in lists as shown.
        base_reward: the reciprocal rank of these clicks in the base order.
        evaluation_deviation: standard deviation of the noise in each mean; None without noise.
    """

    round: int
    n_evaluations: int
    clicked: float
    reward: float
    base_reward: float
    evaluation_deviation: float | None


@dataclass(frozen=True, slots=True)
class MemberCounts:
    """The number of clients by status.

    Attributes:
        n_members: those that have joined and not left.
        n_online: members last reported as connected.
        n_quarantined: members in quarantine.
        n_left: those that left by themselves.
        n_revoked: those whose enrolment the operator revoked.
    """

    n_members: int
    n_online: int
    n_quarantined: int
    n_left: int
    n_revoked: int


@dataclass(frozen=True, slots=True)
class RecentRefusals:
    """Messages refused since a moment, by reason code; a later moment if there were too many events since."""

    since: datetime
    by_reason: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class RefusedSender:
    """A sender whose messages were refused lately: how many, and the code of most of them."""

    client_id: str
    n: int
    code: str


@dataclass(frozen=True, slots=True)
class LatelyHappened:
    """Events of one kind: how many, and the newest."""

    n: int
    at: datetime
    detail: str | None


@dataclass(frozen=True, slots=True)
class RevokedClient:
    """A client whose enrolment the operator revoked."""

    client_id: str
    revoked_at: datetime


@dataclass(frozen=True, slots=True)
class NewestModel:
    """The newest model without its weights.

    Attributes:
        round: the round that made it; None for any other origin.
        published_at: when the broker took it; None: not yet.
        tainted_at: since when it is known to contain updates of an erased client.
        unlearning_job: the job that made it; None for any other origin.
        restored_version: the older model whose weights it has again; None for any other origin.
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
    """The progress of an unlearning job; ``reason`` says why it is paused or failed."""

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
    """The number of erasures by progress.

    Attributes:
        n_erasing: stored data is being deleted.
        n_waiting: stored data is gone; a model that learned from the client may be in service.
        n_unlearning: part of the open job.
        n_done: completed.
        n_overdue: not completed and past the deadline.
        oldest_at: when the oldest of those not completed was requested; None if all are.
    """

    n_erasing: int
    n_waiting: int
    n_unlearning: int
    n_done: int
    n_overdue: int
    oldest_at: datetime | None
