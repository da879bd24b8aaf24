"""A device takes a new model only if it explains the user's own clicks significantly better than the one it has.

It is our reading of the test of RankGuard (Gregoriadis et al. 2026, arXiv:2606.12246), where nodes without a server
judge each other's models so, for experiments that set it beside the votes. Known to us is its abstract,
and from a summary of it by others that a t-test is taken: models are judged by the user's own clicks, corrected for
position bias. All else here is a guess or a choice: what it is to explain a list, the level, how many lists are kept.

- *To explain*: the discounted gain that a model would give to what was clicked, each click weighted by the inverse of
  the probability that its position was examined (Agarwal et al., "A General Framework for Counterfactual
  Learning-to-Rank", SIGIR 2019, with the discount of DCG). It needs no click on what a model thinks little of, and its
  mean over lists is not moved by where documents were shown, but for those that were not shown at all: a click on
  these cannot be, which is to the advantage of the model that has shown the lists.
- *Significantly*: Student's t-test, one-sided and paired list by list.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from foltr.core.learning.regression_em import LOWEST_PROPENSITY

LEVEL = 0.05
"""Of the test, where nothing else is said: how often a model that is no better may pass."""
MOST_LISTS = 200
"""So many of the newest lists with a click are a device's history."""
FEWEST_LISTS = 30
"""Before so many no model is taken."""


@dataclass(frozen=True, eq=False)
class ClickedList:
    """What is kept of a list that was shown and clicked on.

    Attributes:
        clicked: (clicks,) int64 indices of the documents clicked, among all candidates; at least one.
        propensities: (clicks,) float64 in (0, 1], that the position of each was examined.
    """

    clicked: NDArray[np.int64]
    propensities: NDArray[np.float64]


@dataclass(frozen=True)
class Acceptance:
    """What the test says of a new model.

    Attributes:
        accepted: it explains the lists significantly better.
        n_lists: that there were.
        gain: how much more it explains of a list, on average.
        t: the gain in its standard errors; infinite where lists do not differ at all.
    """

    accepted: bool
    n_lists: int
    gain: float
    t: float


def explained(
    scores: NDArray[np.floating], spans: NDArray[np.int64], lists: Sequence[ClickedList]
) -> NDArray[np.float64]:
    """Return (models, lists) float64 the gain that each model gives to what was clicked on each list.

    It is the sum over clicks of 1 / (p log2(1 + r)). The rank r, from 1, is the one among all candidates that the model
    gives. Where scores are equal it is the mean over their ranks (McSherry and Najork, ECIR 2008), so that a model that
    cannot tell candidates apart is worth what chance is; what is not a number is behind all others. No propensity p
    counts as less than `foltr.core.learning.regression_em.LOWEST_PROPENSITY`.

    Args:
        scores: (models, documents) of all candidates of all queries.
        spans: (lists, 2) of each list where its candidates begin and end among the documents.
    """
    if not lists:
        return np.zeros((len(scores), 0))
    known = np.where(np.isnan(scores), -np.inf, scores)
    of_list = np.repeat(np.arange(len(lists)), [len(one.clicked) for one in lists])
    first = spans[of_list, 0]
    own = known[:, first + np.concatenate([one.clicked for one in lists])]
    # Each click meets all candidates of its list, one after the other.
    met = spans[of_list, 1] - first
    begins = np.cumsum(met) - met
    others = known[:, np.repeat(first - begins, met) + np.arange(met.sum())]
    own_again = np.repeat(own, met, axis=1)
    ahead = np.add.reduceat(others > own_again, begins, axis=1, dtype=np.int64)
    level = np.add.reduceat(others == own_again, begins, axis=1, dtype=np.int64)
    discounts = np.concatenate([[0.0], np.cumsum(1.0 / np.log2(np.arange(2.0, met.max() + 2.0)))])
    propensities = np.maximum(np.concatenate([one.propensities for one in lists]), LOWEST_PROPENSITY)
    gains = (discounts[ahead + level] - discounts[ahead]) / (level * propensities)
    return np.add.reduceat(gains, np.flatnonzero(np.diff(of_list, prepend=-1)), axis=1)


def judge(
    kept: NDArray[np.float64], new: NDArray[np.float64], level: float = LEVEL, fewest: int = FEWEST_LISTS
) -> Acceptance:
    """Say whether a new model explains the same lists significantly better than the one that is kept.

    Args:
        kept: (lists,) `explained` by the model the device has.
        new: (lists,) by the new one.
        level: in (0, 0.5]; at 0.5 all is accepted that explains more on average.
        fewest: at least 2; with fewer lists no model is accepted.
    """
    n = len(kept)
    if n < fewest:
        return Acceptance(False, n, float((new - kept).mean()) if n else 0.0, 0.0)
    differences = new - kept
    gain, error = float(differences.mean()), float(differences.std(ddof=1)) / math.sqrt(n)
    if error == 0.0:
        return Acceptance(gain > 0.0, n, gain, math.copysign(math.inf, gain) if gain else 0.0)
    return Acceptance(gain > t_quantile(1.0 - level, n - 1) * error, n, gain, gain / error)


def t_quantile(probability: float, freedom: int) -> float:
    """Return a quantile of Student's t, by the expansion of Abramowitz and Stegun (1964), 26.7.5.

    From ten degrees of freedom on, and not beyond 0.999, it is exact to a thousandth.

    Args:
        probability: in (0, 1).
        freedom: degrees of freedom, at least 1.
    """
    z = NormalDist().inv_cdf(probability)
    terms: tuple[float, ...] = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + math.fsum(term / float(freedom) ** power for power, term in enumerate(terms, start=1))
