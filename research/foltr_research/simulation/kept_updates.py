"""An aggregation that keeps a round's updates until it is complete, for simulations that change some of them first."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from foltr.core.methods.aggregations import RowAggregation, UpdateRows
from foltr.core.protocol.updates import UpdateBody


class UpdateReceiver(RowAggregation, Protocol):
    """An aggregation that receives the updates in the end: differences of weights that all cover the same entries."""

    @property
    def n_values(self) -> int:
        """The number of values in an update."""

    @property
    def covered(self) -> slice:
        """The entries of the model that updates cover."""

    def values_of(self, body: UpdateBody) -> NDArray[np.float32]:
        """Return the (n_values,) values of an update. Raises DataError for one that does not fit this federation."""


class KeptUpdates:
    """The part of an `Aggregation` that takes updates. Subclasses process them in ``finish``.

    Args:
        n_expected: number of updates to reserve room for.
    """

    def __init__(self, aggregation: UpdateReceiver, n_expected: int) -> None:
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
