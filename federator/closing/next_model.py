"""Makes the next model from a round's updates, and the rows about it."""

import asyncio
from datetime import datetime

from foltr.core.aggregation.reference_clients import after_suspects_alone
from foltr.core.methods.base import Memory, NextModel
from foltr.core.protocol.fields import model_hash, unpack_vector
from foltr.federator.closing.collected_updates import CollectedSums, Recipe, RoundInputs, collect, collect_sums, finish
from foltr.federator.plan import FederationPlan
from foltr.federator.round import Round
from foltr.federator.store import FederationStore, stream_updates
from foltr.storage.records import ModelRow, NewModel


async def next_model(
    store: FederationStore, plan: FederationPlan, seed: bytes, current: Round, base: ModelRow
) -> NextModel:
    """Make the next model from the stored updates, by the method and the round's rule.

    The result depends only on stored data, with updates in order of client_id, so it repeats bit for bit. In a buffered
    round each update has a weight by the age of its base model (FedBuff).

    Args:
        seed: the federation's ``aggregation_seed``.
        base: the newest model, to which the updates are added.

    Raises:
        DataError: an update cannot be read, or no model can be made from them.
    """
    policy = current.policy
    recipe = Recipe(plan.federation, plan.training, plan.ranker, seed)
    n_expected = len(current.contributions)
    of = RoundInputs(current.number, current.base_version, policy.rule, policy.staleness_exponent, n_expected)
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
    """Collect a round's stored sums: one update per cohort, and the other results; None for a trusted round.

    Raises:
        DataError: as `next_model`.
        ImplausibleSumError: a sum must be discarded.
    """
    if current.terms is None:
        return None
    rows, answers = await store.load_sums(current.number), await store.load_answers(current.number)
    recipe = Recipe(plan.federation, plan.training, plan.ranker, seed)
    return collect_sums(rows, answers, recipe, current.number, current.policy.rule, current.terms)


async def summed_model(collected: CollectedSums, base: ModelRow) -> NextModel:
    """Make the next model from a round's sums, by the method and the round's rule; DataError as `next_model`."""
    memory = Memory(base.optimizer_state, base.defence_state)
    return await asyncio.to_thread(collected.aggregation.finish, unpack_vector(base.weights), memory)


def model_row(plan: FederationPlan, current: Round, model: NewModel, at: datetime, base: ModelRow) -> ModelRow:
    """Return ``model`` as it will be stored, as outcome of the round that trained from ``base``."""
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
