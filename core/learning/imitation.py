"""Learn the order of a list as it was shown, with or without clicks: what a model of zeros learns first.

An application's order is a supervisor that costs no click (weak supervision, Dehghani et al., "Neural Ranking Models
with Weak Supervision", SIGIR 2017). Clicks alone need hundreds of lists to reach it, and until then each list that
compares the two is worse than the application's. A model that begins by imitating it is about as good after one round,
and often better: it follows all features that the order agrees with.
"""

import numpy as np
from numpy.typing import NDArray

from foltr.core.learning.display import MOST_COMPARED
from foltr.core.learning.linear import score

OF_LEARNING_RATE = 0.1
"""The rate of these steps in learning rates of PDGD, whose gradients are far shorter."""


def imitation_step(
    weights: NDArray[np.float64], features: NDArray[np.float32], ranking: NDArray[np.int64], learning_rate: float
) -> NDArray[np.float64]:
    """Return a linear ranker's weights after one list: a step up the likelihood of its order.

    The likelihood is Plackett-Luce's (ListMLE, Xia et al., ICML 2008): each document against those that were left.
    Position i, from 1, weighs 1 / i, as in the reciprocal rank.

    Args:
        weights: (d,).
        features: (docs, d) float32, of all candidates.
        ranking: (k,) distinct document indices, best first.
        learning_rate: of PDGD.
    """
    scores = score(weights, features).astype(np.float64)
    of_scores, is_left = np.zeros(len(scores)), np.ones(len(scores), np.bool_)
    for position, document in enumerate(ranking[:MOST_COMPARED].tolist(), start=1):
        likely = np.exp(scores[is_left] - scores[is_left].max())
        of_scores[is_left] -= likely / (position * likely.sum())
        of_scores[document] += 1.0 / position
        is_left[document] = False
    stepped: NDArray[np.float64] = weights + OF_LEARNING_RATE * learning_rate * (of_scores @ features)
    return stepped
