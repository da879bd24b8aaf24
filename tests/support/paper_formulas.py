"""The papers' formulas written down as slowly and literally as they are printed, to hold the fast code to."""

import itertools

import numpy as np


def probability(scores: np.ndarray, ranking: list[int]) -> float:
    """P(R | D): FPDGD, Eq. 1 and 2."""
    left = list(range(len(scores)))
    result = 1.0
    for document in ranking:
        result *= np.exp(scores[document]) / sum(np.exp(scores[d]) for d in left)
        left.remove(document)
    return result


def swapped(ranking: list[int], a: int, b: int) -> list[int]:
    """R*: FPDGD, Section 3.1."""
    result = list(ranking)
    result[a], result[b] = result[b], result[a]
    return result


def rho(scores: np.ndarray, ranking: list[int], a: int, b: int) -> float:
    """FPDGD, Eq. 6, with whole-ranking probabilities."""
    shown, other = probability(scores, ranking), probability(scores, swapped(ranking, a, b))
    return other / (shown + other)


def preferences(clicks: list[bool]) -> list[tuple[int, int]]:
    """Positions (preferred, other): clicked over unclicked, down to the first one below the last click."""
    if not any(clicks):
        return []
    last = max(i for i, clicked in enumerate(clicks) if clicked)
    positions = range(len(clicks))
    return [(p, q) for p, q in itertools.product(positions, positions) if clicks[p] and not clicks[q] and q <= last + 1]


def objective(scores: np.ndarray, ranking: list[int], pairs: list[tuple[int, int]], rhos: list[float]) -> float:
    """What PDGD ascends with rho held constant: sum of rho * P(d_p preferred to d_q) (FPDGD, Eq. 3 to 5)."""
    total = 0.0
    for (p, q), weight in zip(pairs, rhos, strict=True):
        e_p, e_q = np.exp(scores[ranking[p]]), np.exp(scores[ranking[q]])
        total += weight * e_p / (e_p + e_q)
    return total


def linear(weights: np.ndarray, features: np.ndarray) -> np.ndarray:
    """f(x) = w . x."""
    return features.astype(np.float64) @ weights


def neural(weights: np.ndarray, features: np.ndarray, hidden: int) -> np.ndarray:
    """f(x) = w2 . sigmoid(x W1 + b1)."""
    d = features.shape[1]
    first, bias, output = np.split(weights, [d * hidden, d * hidden + hidden])
    inputs = features.astype(np.float64) @ first.reshape(d, hidden) + bias
    return (1.0 / (1.0 + np.exp(-inputs))) @ output


def pdgd_gradient(score, weights: np.ndarray, features: np.ndarray, ranking: list[int], clicks: list[bool]):
    """FPDGD, Algorithm 1, for any ranker: central differences of `objective` with rho held constant."""
    pairs = preferences(clicks)
    scores = score(weights, features)
    rhos = [rho(scores, ranking, p, q) for p, q in pairs]
    gradient = np.zeros(len(weights))
    for i in range(len(weights)):
        step = np.zeros(len(weights))
        step[i] = 1e-5
        up = objective(score(weights + step, features), ranking, pairs, rhos)
        down = objective(score(weights - step, features), ranking, pairs, rhos)
        gradient[i] = (up - down) / 2e-5
    return gradient


def linear_pdgd_gradient(weights: np.ndarray, features: np.ndarray, ranking: list[int], clicks: list[bool]):
    """FPDGD, Eq. 5, line by line."""
    scores = linear(weights, features)
    gradient = np.zeros(len(weights))
    for p, q in preferences(clicks):
        e_p, e_q = np.exp(scores[ranking[p]]), np.exp(scores[ranking[q]])
        slope = e_p * e_q / (e_p + e_q) ** 2
        difference = features[ranking[p]].astype(np.float64) - features[ranking[q]]
        gradient += rho(scores, ranking, p, q) * slope * difference
    return gradient
