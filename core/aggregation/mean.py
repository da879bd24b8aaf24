"""Turning many devices' updates into one."""

import math

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import DataError
from foltr.core.numerics.compiled import compiled


class RunningMean:
    """The weighted mean of updates, sum_c n_c * u_c / sum_c n_c (FPDGD, Eq. 10), one update at a time.

    Memory does not grow with the number of updates. Floating-point sums depend on the order of the terms, so a caller
    that must reproduce a round bit for bit adds the updates in a fixed order (say, by client) and not in the order of
    arrival.
    """

    def __init__(self, dim: int) -> None:
        self._total = np.zeros(dim, np.float64)
        self._total_weight = 0.0
        self._n_added = 0

    def add(self, vector: NDArray[np.floating], weight: float, staleness_weight: float = 1.0) -> None:
        """Take an update (dim,) with its weight, e.g. how many interactions it was learned from.

        Args:
            staleness_weight: shrinks the update itself and not its weight, so that a mean of stale updates is a
                smaller step (FedBuff, Algorithm 1: the buffer is divided by K, not by the sum of these weights).

        Raises:
            DataError: another shape, a number that is not finite, or a weight that is negative or not finite.
        """
        i, dim = self._n_added, len(self._total)
        if vector.shape != (dim,):
            raise DataError(f"update {i} has shape {vector.shape}, expected ({dim},)")
        if not (math.isfinite(weight) and weight >= 0.0):
            raise DataError(f"update {i} has weight {weight}, expected a finite number of at least 0")
        if not np.isfinite(vector).all():
            raise DataError(f"update {i} contains a number that is not finite")
        self._total += np.multiply(vector, weight * staleness_weight, dtype=np.float64)
        self._total_weight += weight
        self._n_added += 1

    def add_rows(self, vectors: NDArray[np.float32], weights: NDArray[np.float64]) -> None:
        """Take many updates (n, dim) with their weights (n,), to the same bits as one `add` after the other."""
        if vectors.ndim != 2 or vectors.shape != (len(weights), len(self._total)):
            raise DataError(f"updates have shape {vectors.shape}, expected ({len(weights)}, {len(self._total)})")
        if not (np.isfinite(weights).all() and weights.min(initial=0.0) >= 0.0):
            raise DataError("a weight is negative or not finite")
        if not np.isfinite(vectors).all():
            raise DataError("an update contains a number that is not finite")
        _add_rows(self._total, vectors, weights)
        for weight in weights.tolist():
            self._total_weight += weight
        self._n_added += len(weights)

    def mean(self) -> NDArray[np.float64]:
        """The mean (dim,) of what was added; DataError if the weights add up to zero."""
        if self._total_weight == 0.0:
            raise DataError("the weights of the updates add up to zero, so they have no mean")
        return self._total / self._total_weight

    def apply_to(self, base: NDArray[np.floating], step: float = 1.0) -> NDArray[np.float32]:
        """Return ``base`` (dim,) plus ``step`` times the mean, as float32; DataError if that is too large."""
        exact = base.astype(np.float64) + step * self.mean()
        # Checked before the cast, which would only warn and return infinity.
        if np.abs(exact).max(initial=0.0) > np.finfo(np.float32).max:
            raise DataError("the new model does not fit float32: the updates are too large")
        return exact.astype(np.float32)


@compiled
def _add_rows(total: NDArray[np.float64], rows: NDArray[np.float32], weights: NDArray[np.float64]) -> None:
    """total += weights[i] * rows[i], row by row: the order of the terms decides the last bits."""
    for i in range(rows.shape[0]):
        weight = weights[i]
        for j in range(rows.shape[1]):
            total[j] += np.float64(rows[i, j]) * weight


def staleness_weight(staleness: int, exponent: float) -> float:
    """Return (1 + s) ** -exponent: how much an update counts that is s model versions behind (FedBuff, section 4)."""
    return float((1 + staleness) ** -exponent)
