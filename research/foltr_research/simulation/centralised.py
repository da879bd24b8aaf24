"""References that no service runs: learning in one place with the same users, and every client alone.

Centralised PDGD is the non-federated learner of FPDGD's experiments (Wang et al. 2021, Section 4): with an update after
each interaction (Oosterhuis and de Rijke 2018), or in batches, which sum the gradients of a round. LambdaRank sees the
relevance grades and is the upper reference of FedIPS (Li et al. 2021, Section 4). Users draw from their streams of a
federation; a central learner explores by a separate stream.
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import SettingsError
from foltr.core.learning.lambdarank import fit_lambdarank
from foltr.core.methods.aggregations import DeltaAggregation
from foltr.core.methods.base import Aggregation
from foltr.core.methods.registry import Ranker
from foltr.core.numerics.streams import client_streams
from foltr.core.protocol.trainings import PdgdTraining, Training
from foltr_research.simulation.blocks.base_runner import (
    INTERACTIONS_AT_A_TIME,
    WEIGHTS_AT_A_TIME,
    BlockRunner,
    learn_block,
    means_of,
)
from foltr_research.simulation.blocks.drawn_rankings import Step, Users, query_pool
from foltr_research.simulation.click_tables import click_tables
from foltr_research.simulation.clients.crowd import Crowd, Intentions, pack_generators, set_generator
from foltr_research.simulation.clients.population import Population, SimulatedClient
from foltr_research.simulation.learners import participants_of
from foltr_research.simulation.runners import ConsecutiveRounds, Experience, State

# Short rounds are grouped up to this many interactions: they share the cost of a call, and their draws stay in the
# processor's cache.
_STEPS_AT_A_TIME = 512


class _Attendance:
    """The clients that issue queries in a round: all, or ``participants`` drawn as in a federation."""

    def __init__(self, population: Population, seed: int, participants: int | None) -> None:
        self._everybody = np.arange(len(population.clients))
        self._seed = seed
        self._participants = participants

    @property
    def n_clients(self) -> int:
        """The number of clients in each round."""
        return self._participants or len(self._everybody)

    def clients(self, number: int) -> NDArray[np.int64]:
        chosen = participants_of(self._seed, number, len(self._everybody), self._participants)
        return self._everybody if chosen is None else chosen

    def clients_of(self, first: int, last: int) -> NDArray[np.int64]:
        """(rounds, clients) of successive rounds."""
        if self.n_clients == len(self._everybody):
            return np.tile(self._everybody, (last - first + 1, 1))
        return np.array([self.clients(number) for number in range(first, last + 1)])


class CentralPdgd:
    """One learner for everybody's interactions.

    Args:
        first: (n_weights,) the first weights.
        batch: sum the gradients of a round, all at its start weights; else step after each interaction.
        name: device name whose stream the learner explores by.
    """

    def __init__(
        self,
        population: Population,
        crowd: Crowd,
        serp_length: int,
        learning_rate: float,
        ranker: Ranker,
        first: NDArray[np.float32],
        seed: int,
        participants: int | None,
        *,
        batch: bool,
        name: str = "central learner",
    ) -> None:
        self._crowd = crowd
        self._learning_rate = learning_rate
        self._ranker = ranker
        self._weights = first.astype(np.float64)
        self._attendance = _Attendance(population, seed, participants)
        self._batch = batch
        self._datasets = [client.dataset for client in population.clients]
        self._most = max(client.n_interactions for client in population.clients)
        self._pools = [query_pool(dataset, serp_length) for dataset in population.datasets]
        self._tables = click_tables(crowd.click_models, serp_length)
        self._exploration = client_streams(seed, name).device

    @property
    def weights(self) -> NDArray[np.float32]:
        return self._weights.astype(np.float32)

    @property
    def rounds_at_once(self) -> int:
        """The largest number of rounds per call of `rounds`; 1 for batches."""
        return 1 if self._batch else max(1, _STEPS_AT_A_TIME // (self._most * self._attendance.n_clients))

    def round(self, number: int) -> Experience:
        return self.rounds(number, number).experience(0)

    def rounds(self, first: int, last: int) -> ConsecutiveRounds:
        """Learn from some rounds' interactions, at most `rounds_at_once`; bit-equal to single rounds."""
        clients = self._attendance.clients_of(first, last)
        start, total = self._weights, np.zeros_like(self._weights)
        ndcg, reciprocal_ranks, counts = [], [], []
        # Steps continue across rounds.
        for members, dataset in self._runs(clients.ravel()):
            intentions = self._crowd.intend(members)
            shown = intentions.picks >= 0
            picks, users = intentions.picks[shown], (intentions.models[shown], intentions.draws[shown])
            n = len(picks)
            # One row is one sequence of steps. With a row for each interaction, each starts at the same weights.
            shape = (n, 1) if self._batch else (1, n)
            block = learn_block(
                self._ranker,
                self._pools[dataset],
                start,
                picks.reshape(shape),
                Users(self._tables, users[0].reshape(shape), users[1].reshape(*shape, -1)),
                [self._exploration] * shape[0],
                Step(self._learning_rate),
            )
            if self._batch:
                total += (block.weights - start).sum(axis=0)
            else:
                start = block.weights[0]
            counts.append(shown.sum(axis=1))
            ndcg.append(_sums_by_client(block.ndcg, shown, self._most) / counts[-1])
            reciprocal_ranks.append(_sums_by_client(block.reciprocal_ranks, shown, self._most) / counts[-1])
        self._weights = start + total
        rounds_by_clients = clients.shape
        return ConsecutiveRounds(
            np.concatenate(ndcg).reshape(rounds_by_clients),
            np.concatenate(reciprocal_ranks).reshape(rounds_by_clients),
            np.concatenate(counts).reshape(rounds_by_clients),
            clients,
        )

    def ranker_of(self, client: int) -> NDArray[np.floating]:  # noqa: ARG002
        return self._weights

    def state(self) -> State:
        return {"weights": self._weights, "exploration": pack_generators([self._exploration])}

    def restore(self, state: State) -> None:
        self._weights = state["weights"].astype(np.float64)
        set_generator(self._exploration, state["exploration"][0].tolist())

    def _runs(self, clients: NDArray[np.int64]) -> Iterator[tuple[NDArray[np.int64], int]]:
        """Yield the clients in order, split at changes of the data set and at the size limit of a block."""
        at_a_time = INTERACTIONS_AT_A_TIME
        if self._batch:  # a row of weights for each interaction
            at_a_time = max(1, min(at_a_time, WEIGHTS_AT_A_TIME // len(self._weights)))
        if len(self._pools) == 1 and len(clients) * self._most <= at_a_time:
            yield clients, 0
            return
        for dataset, run in itertools.groupby(clients.tolist(), key=self._datasets.__getitem__):
            members: list[int] = []
            n = 0
            for client in run:
                members.append(client)
                n += self._crowd.n_interactions_of(client)
                if n >= at_a_time:
                    yield np.array(members), dataset
                    members, n = [], 0
            if members:
                yield np.array(members), dataset


class CentralLambdaRank:
    """LambdaRank on the relevance grades of every query that a client may issue; a round is an epoch."""

    def __init__(self, population: Population, first: NDArray[np.float32], seed: int, learning_rate: float) -> None:
        self._data = [(dataset, _queries_of(population, i)) for i, dataset in enumerate(population.datasets)]
        self._weights = first
        self._seed = seed
        self._learning_rate = learning_rate

    @property
    def weights(self) -> NDArray[np.float32]:
        return self._weights

    def round(self, number: int) -> Experience:
        rng = np.random.default_rng(np.random.SeedSequence([self._seed, number, *b"lambdarank"]))
        for dataset, queries in self._data:
            if len(queries):
                self._weights = fit_lambdarank(
                    dataset, rng, self._learning_rate, epochs=1, weights=self._weights, queries=queries
                )
        return Experience(np.empty(0), np.empty(0), 0, np.empty(0, np.int64))

    def ranker_of(self, client: int) -> NDArray[np.floating]:  # noqa: ARG002
        return self._weights

    def state(self) -> State:
        return {"weights": self._weights}

    def restore(self, state: State) -> None:
        self._weights = state["weights"].astype(np.float32)


class LocalPdgd(BlockRunner):
    """Every client learns by PDGD from its own clicks alone."""

    def __init__(
        self,
        population: Population,
        crowd: Crowd,
        serp_length: int,
        learning_rate: float,
        ranker: Ranker,
        first: NDArray[np.float32],
        seed: int,
        participants: int | None,
    ) -> None:
        super().__init__(population, crowd, ranker, serp_length)
        self._learning_rate = learning_rate
        self._first = first
        self._own = np.tile(first.astype(np.float64), (len(population.clients), 1))
        self._attendance = _Attendance(population, seed, participants)

    @property
    def weights(self) -> NDArray[np.float32]:
        """The first model, since clients share nothing else."""
        return self._first

    def round(self, number: int) -> Experience:
        return self.run(self._first, number - 1, self._attendance.clients(number), DeltaAggregation(len(self._first)))

    def ranker_of(self, client: int, base: NDArray[np.float32] | None = None) -> NDArray[np.floating]:  # noqa: ARG002
        own: NDArray[np.float64] = self._own[client]
        return own

    def state(self) -> State:
        return {"own": self._own}

    def restore(self, state: State) -> None:
        self._own = state["own"].astype(np.float64)

    def _block(
        self,
        base: NDArray[np.float32],  # noqa: ARG002 (every client has its own)
        version: int,  # noqa: ARG002
        members: NDArray[np.int64],
        intentions: Intentions,
        aggregation: Aggregation,  # noqa: ARG002
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        ndcg, reciprocal_ranks = np.empty(len(members)), np.empty(len(members))
        for pool, rows in self._by_dataset(members):
            block = learn_block(
                self._ranker,
                pool,
                self._own[members[rows]],
                intentions.picks[rows],
                self._users(intentions.for_clients(rows)),
                self._device_rngs(members[rows]),
                Step(self._learning_rate),
            )
            self._own[members[rows]] = block.weights
            ndcg[rows], reciprocal_ranks[rows] = means_of(block)
        return ndcg, reciprocal_ranks


def warmed_up(
    population: Population,
    training: Training,
    ranker: Ranker,
    first: NDArray[np.float32],
    seed: int,
    n_interactions: int,
) -> NDArray[np.float32]:
    """Return the first model after PDGD on ``n_interactions`` on the shared data (Zhao et al. 2018).

    One user has them in sequence. User and learner draw from streams that nobody in the federation has.

    Args:
        first: (n_weights + n_auxiliary,).

    Raises:
        SettingsError: the population has no such data.
    """
    if population.warm_up is None:
        raise SettingsError("warm_up_interactions: the population has no shared data to warm up on")
    models = tuple(dict.fromkeys(model for client in population.clients for model in client.click_models))
    queries = np.arange(population.warm_up.n_queries, dtype=np.int64)
    user = SimulatedClient("warm-up", 0, queries, models, INTERACTIONS_AT_A_TIME, 0)
    rate = getattr(training, "learning_rate", PdgdTraining().learning_rate)
    learning = (training.serp_length, rate)
    weights = first[: ranker.n_weights]
    n_whole, rest = divmod(n_interactions, INTERACTIONS_AT_A_TIME)
    so_far: tuple[State, State] | None = None
    for n_rounds, n in ((n_whole, INTERACTIONS_AT_A_TIME), (1, rest)):
        if not n_rounds * n:
            continue
        # A round of a population of one is a part of the budget that fits into memory.
        client = replace(user, n_interactions=n)
        alone = Population((population.warm_up,), (client,), population.tests, "warm-up")
        crowd = Crowd(alone, seed, training.serp_length)
        learner = CentralPdgd(alone, crowd, *learning, ranker, weights, seed, None, batch=False, name="warm-up learner")
        if so_far is not None:
            crowd.restore(so_far[0])
            learner.restore(so_far[1])
        for number in range(1, n_rounds + 1):
            learner.round(number)
        so_far = crowd.state(), learner.state()
        weights = learner.weights
    return np.concatenate([weights, first[ranker.n_weights :]])


def _sums_by_client(values: NDArray[np.float64], shown: NDArray[np.bool_], most: int) -> NDArray[np.float64]:
    """(clients,) sums of values that come interaction by interaction, client after client.

    Args:
        most: largest number of interactions of a client in a round. A sum's last bits depend on the number of zeros
            after it, and must not depend on which other clients are in the run.
    """
    spread = np.zeros((len(shown), most))
    spread[:, : shown.shape[1]][shown] = values.ravel()
    sums: NDArray[np.float64] = spread.sum(axis=1)
    return sums


def _queries_of(population: Population, dataset: int) -> NDArray[np.int64]:
    """Return the queries of a data set that some client may issue."""
    arrays = {id(client.queries): client.queries for client in population.clients if client.dataset == dataset}
    return np.unique(np.concatenate(list(arrays.values()))) if arrays else np.empty(0, np.int64)
