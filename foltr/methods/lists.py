"""A list to show is made of scores as the method asks: drawn from them, or the best list by them."""

import numpy as np
from numpy.typing import NDArray

from foltr.learning.display import Shown, best_list, sampled_list
from foltr.methods.registry import spec_of
from foltr.methods.spec import Lists
from foltr.protocol.trainings import Training


def make_list(training: Training, scores: NDArray[np.floating], k: int, rng: np.random.Generator) -> Shown:
    """Return a list of ``k`` of the candidates.

    Args:
        scores: (documents,) of the ranker to show it by, see `foltr.methods.base.Device.scores`.
        rng: drawn from only where the method's lists are drawn.
    """
    if spec_of(training).lists is Lists.DRAWN:
        return sampled_list(scores, k, rng)
    return best_list(scores, k)
