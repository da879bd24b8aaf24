"""What the answers to a step of an unlearning job make: the job's next model."""

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
    """What was sent in a round, by client, but for some clients."""
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
    """What the federation's rule makes of the answers to a step; None where it makes nothing of them."""
    if not (step.answers and step.has_enough):
        return None
    answers, memory = answers_of(plan, seed, job, step), Memory(job.optimizer_state, job.defence_state)
    try:
        return await asyncio.to_thread(answers.finish, unpack_vector(job.made_weights()), memory)
    except DataError as error:
        # As in a live round no model comes of it; the step is passed over.
        log.warning("unlearning_step_without_model", job=job.number, step=step.number, cause=str(error))
        return None


def answers_of(plan: FederationPlan, seed: bytes, job: UnlearningJobRow, step: UnlearningStep) -> Aggregation:
    """The answers to a step as the federation's rule takes them, by client; to be finished with the job's model.

    Where the job calibrates, each has the length and the weight of the client's stored update; else the weight of what
    it was learned from, which is never more than what was asked for.

    Args:
        seed: the federation's ``aggregation_seed``; a step draws as the stored round that it stands for.
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
    """The new direction with the old length (thesis, Eq. 6.2)."""
    values = pack_vector(calibrated(length, _values(body)))
    return body.model_copy(update={"values": values})


def _values(body: UpdateBody) -> NDArray[np.float32]:
    if not isinstance(body, DenseDelta | PartDelta):
        raise DataError(f"an update of kind {body.kind} has no length")
    return unpack_vector(body.values)
