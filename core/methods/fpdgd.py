"""FPDGD: each device learns by PDGD from its user's clicks; the federator averages by how much each has seen.

Wang et al., "Effective and Privacy-preserving Federated Online Learning to Rank" (ICTIR 2021), Algorithm 2; the
neural ranker as in Section 4.3.1 of Wang's thesis. The update sent is the difference to the global model, whose
weighted mean moves the model as Eq. 10's mean of the weights does.

From a model of zeros a device first learns the order that its application shows (`foltr.core.learning.imitation`),
which is not in the papers.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import DataError
from foltr.core.learning.gate import Source
from foltr.core.learning.imitation import imitation_step
from foltr.core.learning.interaction import Interaction
from foltr.core.learning.neural_pdgd import neural_pdgd_step
from foltr.core.learning.pdgd import pdgd_step
from foltr.core.methods.base import DeviceContext, MethodDevice, checked_scores, checked_weights
from foltr.core.methods.spec import MethodSpec, PdgdSteps, RankerT, TrainingT
from foltr.core.protocol.explorations import SamplingExploration
from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.trainings import LinearRankerSpec, PdgdTraining, RankerSpec
from foltr.core.protocol.updates import DenseDelta, UpdateBody


class FpdgdDevice:
    """One PDGD step for each interaction, from the global model on.

    Args:
        base: (n_weights,) global weights.
    """

    def __init__(self, ranker: RankerSpec, base: NDArray[np.floating], steps: PdgdSteps) -> None:
        self._ranker = ranker
        self._base = base.astype(np.float64)
        self._steps = steps
        self._weights = self._base

    @property
    def weights(self) -> NDArray[np.float64]:
        return self._weights

    def scores(
        self,
        features: NDArray[np.float32],
        *,
        exploring: bool,  # noqa: ARG002 (lists are drawn around the one ranker there is)
    ) -> tuple[NDArray[np.float32], int]:
        return checked_scores(self._ranker, self._weights, features), 0

    def learn(self, interaction: Interaction, rng: np.random.Generator) -> None:  # noqa: ARG002 (nothing is drawn)
        with np.errstate(over="ignore", invalid="ignore"):  # told as an error instead
            stepped = self._step(interaction)
        self._weights = checked_weights(stepped.astype(np.float64, copy=False), self._base)

    def _step(self, interaction: Interaction) -> NDArray[np.floating]:
        if interaction.reversals is None:
            raise DataError("nobody knows how the list was drawn, and PDGD cannot weigh the clicks on it")
        seen = (interaction.features, interaction.ranking, interaction.clicks, self._steps.learning_rate)
        proximal, base, reversals = self._steps.proximal, self._base, interaction.reversals
        if isinstance(self._ranker, LinearRankerSpec):
            return pdgd_step(self._weights, *seen, proximal=proximal, base=base, reversals=reversals)
        return neural_pdgd_step(self._weights, *seen, proximal=proximal, base=base, reversals=reversals)

    def body(self, rng: np.random.Generator) -> UpdateBody:
        if self._steps.sent is None:
            return dense_delta(self._weights, self._base)
        return dense_delta(checked_weights(self._steps.sent(self._weights, self._base, rng)), self._base)

    def local_state(self) -> bytes | None:
        return None


def dense_delta(weights: NDArray[np.float64], base: NDArray[np.float64]) -> DenseDelta:
    """Return the body of an update of all weights: (weights - base) as float32."""
    return DenseDelta(dim=len(base), values=pack_vector((weights - base).astype(np.float32)))


def device_of(
    pdgd: Callable[[TrainingT, RankerT], PdgdSteps],
) -> Callable[[TrainingT, RankerT, NDArray[np.float32], int, DeviceContext], MethodDevice]:
    """Return a function that makes the device part of a method with only such steps."""

    def device(
        training: TrainingT, ranker: RankerT, weights: NDArray[np.float32], _version: int, _context: DeviceContext
    ) -> MethodDevice:
        return FpdgdDevice(ranker, weights, pdgd(training, ranker))

    return device


def _steps(training: PdgdTraining, _ranker: RankerSpec) -> PdgdSteps:
    return PdgdSteps(training.learning_rate)


class BeginningDevice(FpdgdDevice):
    """FPDGD from a linear model of zeros: lists that show the application's order are imitated."""

    def _step(self, interaction: Interaction) -> NDArray[np.floating]:
        if interaction.source is not Source.BASE:
            return super()._step(interaction)
        return imitation_step(self._weights, interaction.features, interaction.ranking, self._steps.learning_rate)


def _device(
    training: PdgdTraining, ranker: RankerSpec, weights: NDArray[np.float32], _version: int, context: DeviceContext
) -> MethodDevice:
    steps, is_sampled = _steps(training, ranker), training.exploration == SamplingExploration()
    if context.shows_base and isinstance(ranker, LinearRankerSpec) and not is_sampled and not weights.any():
        return BeginningDevice(ranker, weights, steps)
    return FpdgdDevice(ranker, weights, steps)


FPDGD = MethodSpec(name="fpdgd", training=PdgdTraining, device=_device, pdgd=_steps)
