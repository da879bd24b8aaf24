"""Small populations for the tests of the simulator."""

import dataclasses
from itertools import count
from pathlib import Path

import numpy as np
import pytest

from foltr.core.data.dataset import RankingDataset
from foltr.core.data.synthetic import split_queries, synthetic_dataset
from foltr_research.simulation.checkpoint import CheckpointPlan
from foltr_research.simulation.clients.population import Population, iid_population
from foltr_research.simulation.config import SimulationConfig
from foltr_research.simulation.federated import run
from foltr_research.simulation.results import SimulationResult


def data(n_features: int = 8, n_grades: int = 5, n_queries: int = 40) -> tuple[RankingDataset, RankingDataset]:
    """A training and a test set; some queries have fewer documents than a list shows."""
    rng = np.random.default_rng(7)
    whole = synthetic_dataset(
        rng, n_queries=n_queries, docs_per_query=(4, 30), n_features=n_features, n_grades=n_grades
    )
    return split_queries(whole, n_queries // 2)


def config(**values: object) -> SimulationConfig:
    """A short run that learns."""
    return SimulationConfig.read({"clients": 5, "interactions": 4, "rounds": 4, "eval_every": 2, **values})


def population(of: SimulationConfig) -> Population:
    """Everybody has all of `data`."""
    return iid_population(*data(), of.clients, of.clicks, of.interactions)


def simulated(of: SimulationConfig, **how: object) -> SimulationResult:
    """The result of a run on `population`."""
    return run(of, population(of), **how)


def with_quantities(people: Population, *quantities: int) -> Population:
    """The same clients with other numbers of interactions."""
    clients = [
        dataclasses.replace(client, n_interactions=quantities[i % len(quantities)])
        for i, client in enumerate(people.clients)
    ]
    return dataclasses.replace(people, clients=tuple(clients))


def check_resumed(of: SimulationConfig, path: Path, *, after: int = 1, runner: str = "auto") -> SimulationResult:
    """Stop a run after so many rounds like a signal, resume it, and compare it with an uninterrupted run."""
    asked = count(1)
    with pytest.raises(KeyboardInterrupt):
        simulated(of, checkpoint=CheckpointPlan(path), stop=lambda: next(asked) >= after, runner=runner)
    resumed = simulated(of, checkpoint=CheckpointPlan(path, resume=True), runner=runner)
    whole = simulated(of, runner=runner)
    assert resumed.outcome() == whole.outcome()
    np.testing.assert_array_equal(resumed.weights, whole.weights)
    return whole
