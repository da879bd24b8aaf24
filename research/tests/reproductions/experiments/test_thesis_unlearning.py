"""The experiments of chapter 6 and on the remedy: what is run, and who comes when."""

import dataclasses

import numpy as np
import pytest
from made_results import profile

from foltr_research.reproductions.experiment import CLICKS
from foltr_research.reproductions.experiments import thesis_unlearning
from foltr_research.reproductions.experiments.remedy_late import (
    INTENTS,
    MOMENTS,
    measured,
    population_with_late_devices,
)
from foltr_research.reproductions.experiments.thesis_unlearning import (
    INTERVALS,
    LOCAL_INTERACTIONS_TRIED,
    RETRAINED,
    TAINTED,
    UNLEARNED,
)
from foltr_research.reproductions.outcomes import Results
from foltr_research.reproductions.registry import EXPERIMENTS
from foltr_research.simulation.config import SimulationConfig


@pytest.fixture
def short(monkeypatch):
    """Federations of a few rounds, on generated data."""
    monkeypatch.setattr(thesis_unlearning, "ROUNDS", {"quick": 40})
    return dataclasses.replace(profile(), data="synthetic")


def test_the_federations_of_figures_and_table(short):
    """6.2: as long, with the same users; 6.3: over calibration rounds, beside level lines; the table's every cell."""
    grid = EXPERIMENTS["thesis-6.2"].grid("quick", short)
    assert [(one.labels["federation"], one.config.clients) for one in grid[::3]] == [("10H-0M", 10), ("9H-0M", 9)]
    tainted = EXPERIMENTS["thesis-6.2"].more("quick", short, 1)
    assert [one.labels for one in tainted] == [{"federation": TAINTED, "clicks": clicks} for clicks in CLICKS]
    assert tainted[0].result["interactions"] == 40 * 10 * 5
    found = Results(tuple(EXPERIMENTS["thesis-6.3"].more("quick", short, 1)), short)
    curve = found.select({"federation": UNLEARNED, "clicks": "perfect"}).curve("offline")
    assert curve.rounds.tolist() == [0, 1, 2, 3, 4]
    level = found.select({"federation": RETRAINED, "clicks": "perfect"}).curve("offline")
    assert level.rounds.tolist() == curve.rounds.tolist()
    assert len(set(level.mean.tolist())) == 1
    one = EXPERIMENTS["thesis-table-6.2"]
    found = one.more("quick", short, 1)
    assert len(found) == len(INTERVALS) * len(LOCAL_INTERACTIONS_TRIED) * len(CLICKS)
    steps = {int(run.labels["interval"]): run.result["ndcg_at_10"][-1]["round"] for run in found}
    assert steps == {5: 8, 10: 4, 20: 2}
    assert {(run.labels["interval"], run.labels["local_interactions"]) for run in one.grid("quick", short)} == {
        ("1", "5")
    }


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
