"""Stored updates that a federator aggregates again, without involving clients."""

import numpy as np
from numpy.typing import NDArray

from foltr.core.methods.aggregations import RowAggregation
from foltr.core.methods.base import Aggregation
from foltr_research.simulation.clients.population import Population
from foltr_research.simulation.runners import Experience, State
from foltr_research.simulation.unlearning.rounds import Step


class Sent:
    """The updates of each round.

    Args:
        n_weights: of an update; None keeps only their lengths.
    """

    def __init__(self, n_rounds: int, n_clients: int, n_weights: int | None) -> None:
        self.lengths = np.full((n_rounds, n_clients), np.nan)
        self.updates = None if n_weights is None else np.full((n_rounds, n_clients, n_weights), np.nan, np.float32)

    def keep(self, step: Step, sent: NDArray[np.float32]) -> None:
        """Keep the updates of one or several rounds; see `foltr_research.simulation.unlearning.rounds.Take`."""
        rounds = slice(step.number - 1, step.number - 1 + len(sent))
        self.lengths[rounds, step.clients] = np.linalg.norm(sent.astype(np.float64), axis=-1)
        if self.updates is not None:
            self.updates[rounds, step.clients] = sent

    def discard(self, number: int) -> None:
        """Forget a round that made no model."""
        self.lengths[number - 1] = np.nan
        if self.updates is not None:
            self.updates[number - 1] = np.nan


class Stored:
    """A runner whose clients do nothing: it passes the stored updates of one round to the aggregation.

    Args:
        updates: (clients, n_weights) float32; NaN for clients that sent none.
    """

    def __init__(self, updates: NDArray[np.float32], population: Population) -> None:
        self._updates = updates
        self._clients = population.clients

    def run(
        self,
        base: NDArray[np.float32],  # noqa: ARG002 (as `Runner`)
        version: int,  # noqa: ARG002 (as `Runner`)
        clients: NDArray[np.int64],
        aggregation: Aggregation,
    ) -> Experience:
        if not isinstance(aggregation, RowAggregation):
            raise TypeError(f"{type(aggregation).__name__} takes no differences of weights")
        counts = np.array([self._clients[client].n_interactions for client in clients.tolist()], np.int64)
        names = [self._clients[client].name for client in clients.tolist()]
        aggregation.add_rows(self._updates[clients], counts, names)
        nobody = np.empty(0)
        return Experience(nobody, nobody, 0, np.empty(0, np.int64))

    def ranker_of(self, client: int, base: NDArray[np.float32]) -> NDArray[np.floating]:  # noqa: ARG002
        return base

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:
        """See `foltr_research.simulation.runners.Runner`."""
