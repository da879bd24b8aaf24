"""Warns where unlearning will take longer than who asked to be forgotten is told.

Where devices come by in turns a step of a job waits until all have come who come, one and a half periods. So a hundred
steps of a fleet that comes once a day take five months, and the deadline, by which its model is promised, a month.
"""

import structlog

from federator.deciding.state import FederationState
from federator.gathering import list_stored, strategy_of_next
from federator.job import UnlearningPolicy
from federator.plan import FederationPlan
from federator.store import FederationStore
from foltr.protocol.states import Strategy
from foltr.unlearning.schedule import LEAST_STEPS

log = structlog.get_logger(__name__)

_DAY_S = 86_400.0


async def look_ahead(store: FederationStore, plan: FederationPlan, state: FederationState) -> None:
    """Warn of the job that would follow if somebody who was there from the first round on were forgotten now."""
    strategy = strategy_of_next(plan, ())
    if state.pace is None or strategy is Strategy.FED_REMOVE:
        return
    stored = await list_stored(store, plan, strategy, 1)
    _, ahead = plan.unlearning.schedule(strategy).begin(stored)
    waits_s = 0.0 if plan.unlearning.after == 1 else plan.unlearning.every_s
    # A federation that is new has a hundred rounds soon.
    warn_if_late(plan.unlearning, state, max(len(ahead), LEAST_STEPS), waits_s)


def warn_if_late(policy: UnlearningPolicy, state: FederationState, n_steps: int, waited_s: float) -> None:
    """Warn where a job of so many steps, before which somebody waits so long, outlasts the deadline.

    Without a pace nobody can say: a step ends with its last answer, mostly within seconds.
    """
    if state.pace is None:
        return
    takes_s = waited_s + n_steps * state.time_to_come_s(policy.step_s)
    if takes_s > policy.deadline_s:
        log.warning(
            "unlearning_outlasts_deadline",
            n_steps=n_steps,
            period_s=round(state.pace.period_s),
            takes_days=round(takes_s / _DAY_S, 1),
            deadline_days=round(policy.deadline_s / _DAY_S, 1),
            hint="who is forgotten is told a day that passes: lower longest_period_s, raise "
            "unlearning_deadline_s, or choose unlearning_strategy fed_remove, which asks nobody",
        )
