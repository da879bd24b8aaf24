"""FPDGD with the noise of its paper: local weights are clipped and every device adds a share of Laplace noise.

Wang et al. (ICTIR 2021), Algorithm 3, Eq. 13, 15 and 16. It is here to reproduce the paper's figures. The epsilon
printed there is not what is guaranteed: `foltr.learning.laplace_shares` computes both, and nothing is protected from
whoever sees single updates, as the federator does.
"""

import numpy as np
from numpy.typing import NDArray

from foltr.learning.laplace_shares import clip_weights, gamma_noise
from foltr.methods.base import checked_weights
from foltr.methods.fpdgd import FpdgdDevice, dense_delta
from foltr.protocol.trainings import FpdgdPaperTraining, LinearRankerSpec, NeuralRankerSpec
from foltr.protocol.updates import UpdateBody

SENT_ONCE = 1


class FpdgdPaperDevice(FpdgdDevice):
    """As FPDGD, but what is sent is clipped and noised; the device itself goes on with exact weights."""

    def __init__(
        self,
        ranker: LinearRankerSpec | NeuralRankerSpec,
        base: NDArray[np.float32],
        training: FpdgdPaperTraining,
    ) -> None:
        super().__init__(ranker, base, training.learning_rate)
        self._training = training

    def rank(
        self, features: NDArray[np.float32], k: int, rng: np.random.Generator | None
    ) -> tuple[NDArray[np.int64], int]:
        # A variant, so that clicks of a refused update are spent: sent again they would come with fresh noise, and
        # enough answers of "late" would average it out.
        return super().rank(features, k, rng)[0], SENT_ONCE

    def body(self, rng: np.random.Generator) -> UpdateBody:
        training = self._training
        noise = gamma_noise(training.n_clients, training.sensitivity, training.epsilon, len(self._base), rng)
        return dense_delta(checked_weights(clip_weights(self._weights, training.sensitivity) + noise), self._base)
