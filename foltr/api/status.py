"""The federation's status, the same as in `foltr status`: one reading, served as JSON and streamed to listeners."""

from datetime import datetime
from typing import Any

from fastapi import APIRouter

from foltr.api.access import Looker, ServedHere
from foltr.api.schemas import RowModel, VerdictRow
from foltr.core.protocol.states import Privacy, RoundState
from foltr.operations.overview import Activity, Budget, Effectiveness, Overview
from foltr.operations.situation import FederatorState
from foltr.operations.verdict import judge
from foltr.storage.activity_records import ErasureCounts, JobProgress, MemberCounts, NewestModel, RecentRefusals

router = APIRouter(prefix="/api/v1", tags=["status"])


class NewestRound(RowModel):
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
    # How often devices visit, in seconds. Null: they stay connected.
    period_s: float | None
    overdue_s: float | None
    aggregation: str


class Status(RowModel):
    """How the federation is; the verdict says whether it is well.

    ``waits_for`` says in sentences what the open round waits for, the most important first; ``as_of`` is when all of
    this was read; ``held`` says what an unlearning job that waits for the operator's order would cost, and the order.
    """

    verdict: VerdictRow
    as_of: datetime
    federation: str
    method: str
    ranker: str
    n_features: int
    privacy: Privacy
    federator: FederatorState
    waits_for: list[str]
    round: NewestRound | None
    members: MemberCounts
    activity: Activity
    refusals: RecentRefusals
    model: NewestModel | None
    job: JobProgress | None
    held: str | None
    erasures: ErasureCounts
    budget: Budget | None
    effectiveness: Effectiveness | None
    n_suspects: int
    last_activity: datetime | None
    leader: str | None
    n_standbys: int


@router.get("/status", openapi_extra={"x-who": "viewer, operator"})
async def get_status(_who: Looker, served: ServedHere) -> Status:
    """How the federation is now, as `foltr status` shows it."""
    return shown(await served.overview())


def shown(overview: Overview) -> Status:
    """Convert an overview for the API, without its client rows."""
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
    same = {name: getattr(overview, name) for name in Status.model_fields.keys() & Overview.__dataclass_fields__.keys()}
    return Status(
        **same,
        verdict=VerdictRow.of(judge(overview)),
        round=newest,
        held=None if overview.held_reset is None else overview.held_reset.in_words,
        n_suspects=len(overview.suspects),
        last_activity=situation.last_activity,
        leader=situation.lease.holder if situation.lease is not None and situation.is_led else None,
        n_standbys=len(situation.standbys),
    )
