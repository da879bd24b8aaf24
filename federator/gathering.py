"""Decides from stored data when the next unlearning job begins, whether it may, and from which model.

It also warns if a job will take longer than the deadline that devices get. If devices visit, a step of a job waits one
and a half periods: a hundred steps of a fleet that visits once a day take five months.
"""

from collections.abc import Sequence
from datetime import datetime

import structlog

from foltr.core.methods.registry import learns_from_kept_lists
from foltr.core.protocol.states import JobState, Strategy
from foltr.core.unlearning.schedule import LEAST_STEPS
from foltr.federator.deciding.state import FederationState
from foltr.federator.job import UnlearningPolicy
from foltr.federator.plan import FederationPlan
from foltr.federator.store import FederationStore
from foltr.storage.erasure_records import ErasureRow, HeldReset, UnlearningJobRow

_ROUNDS_AT_ONCE = 5000


async def next_job_start(store: FederationStore, policy: UnlearningPolicy, now: float) -> float | None:
    """When the next job begins, in epoch seconds; None if no erasure waits for one."""
    gathered = await store.gathered()
    if gathered.oldest_at is None:
        return None
    swapped_at = None if gathered.swapped_at is None else gathered.swapped_at.timestamp()
    return policy.begins_at(now, gathered.n_waiting, gathered.oldest_at.timestamp(), swapped_at)


def next_number(jobs: Sequence[UnlearningJobRow]) -> int:
    """The number of the job that follows these."""
    return max((job.number for job in jobs), default=0) + 1


def strategy_of_next(plan: FederationPlan, jobs: Sequence[UnlearningJobRow]) -> Strategy:
    """The strategy of the job that follows these: one whose model was not fit for service is not repeated.

    The same holds if the next job had to wait for an order, or for another federator: devices answer for an erasure in
    two jobs only. The job has no steps if no stored update allows one, or devices could not learn in it.
    """
    was_given_up = bool(jobs) and jobs[-1].state is JobState.FAILED
    strategy = plan.unlearning.strategy
    if was_given_up:
        strategy = Strategy.RELEARN
    has_steps = plan.secure is None and learns_from_kept_lists(plan.training, plan.ranker)
    return strategy if has_steps else Strategy.ROLLBACK


async def starting_point(store: FederationStore, strategy: Strategy, waiting: Sequence[ErasureRow]) -> tuple[int, int]:
    """The model that a job starts from, and the first round that it replays."""
    if strategy is Strategy.FED_ERASER:
        return 0, 1
    came_in = min(row.first_round for row in waiting if row.first_round is not None)
    model = await store.last_clean_model(came_in)
    if model is None or model.version == 0:
        return 0, 1
    since = await store.first_round_on(model.version)
    if since is None:
        # The newest: models with their updates were taken back, so no round needs a replay.
        newest = await store.latest_round()
        since = 1 if newest is None else newest.number + 1
    return model.version, since


async def find_held(store: FederationStore, number: int, resets_at: datetime | None = None) -> HeldReset | None:
    """Find whether a job waits for the operator's order, and its cost; None if it does not wait.

    Args:
        resets_at: when it was found that it would put the first model in service; None relies on stored state.
    """
    held = await store.find_reset(number)
    if held is None and resets_at is not None:
        held = await store.hold_reset(number, resets_at)
    return held if held is not None and held.ordered_at is None else None


async def is_ordered_reset(store: FederationStore, job: UnlearningJobRow) -> bool:
    """Whether a job's model is the first one, as ordered; an order allows no other unfit model."""
    held = await store.find_reset(job.number)
    is_ordered = held is not None and held.ordered_at is not None
    return is_ordered and not (job.start_version or job.coverage_sum)


async def needs_reset_order(
    store: FederationStore, policy: UnlearningPolicy, job: UnlearningJobRow, at: datetime
) -> bool:
    """Whether a job's model is the first one after all its steps, without permission; then the next job is held."""
    if policy.may_reset or job.start_version or job.coverage_sum or not job.step:
        return False
    return await store.hold_reset(job.number + 1, at) is not None


async def list_stored(store: FederationStore, plan: FederationPlan, first: int) -> list[int]:
    """List the rounds from one on with stored updates, if devices can learn in them again."""
    found: list[int] = []
    while learns_from_kept_lists(plan.training, plan.ranker):
        page = await store.list_stored_rounds(first, _ROUNDS_AT_ONCE)
        found += page
        if len(page) < _ROUNDS_AT_ONCE:
            break
        first = page[-1] + 1
    return found


log = structlog.get_logger(__name__)

_DAY_S = 86_400.0


async def warn_slow_unlearning(store: FederationStore, plan: FederationPlan, state: FederationState) -> None:
    """Warn of the job that would follow if a client from the first round on were forgotten now."""
    strategy = strategy_of_next(plan, ())
    if state.pace is None:
        return
    stored = await list_stored(store, plan, 1)
    _, ahead = plan.unlearning.schedule(strategy).begin(stored)
    waits_s = 0.0 if plan.unlearning.after == 1 else plan.unlearning.every_s
    # A new federation has a hundred rounds soon.
    warn_if_late(plan.unlearning, state, max(len(ahead), LEAST_STEPS), waits_s)


def warn_if_late(policy: UnlearningPolicy, state: FederationState, n_steps: int, waited_s: float) -> None:
    """Warn if a job of so many steps, after so long a wait, takes longer than the deadline.

    Without a pace the time is unknown: a step ends with its last answer, mostly within seconds.
    """
    if state.pace is None:
        return
    takes_s = waited_s + n_steps * state.time_to_come_s(policy.step_s)
    if takes_s > policy.deadline_s:
        log.warning(
            "unlearning_deadline_at_risk",
            n_steps=n_steps,
            period_s=round(state.pace.period_s),
            takes_days=round(takes_s / _DAY_S, 1),
            deadline_days=round(policy.deadline_s / _DAY_S, 1),
            hint="it will miss the day that the answer to the client named: lower longest_period_s or raise "
            "unlearning_deadline_s",
        )
