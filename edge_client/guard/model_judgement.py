"""Does a new model explain a user's clicks far worse than the old one? The judgement of a device that may refuse it.

The device holds back some of its user's clicks, and learns from none of them. A model explains a list by the
preferences in its clicks: PDGD's pairs of a clicked document and one that was seen and not clicked (Oosterhuis and de
Rijke, CIKM 2018; `foltr.learning.pdgd`), of which it agrees with those whose clicked document it scores higher. Only
the order of scores counts, not their size: noisy clicks make a likelihood of pairs prefer small weights, and so
zeros, to honest ones.

The old model has shown the lists, which is no small thing. Most pairs are of a click below something skipped, so they
speak against the order shown, whatever the documents are (Joachims, KDD 2002); counted alike, a model turned upside
down would do well. So each pair has PDGD's weight rho, the probability that the list was shown with the two the other
way round and not so: where clicks do not depend on the documents, any model then agrees with half of the weight on
average. What is left is an advantage of the old model: users can only click what it showed. Hence the margin.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foltr.errors import DataError
from foltr.learning.display import MOST_COMPARED

FEWEST_LISTS = 30
"""Before so many lists with a preference no model is refused."""
MARGIN = 0.05
"""The least loss of agreement that is far worse. It is what spares honest models: a round of theirs costs below 0.02
and thirty rounds below 0.05 nearly always (``benchmarks/guard.py``), all zeros or a model turned upside down 0.05 to
0.5, by how noisy the clicks are."""
STANDARD_ERRORS = 2.0
"""How many times its standard error the loss must be as well, so that it is not the doing of few lists. With 3, hardly
any model was refused where clicks are noisy, and no fewer honest ones."""


@dataclass(frozen=True, eq=False)
class Preferences:
    """The clicks on one list prefer documents to others, pair by pair.

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


@dataclass(frozen=True)
class Judgement:
    """A judgement says how two models explain the same lists.

    Attributes:
        refused: the new one explains them far worse.
        n_lists: with a preference.
        kept, new: share of the weight of all preferences that the old and the new model agree with.
        loss: ``kept - new``.
        standard_error: of the loss, over lists; infinite for fewer than two.
    """

    refused: bool
    n_lists: int
    kept: float
    new: float
    loss: float
    standard_error: float


def preferences(reversals: NDArray[np.float64], clicks: NDArray[np.bool_]) -> Preferences:
    """Return the preferences in the clicks on a list: the pairs of `foltr.learning.pdgd.score_gradient`.

    Args:
        reversals: of the list as it was drawn, see `foltr.learning.display.Shown`.
        clicks: (k,) bool.

    Raises:
        DataError: there is not one reversal for each pair of the list.
    """
    n = min(len(clicks), MOST_COMPARED)
    if len(reversals) != n * (n - 1) // 2:
        raise DataError(f"{len(reversals)} reversals of a list of {len(clicks)}; each pair has one")
    clicked = np.flatnonzero(clicks[:n])
    seen = min(int(clicked[-1]) + 2, n) if len(clicked) else 0
    skipped = np.flatnonzero(~clicks[:seen])
    preferred, other = np.repeat(clicked, len(skipped)), np.tile(skipped, len(clicked))
    of_pairs = np.zeros((n, n))
    of_pairs[np.triu_indices(n, 1)] = reversals
    return Preferences(preferred, other, of_pairs[np.minimum(preferred, other), np.maximum(preferred, other)])


def agreement(scores: NDArray[np.floating], preferred_by_user: Preferences) -> float:
    """Return the share of a list's preferences that a model agrees with, in [0, 1]; 0 of a list without any.

    Args:
        scores: (k,) of the documents shown, in the order shown, by the model that is judged. Equal ones agree half;
            one that is not a number agrees with nothing.
        preferred_by_user: of the list.
    """
    if preferred_by_user.total == 0.0:
        return 0.0
    high, low = scores[preferred_by_user.preferred], scores[preferred_by_user.other]
    agreed = (high > low) + 0.5 * (high == low)
    return float(agreed @ preferred_by_user.weight / preferred_by_user.total)


def judge(
    weights: NDArray[np.float64],
    kept: NDArray[np.float64],
    new: NDArray[np.float64],
    margin: float = MARGIN,
    fewest_lists: int = FEWEST_LISTS,
) -> Judgement:
    """Compare two models on the lists that were held back.

    A paired test: D = sum w_i (a_i - b_i) / sum w_i, the difference of two ratio estimates, has by linearisation the
    variance n / (n - 1) * sum (w_i (a_i - b_i - D))^2 / (sum w_i)^2 (Cochran, Sampling Techniques, 1977, Section 6).
    Refused is what loses at least ``margin`` and `STANDARD_ERRORS` times the root of that, with lists enough.

    Args:
        weights: (lists,) of each list's preferences (`Preferences.total`).
        kept: (lists,) the old model's `agreement` with each.
        new: (lists,) the new model's.
        margin: in (0, 1].
        fewest_lists: at least 2.
    """
    said = weights > 0.0
    weights, kept, new = weights[said], kept[said], new[said]
    n_lists, total = len(weights), float(weights.sum())
    if n_lists == 0:
        return Judgement(False, 0, 0.0, 0.0, 0.0, float("inf"))
    of_kept, of_new = float(weights @ kept / total), float(weights @ new / total)
    loss = of_kept - of_new
    standard_error = float("inf")
    if n_lists > 1:
        residuals = weights * (kept - new - loss)
        standard_error = float(np.sqrt(n_lists / (n_lists - 1) * (residuals @ residuals))) / total
    refused = n_lists >= fewest_lists and loss >= margin and loss > STANDARD_ERRORS * standard_error
    return Judgement(refused, n_lists, of_kept, of_new, loss, standard_error)
