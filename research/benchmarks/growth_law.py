"""The cost law of rounds, fitted to measurements, and the sizes at which they deviate.

A round of n updates with d weights costs a + b n + c n d: per round, per update, and per weight of an update. It is
fitted to the sizes of an ordinary federation. Larger sizes are compared with its forecast to show the limits.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

MAX_N, MAX_WEIGHTS = 1000, 5_000_000
"""The law is fitted to rounds of at most this many updates, and weights in total."""

TERMS = ("round", "update", "weight")


@dataclass(frozen=True)
class Law:
    """The cost of a round: ``round + update * n + weight * n * d``; no coefficient is negative.

    Attributes:
        round, update, weight: cost per round, per update and per weight of an update, in the unit of the fitted data.
        error: root mean square of forecast / measured - 1 over the fitted data.
    """

    round: float
    update: float
    weight: float
    error: float

    def __call__(self, n: float, d: float) -> float:
        return self.round + self.update * n + self.weight * n * d


def is_ordinary(n: int, d: int) -> bool:
    """Whether the law is fitted to rounds of this size."""
    return n <= MAX_N and n * d <= MAX_WEIGHTS


def fit_law(sizes: Sequence[tuple[int, int]], costs: Sequence[float]) -> Law:
    """Fit a law to the costs of rounds of these sizes, ``(n, d)``, with the least squares of relative errors.

    With absolute errors the largest round would dominate. To keep coefficients nonnegative, all seven choices of
    nonzero ones are tried.

    Raises:
        ValueError: fewer than three of the rounds are ordinary ones.
    """
    kept = [(n, d, cost) for (n, d), cost in zip(sizes, costs, strict=True) if is_ordinary(n, d)]
    if len(kept) < len(TERMS):
        raise ValueError(f"{len(kept)} rounds make no law")
    n, d, cost = (np.array(column, np.float64) for column in zip(*kept, strict=True))
    shares = np.stack([np.ones_like(n), n, n * d], axis=1) / cost[:, None]
    tried = [_fit(shares, chosen) for k in range(1, 4) for chosen in combinations(range(3), k)]
    coefficients = min((one for one in tried if np.all(one >= 0)), key=lambda one: _error(shares, one))
    round_, update, weight = map(float, coefficients)
    return Law(round_, update, weight, _error(shares, coefficients))


def _fit(shares: NDArray[np.float64], chosen: Sequence[int]) -> NDArray[np.float64]:
    coefficients = np.zeros(shares.shape[1])
    coefficients[list(chosen)] = np.linalg.lstsq(shares[:, chosen], np.ones(len(shares)), rcond=None)[0]
    return coefficients


def _error(shares: NDArray[np.float64], coefficients: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean((shares @ coefficients - 1) ** 2)))


def fit_line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Fit ``y = at_zero + slope * x`` with the least squares of relative errors; neither is negative.

    Raises:
        ValueError: fewer than two different x.
    """
    if len(set(x)) < 2:
        raise ValueError(f"{len(set(x))} points make no line")
    shares = np.stack([np.ones(len(x)), np.asarray(x, np.float64)], axis=1) / np.asarray(y, np.float64)[:, None]
    tried = [_fit(shares, chosen) for chosen in ((0,), (1,), (0, 1))]
    at_zero, slope = min((one for one in tried if np.all(one >= 0)), key=lambda one: _error(shares, one))
    return float(at_zero), float(slope)


def bends(
    law: Law, sizes: Sequence[tuple[int, int]], costs: Sequence[float], by: float = 1.25
) -> Mapping[tuple[int, int], float]:
    """Return measured / forecast by size, for rounds that deviate by more than a factor ``by``."""
    ratios = {(n, d): cost / law(n, d) for (n, d), cost in zip(sizes, costs, strict=True)}
    return {size: ratio for size, ratio in ratios.items() if not 1 / by <= ratio <= by}
