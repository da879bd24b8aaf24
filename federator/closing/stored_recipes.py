"""What each round of a federation was computed with, as it is stored."""

from collections.abc import Mapping
from dataclasses import dataclass

from federator.closing.collected_updates import Recipe
from federator.closing.stored_rules import stored_training
from foltr.errors import DataError, SettingsError
from foltr.methods.registry import Ranker, ranker_for
from foltr.protocol.trainings import Training
from storage.database import Database
from storage.federations import get_federation
from storage.trainings import load_trainings


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
        """Return what a round was computed with; DataError where that is not stored."""
        first = max((first for first in self.trainings if first <= number), default=None)
        if first is None:
            raise DataError(f"what round {number} was computed with is not stored: restore the database from a backup")
        return Recipe(self.federation, self.trainings[first], self.ranker, self.seed)


async def load_recipes(db: Database, name: str) -> Recipes:
    """Load what the rounds of a federation were computed with.

    Raises:
        SettingsError: there is no such federation.
        DataError: this foltr does not know one of its methods' settings.
    """
    row = await get_federation(db, name)
    if row is None:
        raise SettingsError(f"federation: {db.location} holds no {name!r}")
    stored = await load_trainings(db, name)
    return Recipes(
        name,
        ranker_for(row.ranker, row.n_features, row.hidden or 0, row.activation or "sigmoid"),
        row.aggregation_seed or b"",
        {first: stored_training(text) for first, text in stored.items()},
    )
