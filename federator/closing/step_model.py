"""Makes an unlearning job's next model from the answers to a step."""

import asyncio
from collections.abc import AsyncIterator, Collection

import numpy as np
import structlog
from numpy.typing import NDArray

from foltr.core.errors import DataError
from foltr.core.methods.base import Aggregation, Memory, NextModel
from foltr.core.methods.bodies import unpack_body
from foltr.core.methods.registry import make_aggregation
from foltr.core.protocol.fields import pack_vector, unpack_vector
from foltr.core.protocol.states import Strategy
from foltr.core.protocol.updates import DenseDelta, PartDelta, UpdateBody
from foltr.core.unlearning.calibration import calibrated
from foltr.federator.closing.stored_rules import round_rng
from foltr.federator.job import Contribution, UnlearningStep
from foltr.federator.plan import FederationPlan
from foltr.storage.erasure_records import UnlearningJobRow
from foltr.storage.records import UpdateRow

log = structlog.get_logger(__name__)


async def contributions_of(
    updates: AsyncIterator[UpdateRow], n_values: int, without: Collection[str]
) -> dict[str, Contribution]:
    """Return a round's contributions by client, leaving some clients out."""
    found = {}
    async for row in updates:
        if row.client_id in without:
            continue
        values = _values(unpack_body(row.encoding, row.body, n_values))
        found[row.client_id] = Contribution(float(np.linalg.norm(values.astype(np.float64))), row.n_interactions)
    return found


async def model_of_step(
    plan: FederationPlan, seed: bytes, job: UnlearningJobRow, step: UnlearningStep
) -> NextModel | None:
    """Apply the federation's rule to the answers to a step; None if no model results."""
    if not (step.answers and step.has_enough):
        return None
    answers, memory = answers_of(plan, seed, job, step), Memory(job.optimizer_state, job.defence_state)
    try:
        return await asyncio.to_thread(answers.finish, unpack_vector(job.made_weights()), memory)
    except DataError as error:
        # No model, as in a live round: the step is skipped.
        log.warning("unlearning_step_without_model", job=job.number, step=step.number, cause=str(error))
        return None


def answers_of(plan: FederationPlan, seed: bytes, job: UnlearningJobRow, step: UnlearningStep) -> Aggregation:
    """Prepare the answers to a step for the federation's rule, by client; finish it with the job's model.

    If the job calibrates, each answer gets the length and the weight of the client's stored update. Otherwise it has
    the weight of the interactions it was learned from, at most the number asked for.

    Args:
        seed: the federation's ``aggregation_seed``; a step draws like the stored round that it replays.
    """
    aggregation = make_aggregation(
        plan.training, plan.ranker, plan.policy.rule, n_expected=len(step.answers), rng=round_rng(seed, step.round)
    )
    for client_id in sorted(step.answers):
        update, before = step.answers[client_id], step.asked[client_id]
        if job.strategy is not Strategy.RELEARN:
            aggregation.add(_calibrated(update.body, before.length), before.n_interactions, 1.0, client_id)
        else:
            aggregation.add(update.body, min(update.n_interactions, job.local_interactions), 1.0, client_id)
    return aggregation


def _calibrated(body: UpdateBody, length: float) -> UpdateBody:
    """Return the new direction with the old length (thesis, Eq. 6.2)."""
    values = pack_vector(calibrated(length, _values(body)))
    return body.model_copy(update={"values": values})


def _values(body: UpdateBody) -> NDArray[np.float32]:
    if not isinstance(body, DenseDelta | PartDelta):
        raise DataError(f"an update of kind {body.kind} has no length")
    return unpack_vector(body.values)
