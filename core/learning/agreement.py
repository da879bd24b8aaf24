"""A user's clicks on a list prefer documents to others; how two models rank these shows which model is better.

A list's preferences are PDGD's pairs of a clicked document and one that was seen and not clicked (Oosterhuis and de
Rijke, CIKM 2018; `foltr.core.learning.pdgd`). A model's *agreement* is the share of pairs that it orders likewise,
less the share that it orders otherwise. Only the order of scores counts, not their size: with noisy clicks a
likelihood of pairs prefers small weights, and so zeros, to honest ones.

Most pairs are of a click below something skipped, so they speak against the order shown, for any documents (Joachims,
KDD 2002); counted equally, a model turned upside down would do well. So each pair has PDGD's weight rho, the
probability that the list was shown with the two exchanged rather than as it was: then no model agrees on average if
clicks do not depend on the documents.

How far apart a model places the two among all candidates says nothing here. The model that has chosen the list has
placed all of it near the top, so its distances are small and another model's are large, however good either is: by
distances, users of a model with nDCG@10 of 0.84 found it worse than one with 0.76.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import DataError
from foltr.core.learning.display import MOST_COMPARED


@dataclass(frozen=True, eq=False)
class Preferences:
    """The preferences in the clicks on one list, pair by pair.

    Attributes:
        preferred: (pairs,) int64 0-based positions in the list, clicked.
        other: (pairs,) int64 positions, seen and not clicked.
        weight: (pairs,) float64 in [0, 1], rho.
    """

    preferred: NDArray[np.int64]
    other: NDArray[np.int64]
    weight: NDArray[np.float64]

    @property
    def total(self) -> float:
        """The weight of the list: 0 without a preference."""
        return float(self.weight.sum())


def preferences(reversals: NDArray[np.float64], clicks: NDArray[np.bool_]) -> Preferences:
    """Return the preferences in the clicks on a list: the pairs of `foltr.core.learning.pdgd.score_gradient`.

    Args:
        reversals: of the list as it was drawn, see `foltr.core.learning.display.DrawnList`.
        clicks: (k,) bool.

    Raises:
        DataError: the number of reversals is not that of the list's pairs.
    """
    n = min(len(clicks), MOST_COMPARED)
    if len(reversals) != n * (n - 1) // 2:
        raise DataError(f"{len(reversals)} reversals of a list of {len(clicks)}; each pair has one")
    clicked = np.flatnonzero(clicks[:n])
    seen = min(int(clicked[-1]) + 2, n) if len(clicked) else 0
    skipped = np.flatnonzero(~clicks[:seen])
    preferred, other = np.repeat(clicked, len(skipped)), np.tile(skipped, len(clicked))
    upper, lower = np.minimum(preferred, other), np.maximum(preferred, other)
    # Pairs are row by row: those of a document with the documents below it.
    of_pairs = np.asarray(reversals, np.float64)[upper * (2 * n - upper - 1) // 2 + lower - upper - 1]
    return Preferences(preferred, other, of_pairs)


def agreement(scores: NDArray[np.floating], ranking: NDArray[np.int64], preferred_by_user: Preferences) -> float:
    """Return how far a model agrees with a user's preferences, in [-1, 1]; 0 without any.

    It is the weighted mean over the pairs of 1 if the model scores the preferred document higher, -1 if lower, 0 if
    equal.

    Args:
        scores: (documents,) of all candidates by the judged model; NaN is last.
        ranking: (k,) int64 indices of the documents shown, in the order shown.
        preferred_by_user: of the list.
    """
    if preferred_by_user.total == 0.0:
        return 0.0
    shown = scores[ranking]
    shown = np.where(np.isnan(shown), -np.inf, shown)
    preferred, other = shown[preferred_by_user.preferred], shown[preferred_by_user.other]
    ordered = (preferred > other).astype(np.float64) - (preferred < other)
    return float(ordered @ preferred_by_user.weight / preferred_by_user.total)
