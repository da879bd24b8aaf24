"""A round's stored updates in the form its method aggregates, to end the round or to replay it."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foltr.core.aggregation.mean import staleness_weight
from foltr.core.aggregation.rule_spec import RuleSpec
from foltr.core.aggregation.vote_result import RoundEvaluation, RoundTally
from foltr.core.errors import DataError, SettingsError
from foltr.core.methods.aggregations import is_plain_mean
from foltr.core.methods.base import Aggregation, Memory, NextModel
from foltr.core.methods.bodies import unpack_body
from foltr.core.methods.registry import Ranker, body_spec, make_aggregation, n_auxiliary, ranker_for
from foltr.core.protocol.trainings import Training
from foltr.federator.closing.stored_rules import round_rng, stored_rule, stored_training
from foltr.federator.secure_terms import SecureTerms
from foltr.federator.store import updates_at_once
from foltr.federator.summing.masked_sums import release
from foltr.storage.database import Database
from foltr.storage.federations import get_federation, load_trainings
from foltr.storage.records import RoundRow, UpdateRow
from foltr.storage.sum_records import HelperAnswerRow, RoundSumRow


@dataclass(frozen=True)
class Recipe:
    """The inputs common to the aggregation of all rounds of a federation.

    Attributes:
        seed: the federation's ``aggregation_seed``.
    """

    federation: str
    training: Training
    ranker: Ranker
    seed: bytes

    @property
    def n_values(self) -> int:
        """How many values a model has: the ranker's weights, and those used only in training."""
        return self.ranker.n_weights + n_auxiliary(self.training, self.ranker)

    @property
    def n_at_once(self) -> int:
        """How many updates are read at once."""
        return updates_at_once(4 * self.n_values)


@dataclass(frozen=True)
class RoundInputs:
    """The inputs of a round's aggregation besides its updates.

    Attributes:
        n_expected: the number of updates, so that a rule allocates once; more are accepted too.
    """

    number: int
    base_version: int
    rule: RuleSpec
    staleness_exponent: float
    n_expected: int

    @classmethod
    def of(cls, row: RoundRow) -> "RoundInputs":
        """Return the inputs of a stored round that has ended."""
        return cls(row.number, row.base_version, stored_rule(row), row.staleness_exponent, row.n_updates or 0)


@dataclass(frozen=True, eq=False)
class CollectedSums:
    """An aggregation that holds a round's means, and the results of votes and evaluations in its sums."""

    aggregation: Aggregation
    tally: RoundTally | None
    evaluation: RoundEvaluation | None


async def finish(aggregation: Aggregation, rule: RuleSpec, weights: NDArray[np.float32], memory: Memory) -> NextModel:
    """Make the next model from what was collected: (d,) weights and more.

    A rule compares all updates, which takes seconds if they are large, so it runs in a thread. Meanwhile messages are
    taken from the broker and wait; nothing is decided, since the writer waits here.
    """
    if is_plain_mean(rule):
        return aggregation.finish(weights, memory)
    return await asyncio.to_thread(aggregation.finish, weights, memory)


async def collect(updates: AsyncIterator[UpdateRow], recipe: Recipe, of: RoundInputs) -> Aggregation:
    """Collect the updates of a round in order of client_id, so that it repeats bit for bit.

    In a buffered round each update has a weight by the age of its base model (FedBuff).

    Raises:
        DataError: an update cannot be read, or does not fit the federation.
    """
    aggregation = make_aggregation(
        recipe.training,
        recipe.ranker,
        of.rule,
        n_expected=of.n_expected,
        rng=round_rng(recipe.seed, of.number),
    )
    async for row in updates:
        weight = staleness_weight(of.base_version - row.base_version, of.staleness_exponent)
        body = unpack_body(row.encoding, row.body, recipe.n_values)
        aggregation.add(body, row.n_interactions, weight, row.client_id)
    return aggregation


def collect_sums(
    sums: Sequence[RoundSumRow],
    answers: Sequence[HelperAnswerRow],
    recipe: Recipe,
    number: int,
    rule: RuleSpec,
    terms: SecureTerms,
) -> CollectedSums:
    """Collect the means of a round's cohorts, each as one update that counts 1; see `masked_sums.release`."""
    aggregation = make_aggregation(
        recipe.training, recipe.ranker, rule, n_expected=len(sums), rng=round_rng(recipe.seed, number)
    )
    released = release(sums, answers, terms, body_spec(recipe.training, recipe.ranker))
    for name, mean in released.means:
        aggregation.add(mean, 1, 1.0, name)
    return CollectedSums(aggregation, released.tally, released.evaluation)


@dataclass(frozen=True)
class Recipes:
    """The recipes of a federation's rounds.

    Attributes:
        seed: the federation's ``aggregation_seed``.
        trainings: by the first round of each: the settings of the method may change when the federator starts again.
    """

    federation: str
    ranker: Ranker
    seed: bytes
    trainings: Mapping[int, Training]

    def of(self, number: int) -> Recipe:
        """Return a round's recipe; DataError if it is not stored."""
        first = max((first for first in self.trainings if first <= number), default=None)
        if first is None:
            raise DataError(f"what round {number} was computed with is not stored: restore the database from a backup")
        return Recipe(self.federation, self.trainings[first], self.ranker, self.seed)


async def load_recipes(db: Database, name: str) -> Recipes:
    """Load the recipes of a federation's rounds.

    Raises:
        SettingsError: the federation does not exist.
        DataError: this foltr does not know one of its methods' settings.
    """
    row = await get_federation(db, name)
    if row is None:
        raise SettingsError(f"federation: {db.location} has no federation {name!r}")
    stored = await load_trainings(db, name)
    return Recipes(
        name,
        ranker_for(row.ranker, row.n_features, row.hidden or 0, row.activation or "sigmoid"),
        row.aggregation_seed or b"",
        {first: stored_training(text) for first, text in stored.items()},
    )
