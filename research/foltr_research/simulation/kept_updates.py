"""An aggregation that keeps a round's updates until all are there, for simulations that change some of them first."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from foltr.core.methods.aggregations import RowAggregation, UpdateRows
from foltr.core.protocol.updates import UpdateBody


class Receiving(RowAggregation, Protocol):
    """An aggregation that is given the updates in the end: of differences of weights, all of which cover the same."""

    @property
    def n_values(self) -> int:
        """Return how many values an update has."""

    @property
    def covered(self) -> slice:
        """Return the entries of the model that updates cover."""

    def values_of(self, body: UpdateBody) -> NDArray[np.float32]:
        """Return (n_values,) that an update says; DataError where it is none of this federation's."""


class KeptUpdates:
    """The part of an `Aggregation` that takes updates; what becomes of them is said in ``finish`` of who inherits it.

    Args:
        n_expected: for how many updates there is room at once.
    """

    def __init__(self, aggregation: Receiving, n_expected: int) -> None:
        self._aggregation = aggregation
        self._updates = UpdateRows(aggregation.n_values, n_expected)

    def add(
        self,
        body: UpdateBody,
        n_interactions: int,
        discount: float = 1.0,  # noqa: ARG002 (no simulated update is late)
        client_id: str = "",
    ) -> None:
        self._updates.add(self._aggregation.values_of(body), n_interactions, client_id)

    def add_rows(
        self, values: NDArray[np.float32], n_interactions: NDArray[np.int64], client_ids: Sequence[str]
    ) -> None:
        self._updates.add_rows(values, n_interactions, client_ids)
