"""A list is judged by: which of the documents shown its user preferred, and how far a model agrees with that.

A guard (`edge_client.guard.guard`) and a comparison for votes (`edge_client.votes.voter`) read a list alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge_client.serps import Serp
from foltr.learning.agreement import Preferences, agreement, preferences
from foltr.methods.base import scores_of
from foltr.methods.registry import Ranker


@dataclass(frozen=True, eq=False)
class JudgedList:
    """What of one list models are judged by.

    Attributes:
        features: (k, d) float32 of the documents shown, in the order shown.
        preferences: in the clicks on it.
    """

    features: NDArray[np.float32]
    preferences: Preferences


def read_list(serp: Serp, clicks: NDArray[np.bool_]) -> JudgedList | None:
    """Return what models can be judged by of a list with its clicks (shown,); None where it says nothing."""
    said = preferences(serp.reversals, clicks)
    return None if said.total == 0.0 else JudgedList(serp.features[serp.ranking], said)


def agreements(ranker: Ranker, weights: NDArray[np.floating], lists: Sequence[JudgedList]) -> NDArray[np.float64]:
    """Return (lists,) a model's agreement with each, in [0, 1]; all have as many features as the ranker.

    Args:
        weights: (n_weights,) of the ranker.
    """
    if not lists:
        return np.zeros(0)
    with np.errstate(over="ignore", invalid="ignore"):  # what is not a number agrees with nothing
        scores = scores_of(ranker, weights, np.concatenate([judged.features for judged in lists]))
    ends = np.cumsum([len(judged.features) for judged in lists])
    return np.array(
        [agreement(own, judged.preferences) for own, judged in zip(np.split(scores, ends[:-1]), lists, strict=True)]
    )
