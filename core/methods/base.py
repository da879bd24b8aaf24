"""The parts of a method: a device part, made again for each global model, and a federator part for each round."""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from foltr.core.aggregation.round_report import RoundReport
from foltr.core.errors import DataError
from foltr.core.learning.interaction import Interaction
from foltr.core.learning.linear import score
from foltr.core.learning.neural import neural_score
from foltr.core.learning.relu import relu_score
from foltr.core.protocol.fields import MAX_ABS_DELTA
from foltr.core.protocol.trainings import LinearRankerSpec, NeuralRankerSpec
from foltr.core.protocol.updates import UpdateBody

# Half of float32's range: the difference to the global weights, which may be as large, still fits.
_LARGEST_WEIGHT = float(np.finfo(np.float32).max) / 2


@dataclass(frozen=True, eq=False)
class DeviceContext:
    """What a method may know of its device; none of it is sent.

    Attributes:
        device_seed: 63 bits that only this device has.
        local_state: what `Device.local_state` returned when the newest counted update was made.
        propensities: (k,) float64 probability that this user examines each position, if an application knows it.
        shows_base: lists show an application's order as long as the model is zeros.
    """

    device_seed: int
    local_state: bytes | None = None
    propensities: NDArray[np.float64] | None = None
    shows_base: bool = False


class MethodDevice(Protocol):
    """The device part of a method for one global model."""

    @property
    def weights(self) -> NDArray[np.float64]:
        """Return (n_weights,) of the ranker this device would show its user, with what it has learned."""

    def scores(self, features: NDArray[np.float32], *, exploring: bool) -> tuple[NDArray[np.float32], int]:
        """Return (documents,) scores of the ranker to show a list by, and the list's `Interaction.variant`.

        Args:
            features: (documents, d) of all candidates.
            exploring: whether the list may come from another ranker than the best one this device knows.

        Raises:
            DataError: the scores are not finite.
        """

    def learn(self, interaction: Interaction, rng: np.random.Generator) -> None:
        """Learn one interaction; DataError if it cannot be learned, and then nothing is changed.

        Replace what `rank` uses, never change it in place: another thread may be ranking by a shallow copy.
        """

    def body(self, rng: np.random.Generator) -> UpdateBody:
        """Return the body of what was learned since the global model."""

    def local_state(self) -> bytes | None:
        """Return the state that stays here and begins the next model's device part; None if the method has none."""


@dataclass(frozen=True)
class Memory:
    """A federator's state from round to round besides the model.

    Attributes:
        optimiser: the state of a method's server optimiser; None without one, or before the first round.
        defence: an aggregation rule's memory of clients; None for rules without memory.
    """

    optimiser: bytes | None = None
    defence: bytes | None = None


NO_MEMORY = Memory()


@dataclass(frozen=True, eq=False)
class NextModel:
    """The result of a round.

    Attributes:
        weights: (n,) float32, the next global model.
        memory: for the round after.
        report: what the aggregation rule did with each update; None for the plain mean, which keeps them all.
    """

    weights: NDArray[np.float32]
    memory: Memory
    report: RoundReport | None = None


class Aggregation(Protocol):
    """The federator part of a method for one round."""

    def add(self, body: UpdateBody, n_interactions: int, staleness_weight: float = 1.0, client_id: str = "") -> None:
        """Take one update.

        Args:
            staleness_weight: shrinks an update that is out of date (see
                `foltr.core.aggregation.mean.staleness_weight`).
            client_id: the sender; only a rule that tells clients apart needs it.

        Raises:
            DataError: it cannot be part of this federation's aggregate.
        """

    def finish(self, base: NDArray[np.float32], memory: Memory = NO_MEMORY) -> NextModel:
        """Return the next model.

        Args:
            base: (n,) the global model.
            memory: what the round before returned; nothing in the first.

        Raises:
            DataError: nothing was added, or the model does not fit float32.
            TooFewUpdatesError: fewer than the rule needs, and its fallback is to abandon the round.
        """


def scores_of(
    ranker: LinearRankerSpec | NeuralRankerSpec, weights: NDArray[np.floating], features: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return (documents,) float32 scores by a ranker of either kind."""
    if isinstance(ranker, LinearRankerSpec):
        return score(weights, features)
    scored_by = relu_score if ranker.activation == "relu" else neural_score
    scores: NDArray[np.float32] = scored_by(weights, features, ranker.hidden)
    return scores


def checked_scores(
    ranker: LinearRankerSpec | NeuralRankerSpec, weights: NDArray[np.floating], features: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return `scores_of` these; DataError if one is not finite."""
    with np.errstate(over="ignore", invalid="ignore"):  # reported as an error instead
        scores = scores_of(ranker, weights, features)
    if not np.isfinite(scores).all():
        raise DataError("features: too large, the scores are not finite; normalise them to [0, 1]")
    return scores


def checked_weights(weights: NDArray[np.float64], base: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
    """Return the weights; DataError if one is not finite, or the update from ``base`` would be refused."""
    if not np.abs(weights).max(initial=0.0) <= _LARGEST_WEIGHT:  # written so that NaN fails it too
        raise DataError("a learning step ended in weights that are not finite or do not fit float32")
    if base is not None and np.abs(weights - base).max(initial=0.0) > MAX_ABS_DELTA:
        # Drop one list, not the whole update with it.
        raise DataError(f"a learning step moved a weight by more than {MAX_ABS_DELTA:g}: features should be in [0, 1]")
    return weights
