"""The robust rules as their papers define them, one number at a time: what the fast ones must equal."""

import itertools
import math
import statistics

import numpy as np

Rows = list[list[float]]


def numbers(rows: np.ndarray) -> Rows:
    """The rows as Python numbers, which are float64."""
    return np.asarray(rows, np.float64).tolist()


def squared_distance(x: list[float], y: list[float]) -> float:
    """|x - y|^2."""
    return math.fsum((a - b) ** 2 for a, b in zip(x, y, strict=True))


def mean(rows: Rows, weights: list[float]) -> list[float]:
    """sum w_i x_i / sum w_i."""
    total = math.fsum(weights)
    return [
        math.fsum(w * x for w, x in zip(weights, column, strict=True)) / total for column in zip(*rows, strict=True)
    ]


def krum_scores(rows: Rows, m: int) -> list[float]:
    """Blanchard et al. 2017, section 4: the sum over the n - m - 2 closest others."""
    n = len(rows)
    scores = []
    for i in range(n):
        distances = sorted(squared_distance(rows[i], rows[j]) for j in range(n) if j != i)
        scores.append(math.fsum(distances[: max(1, n - m - 2)]))
    return scores


def krum(rows: Rows, m: int) -> list[float]:
    """Blanchard et al. 2017: the update with the least score."""
    scores = krum_scores(rows, m)
    return rows[scores.index(min(scores))]


def multi_krum(rows: Rows, weights: list[float], m: int) -> list[float]:
    """The thesis, Equation 5.3 with f = n - m."""
    scores = krum_scores(rows, m)
    best = sorted(range(len(rows)), key=lambda i: (scores[i], i))[: len(rows) - m]
    return mean([rows[i] for i in best], [weights[i] for i in best])


def trimmed_mean(rows: Rows, weights: list[float], beta: int) -> list[float]:
    """Yin et al. 2018, Definition 2; weights weigh what is kept. For columns without equal values."""
    result = []
    for column in zip(*rows, strict=True):
        kept = sorted(zip(column, weights, strict=True))[beta : len(rows) - beta]
        result.append(math.fsum(w * x for x, w in kept) / math.fsum(w for _, w in kept))
    return result


def median(rows: Rows) -> list[float]:
    """Yin et al. 2018, Definition 1; the mean of the middle two where n is even."""
    return [statistics.median(column) for column in zip(*rows, strict=True)]


def weighted_median(rows: Rows, weights: list[int]) -> list[float]:
    """The median of a list that has each value as many times as its whole weight says."""
    return [
        statistics.median(itertools.chain.from_iterable([x] * w for x, w in zip(column, weights, strict=True)))
        for column in zip(*rows, strict=True)
    ]


def bulyan(rows: Rows, m: int) -> list[float]:
    """El Mhamdi et al. 2018, section 4: theta = n - 2m by repeated Krum, then the beta = theta - 2m middle values."""
    left, chosen = list(rows), []
    for _ in range(len(rows) - 2 * m):
        scores = krum_scores(left, m) if len(left) > 1 else [0.0]
        chosen.append(left.pop(scores.index(min(scores))))
    n_middle = len(chosen) - 2 * m
    result = []
    for column in zip(*chosen, strict=True):
        middle = statistics.median(column)
        nearest = sorted(column, key=lambda x: (abs(x - middle), x))[:n_middle]
        result.append(math.fsum(nearest) / n_middle)
    return result


def sum_of_distances(rows: Rows, weights: list[float], centre: list[float]) -> float:
    """Pillutla et al. 2022, Equation 3: what the geometric median makes least."""
    return math.fsum(w * math.sqrt(squared_distance(x, centre)) for x, w in zip(rows, weights, strict=True))


def centred_clipping(
    rows: Rows, weights: list[float], clip_norm: float, n_iterations: int, start: list[float]
) -> list[float]:
    """Karimireddy et al. 2021, Algorithm 2, with weights."""
    centre = start
    for _ in range(n_iterations):
        clipped = []
        for x in rows:
            distance = math.sqrt(squared_distance(x, centre))
            factor = min(1.0, clip_norm / distance) if distance else 1.0
            clipped.append([factor * (a - b) for a, b in zip(x, centre, strict=True)])
        centre = [a + b for a, b in zip(centre, mean(clipped, weights), strict=True)]
    return centre


def norm_bounding(rows: Rows, weights: list[float], clip_norm: float) -> list[float]:
    """Sun et al. 2019, section 5: x / max(1, |x| / M), averaged."""
    clipped = []
    for x in rows:
        length = math.sqrt(math.fsum(a * a for a in x))
        clipped.append([a / max(1.0, length / clip_norm) for a in x])
    return mean(clipped, weights)


def nnm(rows: Rows, m: int) -> Rows:
    """Allouah et al. 2023, Algorithm 2: each becomes the mean of its n - m nearest, itself among them."""
    mixed = []
    for x in rows:
        nearest = sorted(rows, key=lambda y: squared_distance(x, y))[: len(rows) - m]
        mixed.append(mean(nearest, [1.0] * len(nearest)))
    return mixed
