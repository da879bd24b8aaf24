"""What stored rounds make once more without those who were forgotten: a slice of a job that asks no device."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import structlog
from numpy.typing import NDArray

from foltr.core.errors import DataError
from foltr.core.methods.base import Memory, NextModel
from foltr.core.protocol.fields import unpack_vector
from foltr.core.unlearning.measures import relative_distance
from foltr.federator.closing.collected_updates import Collecting, Recipes, collect, finish
from foltr.federator.closing.stored_rules import stored_training
from foltr.federator.plan import FederationPlan
from foltr.federator.store import FederationStore, stream_updates
from foltr.storage.erasure_records import UnlearningJobRow
from foltr.storage.records import RoundRow

log = structlog.get_logger(__name__)

# Twice what the actor takes from its intake in a turn: a job catches up, however fast live rounds come. And so much
# that a slice takes less than a live round of many clients does, or one that is large itself.
_UPDATES_AT_ONCE = 1000
_BYTES_AT_ONCE = 16 * 1024 * 1024
# Of thinned history, of which nothing is read.
_ROUNDS_AT_ONCE = 500


@dataclass(frozen=True, eq=False)
class Slice:
    """A few rounds that were aggregated once more, one on top of the other.

    Attributes:
        weights: (d,) the job's model after them.
        covered: how many of them a model was made of; the others were thinned, or their rule makes none of what is
            left.
        is_last: there was no completed round after them.
    """

    last_round: int
    n_rounds: int
    covered: int
    weights: NDArray[np.float32]
    memory: Memory
    is_last: bool


async def remake(
    store: FederationStore, recipes: Recipes, job: UnlearningJobRow, first: int, without: Collection[str]
) -> Slice | None:
    """Aggregate the next rounds from ``first`` on, on top of the job's model; None where there is none.

    Of each round all updates that are left go in as they were sent, by its own rule, settings and staleness weights.
    So with the plain mean this is bit for bit the model that the others' same updates would have made; a rule that
    compares them decides anew.

    Args:
        without: clients whose updates are left out, too.
    """
    found = await store.list_taught_rounds(first, _ROUNDS_AT_ONCE)
    rows = [*_first_of(found, 4 * recipes.of(first).n_values)]
    if not rows:
        return None
    stored = set(await store.list_stored_rounds(first, len(rows)))
    weights, memory, covered = unpack_vector(job.weights or b""), Memory(job.optimizer_state, job.defence_state), 0
    for row in rows:
        made = await _remade(store, recipes, row, without, weights, memory) if row.number in stored else None
        if made is not None:
            weights, memory, covered = made.weights, made.memory, covered + 1
    is_last = len(rows) == len(found) < _ROUNDS_AT_ONCE
    return Slice(rows[-1].number, len(rows), covered, weights, memory, is_last)


async def recipes_of(store: FederationStore, plan: FederationPlan, seed: bytes) -> Recipes:
    """What stored rounds were computed with."""
    noted = {first: stored_training(text) for first, text in (await store.load_trainings()).items()}
    return Recipes(plan.federation, plan.ranker, seed, noted)


async def change_by(store: FederationStore, job: UnlearningJobRow) -> float | None:
    """How far a job's model is from the newest, of the newest one's length; None where one of them is all zeros."""
    newest = await store.latest_model()
    if newest is None:
        return None
    before, after = unpack_vector(newest.weights), unpack_vector(job.weights or b"")
    return relative_distance(after, before) if before.any() and after.any() else None


def _first_of(rows: Sequence[RoundRow], update_bytes: int) -> Iterator[RoundRow]:
    """The first rounds, with as many updates as go in a slice; one at least."""
    most = max(1, min(_UPDATES_AT_ONCE, _BYTES_AT_ONCE // update_bytes))
    n_updates = 0
    for row in rows:
        n_updates += row.n_updates or 0
        if n_updates > most and row is not rows[0]:
            return
        yield row


async def _remade(
    store: FederationStore,
    recipes: Recipes,
    row: RoundRow,
    without: Collection[str],
    weights: NDArray[np.float32],
    memory: Memory,
) -> NextModel | None:
    """What is left of a round makes of a model; None where the federator would have given the round up."""
    of = Collecting.of(row)
    recipe = recipes.of(row.number)
    # But for what cannot be read: a key was lost, or destroyed since a backup.
    updates = stream_updates(store, row.number, recipe.n_at_once, readable_only=True)
    try:
        aggregation = (await collect(updates, recipe, of, without)).aggregation
        return await finish(aggregation, of.rule, weights, memory)
    except DataError as error:
        log.warning("unlearning_round_without_model", round=row.number, cause=str(error))
        return None
