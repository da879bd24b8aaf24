"""The remedy's experiment: who comes when, and claims that can fail."""

import numpy as np
import pytest
from made_results import results

from foltr_research.reproductions.claims import Status
from foltr_research.reproductions.experiment import CLICKS
from foltr_research.reproductions.experiments.remedy import DIFFERENT, EVERYBODY, METHODS
from foltr_research.reproductions.experiments.remedy_late import (
    INTENTS,
    MOMENTS,
    measured,
    population_with_late_devices,
)
from foltr_research.reproductions.registry import EXPERIMENTS
from foltr_research.simulation.config import SimulationConfig


def claim(text):
    return next(one for one in EXPERIMENTS["remedy"].claims if text in one.text)


def made(population, **finals):
    return {
        (*EVERYBODY.items(), ("population", population), ("method", method), ("clicks", clicks)): [value, value + 0.001]
        for method, value in finals.items()
        for clicks in CLICKS
    }


@pytest.fixture
def config():
    return SimulationConfig(
        data="synthetic-intents", clients=8, rounds=3, population="type1", intent_agreement=0.5, seed=2
    )


def test_late_devices_are_not_there_before(config):
    """All intents join at the end; until then nobody of them has clicked, and four clients have one list a round."""
    population = population_with_late_devices(config)
    assert len(population.clients) == config.clients + INTENTS
    assert [client.n_interactions for client in population.clients] == [5] * 4 + [1] * 4 + [5] * 4
    assert sorted(client.test for client in population.clients[-INTENTS:]) == list(range(INTENTS))


def test_test_queries_are_held_out(config):
    """No query that anybody learns from is measured on."""
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


@pytest.mark.parametrize(("own", "status"), [(0.9, Status.CONFIRMED), (0.6, Status.NOT_CONFIRMED)])
def test_better_than_a_shared_ranker(own, status):
    """Everywhere where preferences differ, against each of the others."""
    others = {method: 0.7 for method in METHODS if method != "personal"}
    values = {}
    for population in DIFFERENT:
        values |= made(population, personal=own, **others)
    assert claim("shares one ranker").check(results(values)).status is status


@pytest.mark.parametrize(("own", "status"), [(0.695, Status.CONFIRMED), (0.65, Status.NOT_CONFIRMED)])
def test_cost_where_nobody_differs(own, status):
    """Both at the end and over the run."""
    assert claim("do not differ").check(results(made("no difference", personal=own, FPDGD=0.7))).status is status
