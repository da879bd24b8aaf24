"""Exposure of documents under a stochastic policy, its gradient, and two ways to keep it near that of a safe policy.

A policy draws rankings by the Plackett-Luce model of its scores. The exposure of a document is the expected weight of
its rank, omega(d | pi) = sum_k w_k P(d at rank k), and a policy's estimated utility is the sum of exposure times reward
over the documents. Expectations are means over drawn rankings; within each, the chance of every document at a rank is
exact.
"""

import math

import numpy as np
from numpy.typing import NDArray

from foltr.core.numerics.compiled import compiled

Floats = NDArray[np.float64]
# exp(-600) is zero for every purpose here, and a quotient of sums of such numbers is still exact.
_FARTHEST = 600.0


def rank_weights(k: int) -> Floats:
    """Return (k,) float64 weights of the ranks 1 to k, those of DCG: 1 / log2(rank + 1)."""
    weights: Floats = 1.0 / np.log2(np.arange(2.0, k + 2.0))
    return weights


@compiled
def exposure(scores: Floats, weights: Floats, noise: Floats) -> Floats:
    """Return (documents,) float64 exposure, above 0.

    Args:
        scores: (documents,) float64, finite.
        weights: (k,) float64 of the ranks, k at most the number of documents.
        noise: (samples, documents) float64 standard Gumbel noise: the k largest sums of score and noise are a draw.
    """
    found, strengths = np.zeros(scores.shape[0]), strengths_of(scores)
    for sample in range(noise.shape[0]):
        left, keys = strengths.copy(), scores + noise[sample]
        for rank in range(weights.shape[0]):
            share = weights[rank] / np.sum(left)
            for document in range(scores.shape[0]):
                found[document] += share * left[document]
            chosen = np.argmax(keys)
            left[chosen], keys[chosen] = 0.0, -np.inf
    result: Floats = found / noise.shape[0]
    return result


@compiled
def utility_gradient(scores: Floats, rewards: Floats, weights: Floats, noise: Floats) -> Floats:
    """Return (documents,) float64 gradient of sum_d exposure(d) * reward(d) by the scores.

    PL-Rank-2 (Oosterhuis, "Computationally Efficient Optimization of Plackett-Luce Ranking Models", SIGIR 2021).

    Args:
        scores, weights, noise: as for `exposure`.
        rewards: (documents,) float64, finite.
    """
    depth, strengths = weights.shape[0], strengths_of(scores)
    gradient = np.zeros(scores.shape[0])
    ranking, to_go = np.empty(depth, np.int64), np.zeros(depth + 1)
    for sample in range(noise.shape[0]):
        left, keys = strengths.copy(), scores + noise[sample]
        for rank in range(depth):
            ranking[rank] = np.argmax(keys)
            keys[ranking[rank]] = -np.inf
        for rank in range(depth - 1, -1, -1):
            to_go[rank] = to_go[rank + 1] + weights[rank] * rewards[ranking[rank]]
        for rank in range(depth):
            total = np.sum(left)
            for document in range(scores.shape[0]):
                chance = left[document] / total
                gradient[document] += chance * (weights[rank] * rewards[document] - to_go[rank])
            gradient[ranking[rank]] += to_go[rank + 1]
            left[ranking[rank]] = 0.0
    result: Floats = gradient / noise.shape[0]
    return result


@compiled
def strengths_of(scores: Floats) -> Floats:
    """Return (documents,) float64 in proportion to the probabilities to be drawn first, the largest 1 and all above 0.

    Scores more than `_FARTHEST` below the best count as so far below it.
    """
    strengths: Floats = np.exp(np.maximum(scores - np.max(scores), -_FARTHEST))
    return strengths


def proximal_rewards(rewards: Floats, exposed: Floats, safe: Floats, clip: float) -> Floats:
    """Return the rewards, without those whose document's exposure has moved far enough already.

    PRPO (Gupta et al., "Practical and Robust Safety Guarantees for Advanced Counterfactual Learning to Rank", arXiv
    2407.19943). Its objective is the sum of safe exposure times min(x, 1 / clip) r for rewards r above 0 and
    max(x, clip) r for others, x being the exposure relative to the safe one. Its derivative by a document's exposure is
    r within the bound and 0 beyond: nothing is gained by moving farther, for any reward.

    Args:
        rewards, exposed, safe: (documents,) float64.
        clip: in (0, 1]; 1 gains nothing by any move.
    """
    beyond = np.where(rewards > 0.0, exposed > safe / clip, exposed < safe * clip)
    return np.where(beyond, 0.0, rewards)


def penalised_rewards(rewards: Floats, exposed: Floats, safe: Floats, risk: float) -> Floats:
    """Return the rewards minus the gradient of the risk: of ``risk`` * sqrt(d2), by each document's exposure.

    Safe doubly robust learning (Gupta et al., arXiv 2407.19943): d2 = sum_d exposed^2 / safe / sum_d safe is
    the exposure's divergence from the safe one, 1 if they are equal. The paper takes the root of its mean over
    queries; a device has one query at a time, so this is the mean of roots.

    Args:
        rewards, exposed, safe: (documents,) float64; exposures above 0, of equal sums.
    """
    total = safe.sum()
    divergence = float((exposed**2 / safe).sum() / total)
    penalised: Floats = rewards - risk / (total * math.sqrt(divergence)) * exposed / safe
    return penalised


def risk_of_estimate(beta_over_alpha: float, total: float, n_logged: int, delta: float) -> float:
    """Return the factor of sqrt(d2) in the bound below which utility falls with probability ``delta`` at most.

    (1 + max_k beta_k / alpha_k) * sqrt(2 Z / N * (1 - delta) / delta) (arXiv 2407.19943). The code published with the
    paper leaves out the first factor and the 2; ours is the larger risk.

    Args:
        beta_over_alpha: the largest quotient over the ranks; 0 without trust bias.
        total: Z, the sum of exposures of a query.
        n_logged: N, the logged lists that the estimate is made from.
        delta: in (0, 1).
    """
    return (1.0 + beta_over_alpha) * math.sqrt(2.0 * total / n_logged * (1.0 - delta) / delta)
