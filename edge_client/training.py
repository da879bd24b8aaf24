"""Local training: fold the waiting interactions, in order, into the global model.

The result depends on the base model and the interactions alone, so it can be dropped and made again.
"""

from typing import Protocol

import numpy as np
import numpy.typing as npt

from edge_client.store import Interaction
from foltr.errors import DataError
from foltr.messages import PdgdTraining
from foltr.pdgd import pdgd_step

# Half of float32's range: the difference to the global weights, which may be as large, still fits.
_LARGEST_WEIGHT = float(np.finfo(np.float32).max) / 2


class Learner(Protocol):
    """One step of learning from one interaction."""

    def __call__(
        self, weights: npt.NDArray[np.float64], interaction: Interaction, training: PdgdTraining
    ) -> npt.NDArray[np.float64]:
        """The weights (d,) after the step; ``weights`` itself stays as it is."""


def pdgd_learner(
    weights: npt.NDArray[np.float64], interaction: Interaction, training: PdgdTraining
) -> npt.NDArray[np.float64]:
    """One PDGD step (fpdgd-2021, Algorithm 1)."""
    stepped = pdgd_step(weights, interaction.features, interaction.ranking, interaction.clicks, training.learning_rate)
    return stepped.astype(np.float64, copy=False)


class LocalTraining:
    """The device's working copy of one global model.

    Attributes:
        weights: (d,) float64, the global weights with every interaction in ``interaction_ids`` learned.
    """

    def __init__(self, base_weights: npt.NDArray[np.float32], base_version: int, learner: Learner) -> None:
        self.base_version = base_version
        self._base = base_weights.astype(np.float64)
        self._learner = learner
        self.weights = self._base
        self.interaction_ids: list[int] = []

    @property
    def dim(self) -> int:
        return len(self._base)

    def learn(self, interaction: Interaction, training: PdgdTraining) -> None:
        """Learn one interaction.

        Raises:
            DataError: it cannot be learned, e.g. because its features are too large; nothing is changed.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # told as an error instead
            stepped = self._learner(self.weights, interaction, training)
        if not np.abs(stepped).max(initial=0.0) <= _LARGEST_WEIGHT:  # written so that NaN fails it too
            raise DataError("a learning step ended in weights that are not finite or do not fit float32")
        self.weights = stepped
        self.interaction_ids.append(interaction.id)

    def delta(self) -> npt.NDArray[np.float32]:
        """(d,) float32: what was learned since the global model."""
        return (self.weights - self._base).astype(np.float32)
