"""The remedy's experiment: who comes when, and claims that can fail."""

import numpy as np
import pytest

from foltr_research.reproductions.experiments.remedy_late import (
    INTENTS,
    MOMENTS,
    measured,
    population_with_late_devices,
)
from foltr_research.simulation.config import SimulationConfig


@pytest.fixture
def config():
    return SimulationConfig(
        data="synthetic-intents", clients=8, rounds=3, population="type1", intent_agreement=0.5, seed=2
    )


def test_late_devices_are_not_there_before(config):
    """All intents join at the end, and four clients have one list a round; no query learned from is measured on."""
    population = population_with_late_devices(config)
    assert len(population.clients) == config.clients + INTENTS
    assert [client.n_interactions for client in population.clients] == [5] * 4 + [1] * 4 + [5] * 4
    assert sorted(client.test for client in population.clients[-INTENTS:]) == list(range(INTENTS))
    population = population_with_late_devices(config)
    learned, tested = population.datasets[0].query_ids, population.tests[0].query_ids
    assert not set(learned.tolist()) & set(tested.tolist())
    assert len(learned) + len(tested) == 200


def test_a_late_device_starts_where_the_others_are_or_alone_with_nothing(config):
    """With a shared ranker it begins with that, learning alone it begins with none; FPDGD's is never its own."""
    population = population_with_late_devices(config)
    found = {method: measured(population, config, method) for method in ("personal", "FPDGD", "local")}
    start = {method: curves["late, after 0 lists"][0][1] for method, curves in found.items()}
    assert start["personal"] > start["local"] + 0.1
    assert start["FPDGD"] > start["local"] + 0.1
    assert [number for number, _ in found["local"]["late device"]] == list(range(MOMENTS[-1] // 5 + 1))
    assert np.all([0.0 <= value <= 1.0 for curves in found.values() for curve in curves.values() for _, value in curve])
