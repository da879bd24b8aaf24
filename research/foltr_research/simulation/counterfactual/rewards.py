"""What clicks on a logged list say of its documents: estimates of relevance that are free of position and trust bias.

A click depends on the rank k by an affine function of the document's relevance R (Vardasbi et al., "When Inverse
Propensity Scoring does not Work", CIKM 2020):

    P(C = 1 | d, k) = alpha_k P(R = 1 | d) + beta_k.

Position bias alone has beta = 0. A user with trust bias also clicks what is not relevant, because it is ranked high.
From one list, each document gets an estimate of P(R = 1 | d), its *reward*; a policy learns to expose documents by it.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foltr.core.learning.regression_em import relevance_probability

Floats = NDArray[np.float64]

# Of Vardasbi et al. 2020: the most a user clicks what is not relevant, and from which ranks on the chances
# of wrong and of right clicks stay the same.
_MOST_WRONG = 0.65
_WRONG_UNTIL, _RIGHT_UNTIL = 10.0, 20.0


class ClickBias(NamedTuple):
    """How clicks depend on the rank.

    Attributes:
        alpha: (k,) float64 in (0, 1], by how much relevance raises the chance of a click.
        beta: (k,) float64 in [0, 1), the chance of a click on a document that is not relevant.
    """

    alpha: Floats
    beta: Floats


def position_bias(examination: Floats) -> ClickBias:
    """Return the bias of a user who clicks an examined document if it is relevant.

    Args:
        examination: (k,) float64 in (0, 1], P(examined) by rank.
    """
    return ClickBias(examination, np.zeros_like(examination))


def trust_bias(examination: Floats) -> ClickBias:
    """Return the bias of a user who trusts high ranks (Agarwal et al., WWW 2019; figures of Vardasbi et al. 2020).

    An examined document at rank k is clicked with probability 1 - (min(k, 20) + 1) / 100 if it is relevant, otherwise
    with 0.65 / min(k, 10).

    Args:
        examination: (k,) float64 in (0, 1], P(examined) by rank.
    """
    ranks = np.arange(1.0, len(examination) + 1.0)
    right = 1.0 - (np.minimum(ranks, _RIGHT_UNTIL) + 1.0) / 100.0
    wrong = _MOST_WRONG / np.minimum(ranks, _WRONG_UNTIL)
    return ClickBias(examination * (right - wrong), examination * wrong)


def affine_rewards(
    n_documents: int, ranking: NDArray[np.int64], clicks: NDArray[np.bool_], bias: ClickBias, least: float
) -> Floats:
    """Return (documents,) float64 rewards (c - beta_k) / alpha_k, and 0 for documents that were not shown.

    In expectation over clicks the reward of a shown document is P(R = 1 | d) (Vardasbi et al. 2020). With beta
    = 0 this is inverse propensity scoring.

    Args:
        ranking: (k,) int64 distinct documents, as shown.
        clicks: (k,) bool.
        bias: of k ranks.
        least: a smaller alpha counts as this: less variance, and too small rewards at such ranks.
    """
    rewards = np.zeros(n_documents)
    rewards[ranking] = (clicks - bias.beta) / np.maximum(bias.alpha, least)
    return rewards


def doubly_robust_rewards(
    relevance: Floats, ranking: NDArray[np.int64], clicks: NDArray[np.bool_], bias: ClickBias, least: float
) -> Floats:
    """Return (documents,) float64 rewards R^ + (c - beta_k - alpha_k R^) / alpha_k, and R^ for documents not shown.

    Oosterhuis, "Doubly-Robust Estimation for Correcting Position-Bias in Click Feedback" (TOIS 2023), with
    trust bias as in Gupta et al., arXiv 2407.19943. In expectation over clicks the reward of a shown
    document is P(R = 1 | d) if R^ is that, or if alpha_k is at least ``least``. With one fixed list the rewards of
    shown documents with such an alpha are those of `affine_rewards`: the regression is for all others.

    Args:
        relevance: (documents,) float64, R^: the relevance that a regression predicts.
        ranking, clicks, bias, least: as for `affine_rewards`.
    """
    rewards = relevance.copy()
    surprise = clicks - bias.beta - bias.alpha * relevance[ranking]
    rewards[ranking] += surprise / np.maximum(bias.alpha, least)
    return rewards


def relevance_step(
    f_weights: Floats,
    features: NDArray[np.float32],
    ranking: NDArray[np.int64],
    clicks: NDArray[np.bool_],
    bias: ClickBias,
    learning_rate: float,
) -> Floats:
    """Return (d + 1,) float64 weights of the relevance regression after one list, a new array.

    f <- f + learning_rate * mean over the shown documents of (c - beta_k - alpha_k sigma(F(x))) (x, 1). In expectation
    this is logistic regression on P(R = 1 | d), in which a rank counts alpha_k; nothing is divided by a propensity.

    Args:
        f_weights: (d + 1,), the last being the bias.
        features: (documents, d) float32.
        ranking, clicks, bias: as for `affine_rewards`.

    Raises:
        DataError: the regression is not finite.
    """
    shown = features[ranking]
    residual = clicks - bias.beta - bias.alpha * relevance_probability(f_weights, shown)
    gradient: Floats = np.append(residual @ shown.astype(np.float64), residual.sum()) / len(residual)
    return f_weights + learning_rate * gradient
