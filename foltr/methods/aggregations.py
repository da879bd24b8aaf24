"""The federator part of methods whose updates are differences of weights."""

import numpy as np
from numpy.typing import NDArray

from foltr.aggregation import RunningMean
from foltr.errors import DataError
from foltr.messages import DenseDelta, EvolutionPair, PartDelta, UpdateBody, unpack_vector


class DeltaAggregation:
    """base + step * mean of the updates, all of which cover the same entries (FPDGD, Eq. 10; FedIPS, Algorithm 1).

    Args:
        dim: entries of the model.
        start, n_values: the entries the updates cover; the others stay.
        by_interactions: weigh an update by its interactions; else all count alike.
        step: the federator's learning rate.
    """

    def __init__(
        self,
        dim: int,
        *,
        start: int = 0,
        n_values: int | None = None,
        by_interactions: bool = True,
        step: float = 1.0,
    ) -> None:
        self._dim = dim
        self._covered = slice(start, dim if n_values is None else start + n_values)
        self._mean = RunningMean(self._covered.stop - start)
        self._by_interactions = by_interactions
        self._step = step

    def add(self, body: UpdateBody, n_interactions: int, discount: float = 1.0) -> None:
        covers = isinstance(body, PartDelta) and body.start == self._covered.start
        if isinstance(body, DenseDelta):
            covers = self._covered == slice(0, self._dim)
        if isinstance(body, EvolutionPair) or not covers or body.dim != self._dim:
            raise DataError(f"an update of kind {body.kind} that does not cover what this federation shares")
        self.add_values(unpack_vector(body.values), n_interactions, discount)

    def add_values(self, values: NDArray[np.float32], n_interactions: int, discount: float = 1.0) -> None:
        """As `add`, of the bare values."""
        self._mean.add(values, n_interactions if self._by_interactions else 1.0, discount)

    def add_rows(self, values: NDArray[np.float32], n_interactions: NDArray[np.int64]) -> None:
        """As `add_values` for each row of (n, n_values)."""
        counts = n_interactions.astype(np.float64)
        self._mean.add_rows(values, counts if self._by_interactions else np.ones(len(counts)))

    def finish(self, base: NDArray[np.float32], state: bytes | None) -> tuple[NDArray[np.float32], bytes | None]:
        changed = base.copy()
        changed[self._covered] = self._mean.apply_to(base[self._covered], self._step)
        return changed, state
