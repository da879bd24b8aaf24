"""What the updates of a round make: the next model, and the rows that tell of it."""

import asyncio
from datetime import datetime

from foltr.core.aggregation.crowd import after_suspects_alone
from foltr.core.methods.base import Memory, NextModel
from foltr.core.protocol.fields import model_hash, unpack_vector
from foltr.federator.closing.collected_updates import CollectedSums, Collecting, Recipe, collect, collect_sums, finish
from foltr.federator.plan import FederationPlan
from foltr.federator.round import Round
from foltr.federator.store import FederationStore, stream_updates
from foltr.storage.records import ModelRow, NewModel


async def next_model(
    store: FederationStore, plan: FederationPlan, seed: bytes, current: Round, base: ModelRow
) -> NextModel:
    """The model that the method and the round's rule make of the stored updates, with all that goes with it.

    Everything follows from what is stored, the updates in order of client_id, so it repeats bit for bit. In a
    buffered round each update has a weight by the age of its base model (FedBuff).

    Args:
        seed: the federation's ``aggregation_seed``.
        base: the newest model, which the updates are added to.

    Raises:
        DataError: an update cannot be read, or no model can be made of them.
    """
    policy = current.policy
    recipe = Recipe(plan.federation, plan.training, plan.ranker, seed)
    n_expected = len(current.contributions)
    of = Collecting(current.number, current.base_version, policy.rule, policy.staleness_exponent, n_expected)
    updates = stream_updates(store, current.number, recipe.n_at_once)
    aggregation = await collect(updates, recipe, of)
    weights, defence = unpack_vector(base.weights), base.defence_state
    if defence is not None and policy.rule.rule == "adaptive":
        defence = after_suspects_alone(defence, await store.count_suspects_alone(current.number))
    memory = Memory(base.optimizer_state, defence)
    return await finish(aggregation, policy.rule, weights, memory)


async def collected_sums(
    store: FederationStore, plan: FederationPlan, seed: bytes, current: Round
) -> CollectedSums | None:
    """Collect the stored sums of a round: one update for each cohort, and what is beside them; None of a trusted round.

    Raises:
        DataError: as `next_model`.
        ImplausibleSumError: a sum is to be discarded.
    """
    if current.terms is None:
        return None
    rows, answers = await store.load_sums(current.number), await store.load_answers(current.number)
    recipe = Recipe(plan.federation, plan.training, plan.ranker, seed)
    return collect_sums(rows, answers, recipe, current.number, current.policy.rule, current.terms)


async def summed_model(collected: CollectedSums, base: ModelRow) -> NextModel:
    """The model that the method and the round's rule make of its sums; DataError as `next_model`."""
    memory = Memory(base.optimizer_state, base.defence_state)
    return await asyncio.to_thread(collected.aggregation.finish, unpack_vector(base.weights), memory)


def model_row(plan: FederationPlan, current: Round, model: NewModel, at: datetime, base: ModelRow) -> ModelRow:
    """``model`` as it is stored, once it is the outcome of the round that trained from ``base``."""
    return ModelRow(
        federation=plan.federation,
        version=model.version,
        base_version=current.base_version,
        round=current.number,
        n_values=plan.n_values,
        weights=model.weights,
        weights_hash=model_hash(model.weights),
        created_at=at,
        published_at=None,
        optimizer_state=model.optimizer_state,
        defence_state=model.defence_state,
        tainted_at=None if base.tainted_at is None else at,
    )
