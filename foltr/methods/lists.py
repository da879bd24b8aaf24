"""A list to show is made of scores as the method asks: drawn from them, or the best list by them."""

import numpy as np
from numpy.typing import NDArray

from foltr.learning.display import (
    Shown,
    best_list,
    interleaved_list,
    sampled_list,
    sometimes_sampled_list,
    swapped_list,
)
from foltr.learning.linear import rank_by_score
from foltr.methods.registry import spec_of
from foltr.methods.spec import Lists
from foltr.protocol.explorations import (
    Exploration,
    InterleavingExploration,
    NoExploration,
    SamplingExploration,
    ShareExploration,
    SwapsExploration,
)
from foltr.protocol.trainings import Training


def make_list(training: Training, scores: NDArray[np.floating], k: int, rng: np.random.Generator) -> Shown:
    """Return a list of ``k`` of the candidates, as a method shows it.

    Args:
        scores: (documents,) of the ranker to show it by, see `foltr.methods.base.Device.scores`.
        rng: drawn from only where the method's lists are drawn.
    """
    if spec_of(training).lists is Lists.DRAWN:
        return draw_list(training.exploration, scores, k, rng)
    return best_list(scores, k)


def draw_list(exploration: Exploration, scores: NDArray[np.floating], k: int, rng: np.random.Generator) -> Shown:
    """Draw a list of ``k`` of the candidates around the order of a model's scores.

    Args:
        scores: (documents,) finite, of the documents in the application's order: that is the base of interleaving, and
            of equal scores the first document is shown first.
    """
    match exploration:
        case NoExploration():
            return best_list(scores, k)
        case ShareExploration():
            return sometimes_sampled_list(scores, k, rng, exploration.share, exploration.temperature)
        case SwapsExploration():
            return swapped_list(rank_by_score(scores, k), rng, exploration.probability)
        case InterleavingExploration():
            return interleaved_list(rank_by_score(scores, k), np.arange(min(k, len(scores))), rng)
        case SamplingExploration():
            return sampled_list(scores, k, rng, exploration.temperature)


def draw_base_list(exploration: Exploration, scores: NDArray[np.floating], k: int, rng: np.random.Generator) -> Shown:
    """Draw a list of ``k`` of the candidates around the application's order, where no model's is shown.

    Interleaving has only the one list to show. Sampling of the scores as they are would be of another application's
    scale each time, so they are standardised.

    Args:
        scores: (documents,) the application's, not rising.
    """
    match exploration:
        case InterleavingExploration():
            return best_list(scores, k)
        case SamplingExploration(temperature=None):
            return sampled_list(scores, k, rng, 1.0)
        case _:
            return draw_list(exploration, scores, k, rng)
