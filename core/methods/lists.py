"""Makes a list to show from scores in the method's way: drawn from them, or the best list by them."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foltr.core.learning.display import (
    DrawnList,
    best_list,
    interleaved_list,
    sampled_list,
    sometimes_sampled_list,
    swapped_list,
)
from foltr.core.learning.gate import Source, interleaving_credits
from foltr.core.learning.linear import rank_by_score
from foltr.core.protocol.explorations import (
    Exploration,
    InterleavingExploration,
    NoExploration,
    SamplingExploration,
    ShareExploration,
    SwapsExploration,
)
from foltr.core.protocol.trainings import Training


def make_list(training: Training, scores: NDArray[np.floating], k: int, rng: np.random.Generator) -> DrawnList:
    """Return a list of ``k`` of the candidates, in the method's way.

    Args:
        scores: (documents,) of the ranker to show it by, see `foltr.core.methods.base.MethodDevice.scores`.
        rng: used only if the method's lists are drawn.
    """
    # A device that has no federation draws lists, and needs no method.
    from foltr.core.methods.registry import spec_of
    from foltr.core.methods.spec import Lists

    if spec_of(training).lists is Lists.DRAWN:
        return draw_list(training.exploration, scores, k, rng)
    return best_list(scores, k)


def draw_list(exploration: Exploration, scores: NDArray[np.floating], k: int, rng: np.random.Generator) -> DrawnList:
    """Draw a list of ``k`` of the candidates around the order of a model's scores.

    Args:
        scores: (documents,) finite, of the documents in the application's order: that is the base of interleaving, and
            of equal scores the first document is shown first.
    """
    match exploration:
        case SwapsExploration():
            return swapped_list(rank_by_score(scores, k), rng, exploration.probability)
        case NoExploration():
            return best_list(scores, k)
        case ShareExploration():
            return sometimes_sampled_list(scores, k, rng, exploration.share, exploration.temperature)
        case InterleavingExploration():
            return interleaved_list(rank_by_score(scores, k), np.arange(min(k, len(scores))), rng)[0]
        case SamplingExploration():
            return sampled_list(scores, k, rng, exploration.temperature)


def draw_base_list(
    exploration: Exploration,
    scores: NDArray[np.floating],
    k: int,
    rng: np.random.Generator,
) -> DrawnList:
    """Draw a list of ``k`` of the candidates around the application's order, if no model's list is shown.

    Interleaving has only the one list to show. Unscaled scores would give sampling another scale for each application,
    so they are standardised.

    Args:
        scores: (documents,) the application's, never increasing.
    """
    match exploration:
        case SwapsExploration():
            return swapped_list(np.arange(min(k, len(scores))), rng, exploration.probability)
        case InterleavingExploration():
            return best_list(scores, k)
        case SamplingExploration(temperature=None):
            return sampled_list(scores, k, rng, 1.0)
        case _:
            return draw_list(exploration, scores, k, rng)


class SourcedList(NamedTuple):
    """A list that was drawn, and what a gate needs to know of it.

    Attributes:
        source: of its order.
        to_credit: (k,) of an interleaved list, see `foltr.core.learning.gate.interleaving_credits`; None for others.
    """

    shown: DrawnList
    source: Source
    to_credit: NDArray[np.int8] | None = None


def list_from(
    source: Source,
    exploration: Exploration,
    scores: NDArray[np.floating],
    base_scores: NDArray[np.floating],
    k: int,
    rng: np.random.Generator,
) -> SourcedList:
    """Draw a list of ``k`` of the candidates from the gate's source.

    If exploration itself is interleaving, every list of the model is interleaved, and judges it.

    Args:
        scores, base_scores: (documents,) the model's and the application's, in the latter's order.
    """
    if source is Source.BASE:
        return SourcedList(draw_base_list(exploration, base_scores, k, rng), source)
    if source is Source.MODEL and not isinstance(exploration, InterleavingExploration):
        return SourcedList(draw_list(exploration, scores, k, rng), source)
    model, base = rank_by_score(scores, k), np.arange(min(k, len(scores)))
    shown, by_model = interleaved_list(model, base, rng)
    return SourcedList(shown, Source.INTERLEAVED, interleaving_credits(by_model, base, model))
