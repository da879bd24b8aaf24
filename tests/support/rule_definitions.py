"""The robust rules as their papers define them, one update at a time: what the fast ones must equal."""

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
    weighed = [[w * a for a in x] for x, w in zip(rows, weights, strict=True)]
    return [math.fsum(column) / math.fsum(weights) for column in zip(*weighed, strict=True)]


def krum_scores(rows: Rows, m: int) -> list[float]:
    """Blanchard et al. 2017, section 4: the sum over the n - m - 2 closest others."""
    n_closest = max(1, len(rows) - m - 2)
    # The nearest of all is the update itself, at no distance.
    return [math.fsum(sorted(squared_distance(x, y) for y in rows)[1 : 1 + n_closest]) for x in rows]


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
    return weighted_median(rows, [1] * len(rows))


def weighted_median(rows: Rows, weights: list[int]) -> list[float]:
    """The median of a list that has each value as many times as its whole weight says."""
    repeated = itertools.chain.from_iterable([x] * w for x, w in zip(rows, weights, strict=True))
    return [statistics.median(column) for column in zip(*repeated, strict=True)]


def bulyan(rows: Rows, m: int) -> list[float]:
    """El Mhamdi et al. 2018, section 4: theta = n - 2m by repeated Krum, then the beta = theta - 2m middle values."""
    left, chosen = list(rows), []
    for _ in range(len(rows) - 2 * m):
        chosen.append(krum(left, m))
        left.remove(chosen[-1])
    result = []
    for column in zip(*chosen, strict=True):
        middle = statistics.median(column)
        nearest = sorted(column, key=lambda x: (abs(x - middle), x))[: len(chosen) - 2 * m]
        result.append(statistics.fmean(nearest))
    return result


def sum_of_distances(rows: Rows, weights: list[float], centre: list[float]) -> float:
    """Pillutla et al. 2022, Equation 3: what the geometric median makes least."""
    return math.fsum(w * math.dist(x, centre) for x, w in zip(rows, weights, strict=True))


def centred_clipping(
    rows: Rows, weights: list[float], clip_norm: float, n_iterations: int, start: list[float]
) -> list[float]:
    """Karimireddy et al. 2021, Algorithm 2, with weights."""
    centre = start
    for _ in range(n_iterations):
        away = [[a - b for a, b in zip(x, centre, strict=True)] for x in rows]
        step = norm_bounding(away, weights, clip_norm)
        centre = [a + b for a, b in zip(centre, step, strict=True)]
    return centre


def norm_bounding(rows: Rows, weights: list[float], clip_norm: float) -> list[float]:
    """Sun et al. 2019, section 5: x / max(1, |x| / M), averaged."""
    return mean([[a / max(1.0, math.hypot(*x) / clip_norm) for a in x] for x in rows], weights)


def nnm(rows: Rows, m: int) -> Rows:
    """Allouah et al. 2023, Algorithm 2: each becomes the mean of its n - m nearest, itself among them."""
    mixed = []
    for x in rows:
        nearest = sorted(rows, key=lambda y: squared_distance(x, y))[: len(rows) - m]
        mixed.append(mean(nearest, [1.0] * len(nearest)))
    return mixed
