"""Does a new model explain a user's clicks far worse than the old one? The judgement of a device that may refuse it.

The device holds back some of its user's clicks, and learns from none of them. How far a model agrees with the
preferences in these clicks is said in `foltr.core.learning.agreement`. The old model has shown the lists, and users can
only click what it showed: an advantage that weighing pairs cannot take out. Hence the margin.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

FEWEST_LISTS = 30
"""Before so many lists with a preference no model is refused."""
MARGIN = 0.05
"""The least loss of agreement that is far worse. It is what spares honest models: a round of theirs costs below 0.02
and thirty rounds below 0.05 nearly always, all zeros or a model turned upside down
0.05 to 0.5, by how noisy the clicks are."""
STANDARD_ERRORS = 2.0
"""How many times its standard error the loss must be as well, so that it is not the doing of few lists. With 3, hardly
any model was refused where clicks are noisy, and no fewer honest ones."""


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
        weights: (lists,) of each list's preferences (`foltr.core.learning.agreement.Preferences.total`).
        kept: (lists,) the old model's agreement with each.
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
