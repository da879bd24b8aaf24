"""The device side of a simulated round for blocks of clients, on `foltr_research.simulation.blocks.drawn_rankings`.

Clients do what `foltr.core.methods` makes a device do, with the same random numbers and kernels. Tests check that
updates equal those of `foltr_research.simulation.runners.ReferenceRunner` bit for bit, except neural rankers of many
clients that share queries, which differ by rounding (`foltr_research.simulation.blocks.drawn_neural`).
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foltr.core.evaluation.click_models import examination_by_rank
from foltr.core.learning.evolution_strategies import round_noise_seed
from foltr.core.learning.ips import ips_step, position_propensities
from foltr.core.methods.base import Aggregation
from foltr.core.methods.fedips import FEDAVG, FEDIPS
from foltr.core.methods.foltr_es import FOLTR_ES
from foltr.core.methods.registry import Ranker, spec_of
from foltr.core.methods.spec import Lists, PdgdSteps
from foltr.core.protocol.explorations import SamplingExploration
from foltr.core.protocol.fields import unpack_vector
from foltr.core.protocol.trainings import (
    Activation,
    EvolutionTraining,
    FedAvgTraining,
    FedIpsTraining,
    LinearRankerSpec,
    Training,
)
from foltr.core.protocol.updates import EvolutionPair
from foltr_research.simulation.blocks.base_runner import (
    WEIGHTS_AT_A_TIME,
    BlockRunner,
    add_deltas,
    learn_block,
    means_of,
)
from foltr_research.simulation.blocks.drawn_neural import FirstLists, first_lists
from foltr_research.simulation.blocks.drawn_rankings import QueryPool, Step, Users
from foltr_research.simulation.blocks.drawn_rounds import DRAWS_IN_A_ROW, RoundsInARow, pdgd_rounds
from foltr_research.simulation.blocks.fixed_rankings import Perturbations, RankedBlock, es_block, ranking_block
from foltr_research.simulation.clients.crowd import Crowd, Intentions
from foltr_research.simulation.clients.population import Population
from foltr_research.simulation.runners import Experience, Runner, State


class PdgdBlockRunner(BlockRunner):
    """All methods that learn only by PDGD steps, on either ranker."""

    def __init__(
        self, population: Population, crowd: Crowd, ranker: Ranker, serp_length: int, steps: PdgdSteps
    ) -> None:
        super().__init__(population, crowd, ranker, serp_length)
        self._steps = steps
        self._n_shared = ranker.n_weights if steps.n_shared is None else steps.n_shared
        # (clients, kept) weights that stay on the device, and which clients have any.
        self._heads = np.zeros((len(population.clients), ranker.n_weights - self._n_shared))
        self._has_head = np.zeros(len(population.clients), np.bool_)
        in_kernels = isinstance(ranker, LinearRankerSpec) and steps.n_shared is None and steps.sent is None
        self._most_draws = DRAWS_IN_A_ROW if in_kernels else 0
        # Shared results, by pool, for clients of a round that start from the same weights.
        self._first_lists: dict[int, FirstLists] = {}

    def run(
        self, base: NDArray[np.float32], version: int, clients: NDArray[np.int64], aggregation: Aggregation
    ) -> Experience:
        if not isinstance(self._ranker, LinearRankerSpec):
            n_of_datasets = np.bincount(self._datasets[clients], minlength=len(self._pools)).tolist()
            for pool, n_clients in zip(self._pools, n_of_datasets, strict=True):
                if id(pool) not in self._first_lists:
                    self._first_lists[id(pool)] = first_lists(pool, self._ranker.hidden, n_clients)
                self._first_lists[id(pool)].forget()
        return super().run(base, version, clients, aggregation)

    def rounds_at_once(self, clients: NDArray[np.int64]) -> int:
        """Return how many rounds of these clients `rounds` can make in one call; 1 if it cannot."""
        dataset = self._pools[self._datasets[clients[0]]].dataset
        if (self._datasets[clients] != self._datasets[clients[0]]).any():
            return 1
        n_documents: int = self._most * len(clients) * max(1, len(dataset.features) // dataset.n_queries)
        n_weights = len(clients) * self._ranker.n_weights
        return max(1, min(self._most_draws // int(n_documents), WEIGHTS_AT_A_TIME // n_weights))

    def rounds(
        self,
        base: NDArray[np.float32],
        clients: NDArray[np.int64],
        n_rounds: int,
        lengths: NDArray[np.float64] | None = None,
    ) -> RoundsInARow:
        """Let the clients learn in several successive rounds, each from the previous mean weighted by interactions.

        Args:
            base: (n_weights,) the first round's model.
            clients: as for `run`, the same in every round.
            n_rounds: at most `rounds_at_once`.
            lengths: (rounds, clients) as in `foltr_research.simulation.blocks.drawn_rounds.pdgd_rounds`.
        """
        intentions = self._crowd.intend_rounds(clients, n_rounds)
        in_order = (len(clients), -1)
        return pdgd_rounds(
            self._pools[self._datasets[clients[0]]],
            base,
            intentions.picks,
            Users(
                self._tables,
                intentions.models.reshape(in_order),
                intentions.draws.reshape(len(clients), -1, intentions.draws.shape[-1]),
            ),
            self._device_rngs(clients),
            Step(self._steps.learning_rate, self._steps.proximal),
            lengths,
        )

    def ranker_of(self, client: int, base: NDArray[np.float32]) -> NDArray[np.floating]:
        start: NDArray[np.float64] = self._start(base, np.array([client]))
        return start[0] if self._heads.size else start

    def state(self) -> State:
        return {"heads": self._heads[self._has_head], "has_head": self._has_head}

    def restore(self, state: State) -> None:
        self._has_head = state["has_head"].astype(np.bool_)
        self._heads[self._has_head] = state["heads"]

    def _block(
        self,
        base: NDArray[np.float32],
        version: int,  # noqa: ARG002 (PDGD draws each list afresh)
        members: NDArray[np.int64],
        intentions: Intentions,
        aggregation: Aggregation,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        start = self._start(base, members)
        weights = np.empty((len(members), len(base)))
        ndcg, reciprocal_ranks = np.empty(len(members)), np.empty(len(members))
        for pool, rows in self._by_dataset(members):
            block = learn_block(
                self._ranker,
                pool,
                start[rows] if self._heads.size else start,
                intentions.picks[rows],
                self._users(intentions.for_clients(rows)),
                self._device_rngs(members[rows]),
                Step(self._steps.learning_rate, self._steps.proximal),
                self._first_lists.get(id(pool)),
            )
            if isinstance(rows, slice):
                weights = block.weights  # of all members
            else:
                weights[rows] = block.weights
            ndcg[rows], reciprocal_ranks[rows] = means_of(block)
        # Rounded during subtraction: float64 differences would pass through the cache once more.
        shared = np.empty((len(members), self._n_shared), np.float32)
        sent = self._sent(weights, start, members)[:, : self._n_shared]
        np.subtract(sent, start[..., : self._n_shared], out=shared, casting="same_kind")
        if self._heads.size:
            self._heads[members] = weights[:, self._n_shared :]
            self._has_head[members] = True
        add_deltas(aggregation, shared, (intentions.picks >= 0).sum(axis=1), self._names_of(members))
        return ndcg, reciprocal_ranks

    def _start(self, base: NDArray[np.float32], members: NDArray[np.int64]) -> NDArray[np.float64]:
        """(n_weights,) that all members start from, or (members, n_weights) if some have local weights."""
        start = base.astype(np.float64)
        if self._heads.size:
            start = np.tile(start, (len(members), 1))
            own = self._has_head[members]
            start[own, self._n_shared :] = self._heads[members[own]]
        return start

    def _sent(
        self, weights: NDArray[np.float64], start: NDArray[np.float64], members: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """(members, n_weights) sent in place of the learned weights."""
        if self._steps.sent is None:
            return weights
        starts, sent = np.broadcast_to(start, weights.shape), np.empty_like(weights)
        for row, device in enumerate(self._device_rngs(members)):
            sent[row] = self._steps.sent(weights[row], starts[row], device)
        return sent


class EvolutionBlockRunner(BlockRunner):
    """FOLtR-ES on either ranker."""

    def __init__(self, population: Population, crowd: Crowd, training: EvolutionTraining, ranker: Ranker) -> None:
        super().__init__(population, crowd, ranker, training.serp_length)
        self._training = training

    def _block(
        self,
        base: NDArray[np.float32],
        version: int,
        members: NDArray[np.int64],
        intentions: Intentions,
        aggregation: Aggregation,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        training = self._training
        device_seeds = [self._crowd.streams(client).device_seed for client in members.tolist()]
        seeds = np.array([round_noise_seed(seed, version) for seed in device_seeds], np.int64)
        variants = np.zeros(intentions.picks.shape, np.int64)
        if training.antithetic:
            variants[:, 1::2] = 1
        plus, minus = np.empty(len(members)), np.empty(len(members))
        ndcg, reciprocal_ranks = np.empty(len(members)), np.empty(len(members))
        for pool, rows in self._by_dataset(members):
            block = es_block(
                pool,
                base.astype(np.float64),
                intentions.picks[rows],
                self._users(intentions.for_clients(rows)),
                Perturbations(seeds[rows].tolist(), variants[rows], training.noise_scale, training.truth_probability),
                self._device_rngs(members[rows]),
                *_units_of(self._ranker),
            )
            plus[rows], minus[rows] = block.plus, block.minus
            ndcg[rows], reciprocal_ranks[rows] = means_of(block)
        counts = (intentions.picks >= 0).sum(axis=1).tolist()
        names = self._names_of(members)
        for name, seed, up, down, count in zip(
            names, seeds.tolist(), plus.tolist(), minus.tolist(), counts, strict=True
        ):
            pair = EvolutionPair(seed=seed, plus=up, minus=down if training.antithetic else None)
            aggregation.add(pair, count, client_id=name)
        return ndcg, reciprocal_ranks


class IpsBlockRunner(BlockRunner):
    """FedIPS with known propensities, and FedAvg: lists are shown in one call, then learned client by client.

    Args:
        position_bias: of the propensities that weight clicks; None weights all equally.
    """

    def __init__(
        self,
        population: Population,
        crowd: Crowd,
        training: FedIpsTraining | FedAvgTraining,
        ranker: Ranker,
        position_bias: float | None,
    ) -> None:
        super().__init__(population, crowd, ranker, training.serp_length)
        self._training = training
        self._position_bias = position_bias
        self._logging = unpack_vector(training.logging_policy) if training.logging_policy else None

    def _block(
        self,
        base: NDArray[np.float32],
        version: int,  # noqa: ARG002 (lists are shown by a logging policy)
        members: NDArray[np.int64],
        intentions: Intentions,
        aggregation: Aggregation,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        logging = (base if self._logging is None else self._logging).astype(np.float64)
        start = base.astype(np.float64)
        deltas = np.empty((len(members), len(base)), np.float32)
        ndcg, reciprocal_ranks = np.empty(len(members)), np.empty(len(members))
        for pool, rows in self._by_dataset(members):
            block = ranking_block(pool, logging, intentions.picks[rows], self._users(intentions.for_clients(rows)))
            ndcg[rows], reciprocal_ranks[rows] = means_of(block)
            for shown, row in enumerate(np.arange(len(members))[rows].tolist()):
                picks = intentions.picks[row].tolist()
                deltas[row] = self._learned(start, pool, block, shown, int(members[row]), picks) - start
        add_deltas(aggregation, deltas, (intentions.picks >= 0).sum(axis=1), self._names_of(members))
        return ndcg, reciprocal_ranks

    def _learned(
        self,
        weights: NDArray[np.float64],
        pool: QueryPool,
        block: RankedBlock,
        row: int,
        client: int,
        picks: list[int],
    ) -> NDArray[np.float64]:
        propensities = self._propensities(client)
        for i, pick in enumerate(picks):
            if pick < 0:
                continue
            features = pool.dataset.query(pick).features
            k = min(pool.serp_length, len(features))
            weights = ips_step(
                weights,
                features,
                block.rankings[row, i, :k],
                block.clicks[row, i, :k],
                propensities[:k],
                self._training.learning_rate,
            )
        return weights

    def _propensities(self, client: int) -> NDArray[np.float64]:
        k = self._training.serp_length
        if self._position_bias is None:
            return np.ones(k)
        models = self._crowd.models_of(client)
        if len(models) == 1 and models[0].examination_exponent > 0.0:
            return examination_by_rank(models[0].examination_exponent, k)
        return position_propensities(self._position_bias, k)


def block_runner(population: Population, crowd: Crowd, training: Training, ranker: Ranker) -> Runner | None:
    """Return the block runner of a method. None if only the reference runs it."""
    method = spec_of(training)
    if method.lists is Lists.DRAWN and training.exploration != SamplingExploration():
        return None
    if method.pdgd is not None:
        return PdgdBlockRunner(population, crowd, ranker, training.serp_length, method.pdgd(training, ranker))
    make = _OTHERS.get(method.name)
    return None if make is None else make(population, crowd, training, ranker)


def _fedips_runner(population: Population, crowd: Crowd, training: FedIpsTraining, ranker: Ranker) -> Runner | None:
    if training.propensities != "known":
        return None
    return IpsBlockRunner(population, crowd, training, ranker, training.position_bias)


def _fedavg_runner(population: Population, crowd: Crowd, training: FedAvgTraining, ranker: Ranker) -> Runner | None:
    return IpsBlockRunner(population, crowd, training, ranker, None)


_OTHERS: dict[str, Callable[[Population, Crowd, Any, Ranker], Runner | None]] = {
    FOLTR_ES.name: EvolutionBlockRunner,
    FEDIPS.name: _fedips_runner,
    FEDAVG.name: _fedavg_runner,
}
"""Methods that learn not only by PDGD steps. Only the reference runs methods missing here."""


def _units_of(ranker: Ranker) -> tuple[int | None, Activation]:
    return (None, "sigmoid") if isinstance(ranker, LinearRankerSpec) else (ranker.hidden, ranker.activation)
