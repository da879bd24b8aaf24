"""Clients with little to learn from: with few result lists, or joining a federation late.

They show the difference between a remedy for differing preferences and every client learning alone, since a client with
many lists can learn alone. Measured on queries that nobody has learned from.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foltr.core.data.dataset import RankingDataset, select_queries
from foltr.core.evaluation.metrics import mean_ndcg_of_scores
from foltr.core.methods.base import scores_of
from foltr.core.methods.registry import initial_weights, make_aggregation, training_for
from foltr.core.numerics.streams import first_model_rng
from foltr.core.protocol.explorations import SamplingExploration
from foltr.core.protocol.trainings import LinearRankerSpec, Training
from foltr_research.reproductions.experiment import CLICKS
from foltr_research.reproductions.outcomes import Outcome
from foltr_research.simulation.clients.crowd import Crowd
from foltr_research.simulation.clients.intents import IntentCollection
from foltr_research.simulation.clients.loading import load_experiment
from foltr_research.simulation.clients.partitions import intent_population
from foltr_research.simulation.clients.population import Population
from foltr_research.simulation.config import SimulationConfig
from foltr_research.simulation.runners import ReferenceRunner, Runner

INTENTS, INTERACTIONS = 4, 5
PERSONAL = {"personal_learning_rate": 0.2}
MOMENTS = (0, 5, 10, 20, 50, 100)
"""Result lists that a late device has seen at each measurement in the table."""

# A method of the service by its name here. "local" is a federation of each client with itself.
_METHODS = {"personal": "fpdgd-personal", "FPDGD": "fpdgd", "local": "fpdgd"}
_HELD_OUT = 0.25

Curve = list[tuple[int, float]]


def late_devices(base: SimulationConfig, preferences: Mapping[str, dict[str, Any]], n_seeds: int) -> list[Outcome]:
    """Return outcomes labelled by lists shown, preferences, method and clicks.

    The federation first runs its rounds. Its last clients, one for each intent, have one list per round, the others
    five. Then one more device for each intent joins and takes part like the others.

    Args:
        base: data, clients (a multiple of the intents) and rounds.
        preferences: changes to ``base`` by name.
    """
    found = []
    for name, changes in preferences.items():
        for clicks in CLICKS:
            for seed in range(1, n_seeds + 1):
                config = base.changed(**changes, clicks=clicks, seed=seed)
                population = population_with_late_devices(config)
                for method in _METHODS:
                    labels = {"preferences": name, "method": method, "clicks": clicks}
                    for shown, curve in measured(population, config, method).items():
                        found.append(Outcome({"shown": shown, **labels}, None, seed, config, _result(curve)))
    return found


def measured(population: Population, config: SimulationConfig, method: str) -> dict[str, Curve]:
    """Return nDCG@10 on the test queries by group of clients, over rounds; for late devices since they joined."""
    training = training_for(
        _METHODS[method], PERSONAL if method == "personal" else {}, INTERACTIONS, SamplingExploration()
    )
    players = _Players(population, config.seed, training, alone=method == "local")
    early, late = list(range(config.clients)), list(range(config.clients, len(population.clients)))
    for _ in range(config.rounds):
        players.round(early)
    found: dict[str, Curve] = {
        "five lists a round": [(config.rounds, players.ndcg(early[:-INTENTS]))],
        "one list a round": [(config.rounds, players.ndcg(early[-INTENTS:]))],
    }
    curve = [(0, players.ndcg(late))]
    for number in range(1, MOMENTS[-1] // INTERACTIONS + 1):
        players.round(early + late)
        curve.append((number, players.ndcg(late)))
    found["late device"] = curve
    for moment in MOMENTS:
        number, value = curve[moment // INTERACTIONS]
        found[f"late, after {moment} lists"] = [(config.rounds + number, value)]
    return found


def population_with_late_devices(config: SimulationConfig) -> Population:
    """Return the federation's clients followed by the late ones. A quarter of the queries is for testing."""
    intents = load_experiment(config).intents
    if intents is None:
        raise RuntimeError("an experiment of type 1 without intents")
    n_queries = intents.merged.n_queries
    order = np.random.default_rng(config.seed).permutation(n_queries)
    n_test = round(_HELD_OUT * n_queries)
    train, test = (_chosen(intents, np.sort(some)) for some in (order[n_test:], order[:n_test]))
    population = intent_population(train, config.clients + INTENTS, config.clicks, INTERACTIONS)
    quiet = range(config.clients - INTENTS, config.clients)
    clients = (
        replace(client, n_interactions=1) if i in quiet else client for i, client in enumerate(population.clients)
    )
    return replace(population, clients=tuple(clients), tests=test.intents)


def _chosen(intents: IntentCollection, queries: NDArray[np.int64]) -> IntentCollection:
    return IntentCollection(
        select_queries(intents.merged, queries), tuple(select_queries(one, queries) for one in intents.intents)
    )


class _Players:
    """Clients who take part in a round on request, so that some can join later.

    Args:
        alone: makes each client a separate federation.
    """

    def __init__(self, population: Population, seed: int, training: Training, *, alone: bool) -> None:
        self._population = population
        self._training = training
        self._ranker = LinearRankerSpec(n_features=population.datasets[0].n_features)
        crowd = Crowd(population, seed, training.serp_length)
        self._runner: Runner = ReferenceRunner(population, crowd, training, self._ranker)
        first = initial_weights(training, self._ranker, first_model_rng(seed))
        # The index of each client's model.
        self._model_of = list(range(len(population.clients))) if alone else [0] * len(population.clients)
        self._models = [first] * (max(self._model_of) + 1)
        self._version = 0

    def round(self, clients: Sequence[int]) -> None:
        for model in sorted({self._model_of[client] for client in clients}):
            members = np.array([client for client in clients if self._model_of[client] == model], np.int64)
            aggregation = make_aggregation(self._training, self._ranker)
            self._runner.run(self._models[model], self._version, members, aggregation)
            self._models[model] = aggregation.finish(self._models[model]).weights
        self._version += 1

    def ndcg(self, clients: Sequence[int]) -> float:
        """Return the mean over clients."""
        return float(np.mean([self._ndcg_of(client) for client in clients]))

    def _ndcg_of(self, client: int) -> float:
        test: RankingDataset = self._population.tests[self._population.clients[client].test]
        weights = self._runner.ranker_of(client, self._models[self._model_of[client]])
        return mean_ndcg_of_scores(scores_of(self._ranker, weights, test.features), test).mean


def _result(curve: Curve) -> dict[str, Any]:
    """Return a curve in the shape of `SimulationResult.to_dict`, without the other values."""
    return {
        "ndcg_at_10": [{"round": number, "value": value} for number, value in curve],
        "ndcg_at_10_global": None,
        "online_ndcg": float("nan"),
        "online_per_round": [None],
        "max_rr": [None],
        "interactions": 0,
        "bytes": {"up": None, "down": None},
        "seconds": {"learning": None, "wall": None},
    }
