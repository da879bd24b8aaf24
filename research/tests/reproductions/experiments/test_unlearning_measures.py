"""Figures of forgetting: which models are measured, and how."""

import numpy as np
import pytest
from made_results import profile

from foltr_research.reproductions.experiments.thesis_unlearning import RETRAINED
from foltr_research.reproductions.experiments.unlearning_measures import (
    BEFORE,
    CLICKS_OF,
    HONEST,
    IID,
    LATE,
    POISONER,
    RESET,
    SKEWED,
    configurations,
    leavers,
    outcomes_of,
)
from foltr_research.reproductions.outcomes import Results
from foltr_research.simulation.config import SimulationConfig
from foltr_research.simulation.unlearning.strategies import AGAIN, LATE_WAYS, LONG, REMOVE, ROLLBACK, WAYS


@pytest.fixture(scope="module")
def found():
    config = SimulationConfig(data="synthetic", rounds=40, eval_every=20, seed=2, clients=6, interactions=4)
    return Results(tuple(outcomes_of(config, IID)), profile())


def figures(found, leaver, model):
    [one] = found.select({"leaver": leaver, "model": model})
    return one.result["figures"]


@pytest.mark.parametrize("leaver", [POISONER, LATE, HONEST, RESET])
def test_every_way_to_forget_is_measured(leaver, found):
    """Rollback only where there is something before the leaver."""
    there = found.select({"leaver": leaver})
    assert set(there.labels("model")) == {BEFORE, RETRAINED, *WAYS, *(LATE_WAYS if leaver == LATE else ())}
    for one in there:
        measured = one.result["figures"]
        assert all(np.isfinite(value) for value in measured.values())
        assert -1.0 <= measured["cosine"] <= 1.0
        assert 0.0 <= measured["overlap"] <= 1.0
        assert measured["ndcg"] == one.value("offline")


@pytest.mark.parametrize("leaver", [POISONER, LATE, HONEST, RESET])
def test_retraining_is_what_all_are_measured_against(leaver, found):
    """No distance from itself, and as far from the model before as itself, which is no distance from itself either."""
    retrained, before = figures(found, leaver, RETRAINED), figures(found, leaver, BEFORE)
    assert [retrained[name] for name in ("distance", "overlap", "gap")] == [0.0, 1.0, 0.0]
    assert retrained["cosine"] == pytest.approx(1.0)
    assert before["gap"] == -1.0


def test_what_ways_take(found):
    """Steps, and bytes if devices are asked; the others learn the same, independent of the leaver."""
    assert figures(found, LATE, ROLLBACK)["steps"] == 2.0
    assert figures(found, HONEST, REMOVE)["bytes"] == 0.0
    model = figures(found, HONEST, LONG)
    assert (model["updates"], model["bytes"]) == (4 * 5, 4 * 5 * 2 * 4 * 136)
    for model in (RETRAINED, AGAIN, LONG):
        same = [figures(found, leaver, model)["ndcg"] for leaver in (POISONER, HONEST, RESET)]
        assert len(set(same)) == 1
    assert figures(found, LATE, AGAIN)["ndcg"] == figures(found, HONEST, AGAIN)["ndcg"]
    assert figures(found, HONEST, BEFORE)["own"] == figures(found, HONEST, BEFORE)["others"]
    reset = figures(found, RESET, BEFORE)
    assert reset["own"] < reset["others"]
    assert leavers(1_000)[LATE].joined == 501


@pytest.mark.parametrize(("n_grades", "clients"), [(3, 12), (5, 10)])
def test_federations_of_an_experiment(n_grades, clients):
    """Every click model on IID data; two grades a client with one, and as many clients as can be dealt them."""
    planned = configurations("quick", profile(n_grades), 2)
    assert len(planned) == 2 * sum(map(len, CLICKS_OF.values()))
    for population, config in planned:
        assert config.clicks[0] in CLICKS_OF[population]
        assert (config.population, config.clients) == (("iid", 10) if population == IID else ("type2", clients))
    assert {population for population, _ in planned} == {IID, SKEWED}
