"""How the federation is, as `foltr status` says it too: one reading, shown as JSON and told to whoever listens."""

from datetime import datetime
from typing import Any

from fastapi import APIRouter

from foltr.api.access import Looker, ServedHere
from foltr.api.reading import PROBLEMS
from foltr.api.schemas import Shown
from foltr.core.protocol.states import Privacy, RoundState
from foltr.operations.overview import Overview
from foltr.operations.situation import FederatorState

router = APIRouter(prefix="/api/v1", responses=PROBLEMS)


class NewestRound(Shown):
    """The open round, else the newest one."""

    number: int
    state: RoundState
    opened_at: datetime
    closes_at: datetime
    closed_at: datetime | None
    base_version: int
    min_clients: int
    max_clients: int
    n_contributed: int
    n_awaited: int
    # How often devices come by, in seconds; null: they stay connected.
    period_s: float | None
    overdue_s: float | None
    aggregation: str


class Members(Shown):
    """How many clients stand how."""

    n_members: int
    n_online: int
    n_quarantined: int
    n_left: int
    n_revoked: int


class Hour(Shown):
    """What has gone on since a moment, an hour ago at most."""

    since: datetime
    n_completed: int
    n_abandoned: int
    n_updates: int
    completed_per_hour: float | None
    updates_per_hour: float | None


class Refusals(Shown):
    """Messages refused since a moment, by reason code."""

    since: datetime
    by_reason: dict[str, int]


class ServedModel(Shown):
    """The newest model."""

    version: int
    round: int | None
    created_at: datetime
    published_at: datetime | None
    tainted_at: datetime | None
    unlearning_job: int | None
    restored_version: int | None


class NewestJob(Shown):
    """How far the open unlearning job is, else the newest one."""

    number: int
    state: str
    strategy: str
    created_at: datetime
    step: int
    n_steps: int
    reason: str | None
    closed_at: datetime | None
    model_version: int | None


class Erasures(Shown):
    """How many of those who asked to be forgotten are how far."""

    n_erasing: int
    n_waiting: int
    n_unlearning: int
    n_done: int
    n_overdue: int
    oldest_at: datetime | None


class Spent(Shown):
    """What the policy of secure sums allows a client, and how many rounds under it there were."""

    policy_version: int
    epsilon: float
    delta: float
    max_participations: int
    n_spent: int


class Rewarded(Shown):
    """What a completed round's updates said of how the ranker does: means, in secure sums with noise."""

    round: int
    n_evaluations: int
    clicked: float
    reward: float
    base_reward: float
    evaluation_deviation: float | None


class Effectiveness(Shown):
    """The newest completed round that says how well the ranker does, and the mean reward of those before it."""

    newest: Rewarded
    mean_before: float | None
    n_before: int


class Status(Shown):
    """How the federation is.

    ``waits_for`` says in sentences what the open round waits for, the most important first; ``as_of`` is when all of
    this was read; ``held`` says what an unlearning job that waits for the operator's order would cost, and the order.
    """

    as_of: datetime
    federation: str
    method: str
    ranker: str
    n_features: int
    privacy: Privacy
    federator: FederatorState
    waits_for: list[str]
    round: NewestRound | None
    members: Members
    activity: Hour
    refusals: Refusals
    model: ServedModel | None
    job: NewestJob | None
    held: str | None
    erasures: Erasures
    budget: Spent | None
    effectiveness: Effectiveness | None
    n_suspects: int
    last_activity: datetime | None
    leader: str | None
    n_standbys: int


@router.get("/status", openapi_extra={"x-who": "viewer, operator"})
async def status(served: ServedHere, _who: Looker) -> Status:
    """How the federation is: what the open round waits for, who is there, what was refused, how far erasures are."""
    return shown(await served.overview())


def shown(overview: Overview) -> Status:
    """Show an overview: without the rows of its clients."""
    row, situation = overview.situation.round, overview.situation
    newest: Any = None
    if row is not None:
        newest = NewestRound(
            number=row.number,
            state=row.state,
            opened_at=row.opened_at,
            closes_at=row.closes_at,
            closed_at=row.closed_at,
            base_version=row.base_version,
            min_clients=row.min_clients,
            max_clients=row.max_clients,
            n_contributed=len(situation.contributed) if row.n_updates is None else row.n_updates,
            n_awaited=0 if situation.is_over else len(situation.awaited),
            period_s=row.period_s,
            overdue_s=situation.overdue_s,
            aggregation=row.aggregation,
        )
    return Status(
        as_of=overview.as_of,
        federation=overview.federation,
        method=overview.method,
        ranker=overview.ranker,
        n_features=overview.n_features,
        privacy=overview.privacy,
        federator=overview.federator,
        waits_for=overview.waits_for,
        round=newest,
        members=Members.model_validate(overview.members),
        activity=Hour.model_validate(overview.activity),
        refusals=Refusals.model_validate(overview.refusals),
        model=None if overview.model is None else ServedModel.model_validate(overview.model),
        job=None if overview.job is None else NewestJob.model_validate(overview.job),
        held=None if overview.held_reset is None else overview.held_reset.in_words,
        erasures=Erasures.model_validate(overview.erasures),
        budget=None if overview.budget is None else Spent.model_validate(overview.budget),
        effectiveness=(
            None if overview.effectiveness is None else Effectiveness.model_validate(overview.effectiveness)
        ),
        n_suspects=len(overview.suspects),
        last_activity=situation.last_activity,
        leader=situation.lease.holder if situation.lease is not None and situation.is_led else None,
        n_standbys=len(situation.standbys),
    )
