"""The base of block runners: it splits the clients of a round into blocks, and adds their updates in order."""

from abc import ABC, abstractmethod
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from foltr.core.methods.aggregations import RowAggregation
from foltr.core.methods.base import Aggregation
from foltr.core.methods.registry import Ranker
from foltr.core.protocol.trainings import LinearRankerSpec
from foltr_research.simulation.blocks.drawn_neural import FirstLists, neural_pdgd_block
from foltr_research.simulation.blocks.drawn_rankings import (
    LearnedBlock,
    QueryPool,
    Step,
    Users,
    pdgd_block,
    query_pool,
)
from foltr_research.simulation.blocks.fixed_rankings import EvolutionBlock, RankedBlock
from foltr_research.simulation.click_tables import click_tables
from foltr_research.simulation.clients.crowd import Crowd, Intentions
from foltr_research.simulation.clients.population import Population
from foltr_research.simulation.runners import Experience, State

# One block holds so many interactions and so many local weights, so memory does not grow with the clients.
INTERACTIONS_AT_A_TIME = 8192
# 2 MB fit the processor's second-level cache until they are added up.
WEIGHTS_AT_A_TIME = 2**18

Rows = slice | NDArray[np.int64]


class BlockRunner(ABC):
    """Splits the clients of a round into blocks of one data set each, and adds their updates in order."""

    def __init__(self, population: Population, crowd: Crowd, ranker: Ranker, serp_length: int) -> None:
        self._crowd = crowd
        self._ranker = ranker
        self._names = [client.name for client in population.clients]
        self._datasets = np.array([client.dataset for client in population.clients], np.int64)
        self._most = max(client.n_interactions for client in population.clients)
        self._pools = [query_pool(dataset, serp_length) for dataset in population.datasets]
        self._tables = click_tables(crowd.click_models, serp_length)

    def run(
        self, base: NDArray[np.float32], version: int, clients: NDArray[np.int64], aggregation: Aggregation
    ) -> Experience:
        ndcg, reciprocal_ranks = np.empty(len(clients)), np.empty(len(clients))
        n_interactions = 0
        for rows in self._chunks(len(clients)):
            members = clients[rows]
            intentions = self._crowd.intend(members)
            ndcg[rows], reciprocal_ranks[rows] = self._block(base, version, members, intentions, aggregation)
            n_interactions += int((intentions.picks >= 0).sum())
        return Experience(ndcg, reciprocal_ranks, n_interactions, clients)

    def ranker_of(self, client: int, base: NDArray[np.float32]) -> NDArray[np.floating]:  # noqa: ARG002
        return base[: self._ranker.n_weights]

    def state(self) -> State:
        return {}

    def restore(self, state: State) -> None:  # noqa: B027 (most methods keep nothing on the device)
        """See `Runner`."""

    @abstractmethod
    def _block(
        self,
        base: NDArray[np.float32],
        version: int,
        members: NDArray[np.int64],
        intentions: Intentions,
        aggregation: Aggregation,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Run the members and add their updates in order. Return mean nDCG and MaxRR of each."""

    def _chunks(self, n_clients: int) -> Iterator[slice]:
        size = max(1, min(INTERACTIONS_AT_A_TIME // self._most, WEIGHTS_AT_A_TIME // self._ranker.n_weights))
        for start in range(0, n_clients, size):
            yield slice(start, min(start + size, n_clients))

    def _by_dataset(self, members: NDArray[np.int64]) -> Iterator[tuple[QueryPool, Rows]]:
        """Yield each data set that the members use, with the rows of these members."""
        datasets = self._datasets[members]
        used = np.unique(datasets).tolist()
        for dataset in used:
            # A slice, if that is all of them, avoids copying their draws and results.
            yield self._pools[dataset], slice(None) if len(used) == 1 else np.flatnonzero(datasets == dataset)

    def _names_of(self, members: NDArray[np.int64]) -> list[str]:
        return [self._names[client] for client in members.tolist()]

    def _users(self, intentions: Intentions) -> Users:
        return Users(self._tables, intentions.models, intentions.draws)

    def _device_rngs(self, members: NDArray[np.int64]) -> list[np.random.Generator]:
        return [self._crowd.streams(client).device for client in members.tolist()]


def learn_block(
    ranker: Ranker,
    pool: QueryPool,
    start: NDArray[np.float64],
    picks: NDArray[np.int64],
    users: Users,
    device_rngs: list[np.random.Generator],
    step: Step,
    first: FirstLists | None = None,
) -> LearnedBlock:
    """Run PDGD for a block of clients with either ranker; see `pdgd_block`."""
    if isinstance(ranker, LinearRankerSpec):
        return pdgd_block(pool, start, picks, users, device_rngs, step)
    return neural_pdgd_block(pool, start, picks, users, device_rngs, step, ranker.hidden, first)


def means_of(
    block: LearnedBlock | RankedBlock | EvolutionBlock,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return (n,) mean nDCG and mean reciprocal rank of each client's lists."""
    return np.nanmean(block.ndcg, axis=1), np.nanmean(block.reciprocal_ranks, axis=1)


def add_deltas(
    aggregation: Aggregation, deltas: NDArray[np.float32], counts: NDArray[np.int64], names: list[str]
) -> None:
    """Add updates, a row for each client."""
    if not isinstance(aggregation, RowAggregation):
        raise TypeError(f"{type(aggregation).__name__} takes no differences of weights")
    aggregation.add_rows(deltas, counts, names)
