"""Two thousand federations in which everything goes wrong that can, each of them repeatable from its seed."""

import os
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from simulation.mutants import MUTANTS, SEEN_IN, may_show, mutated
from simulation.promises import BrokenPromiseError
from simulation.reproductions import REPRODUCTIONS
from simulation.scenario import Reproduction, Scenario, draw, shrunk
from simulation.world import World, run

SEED_VARIABLE = "FOLTR_TEST_SIMULATION_SEED"
SEEDS_VARIABLE = "FOLTR_TEST_SIMULATION_SEEDS"
FIXED_VARIABLE = "FOLTR_TEST_SIMULATION_FIXED_SEEDS"
# Seeds that never change find again what was found; new ones are drawn in each run. `make test` plays 200 of them
# and 100 new ones.
_N_SEEDS = 1_800
_N_PLAYED = int(os.environ.get(FIXED_VARIABLE) or _N_SEEDS)
_N_NEW = int(os.environ.get(SEEDS_VARIABLE) or 200)
_CHUNK = 50
_MUTANT_SEEDS = 1000


def broken(scenario: Scenario) -> BaseException | None:
    """What the scenario shows to be wrong; None if all is well."""
    try:
        run(scenario)
    except Exception as error:  # noqa: BLE001 (a mutant may fail in any way, and so may a bug)
        return error
    return None


def promise(error: BaseException) -> str:
    return error.promise if isinstance(error, BrokenPromiseError) else type(error).__name__


def told(scenario: Scenario, error: BaseException) -> str:
    """How to repeat it, and the fewest steps that still show it."""
    shortest = shrunk(scenario, lambda shorter: _shows(shorter, promise(error)))
    return (
        f"seed {scenario.seed}: {error!r}\n"
        f"repeat with: {SEED_VARIABLE}={scenario.seed} pytest tests/simulation\n"
        f"all {len(scenario.steps)} steps: {list(scenario.steps)}\n"
        f"the {len(shortest.steps)} that show it: {shortest!r}"
    )


def _shows(scenario: Scenario, promised: str) -> bool:
    error = broken(scenario)
    return error is not None and promise(error) == promised


def _chunks() -> list[Any]:
    if seed := os.environ.get(SEED_VARIABLE):
        return [pytest.param(range(int(seed), int(seed) + 1), id=f"seed {seed}")]
    starts = range(0, _N_PLAYED, _CHUNK)
    return [pytest.param(range(a, min(a + _CHUNK, _N_PLAYED)), id=f"seeds from {a}") for a in starts]


def _hold(seeds: Iterable[int]) -> None:
    for seed in seeds:
        scenario = draw(seed)
        error = broken(scenario)
        if error is not None:
            pytest.fail(told(scenario, error), pytrace=False)


@pytest.mark.parametrize("reproduction", [pytest.param(item, id=item.name) for item in REPRODUCTIONS])
def test_what_was_found_stays_mended(reproduction: Reproduction):
    """Every bug that a simulation found, in as few steps as showed it."""
    error = broken(reproduction.scenario)
    assert error is None, told(reproduction.scenario, error)


@pytest.mark.parametrize("reproduction", [pytest.param(item, id=item.name) for item in REPRODUCTIONS if item.unmended])
def test_a_reproduction_still_reproduces(reproduction: Reproduction):
    """With the mending undone it shows what it showed, so it has not become a test of nothing."""
    with mutated(reproduction.unmended):
        assert _shows(reproduction.scenario, reproduction.promise)


@pytest.mark.parametrize("seeds", _chunks())
def test_promises_hold_whatever_happens(seeds: range):
    """Nothing accepted is lost or counted twice, no round hangs, no model is wrong, and everybody is heard."""
    _hold(seeds)


@pytest.mark.skipif(SEED_VARIABLE in os.environ, reason="one seed is asked for")
@pytest.mark.parametrize("n_seeds", [min(_CHUNK, _N_NEW - a) for a in range(0, _N_NEW, _CHUNK)], ids=str)
def test_they_hold_in_federations_that_nobody_has_played(rng: np.random.Generator, n_seeds: int):
    _hold(int(seed) for seed in rng.integers(_N_SEEDS, 2**32, n_seeds))


@pytest.mark.parametrize("name", MUTANTS)
def test_the_simulation_finds_what_is_wrong(name: str):
    """Each mutant breaks a promise within some hundred seeds, none of which does without it."""
    first = SEEN_IN.get(name, 0)
    scenarios = (draw(seed) for seed in sorted(range(_MUTANT_SEEDS), key=lambda seed: seed != first))
    found = any(_found(name, scenario) for scenario in scenarios if may_show(name, scenario))
    assert found, f"{_MUTANT_SEEDS} seeds do not tell the program from one in which {name}"


def _found(name: str, scenario: Scenario) -> bool:
    with mutated(name):
        error = broken(scenario)
    # One that is called with other arguments than it takes is no mutant any more, and must not pass for one.
    return error is not None and not isinstance(error, TypeError) and broken(scenario) is None


def _worlds(seeds: Iterable[int]) -> list[World]:
    return [run(draw(seed)) for seed in seeds]


def test_the_simulation_gets_somewhere():
    """Models are made, rounds are given up, updates withdrawn and federators replaced, in any 25 seeds."""
    worlds = _worlds(range(25))
    rounds = [row for world in worlds for row in world.store.tables.rounds.values()]
    assert sum(world.judge.n_models for world in worlds) > 100
    assert {row.state for row in rounds} >= {"collecting", "completed", "abandoned"}
    assert {row.pacing for row in rounds if row.state == "completed"} == {"deadline", "buffered"}
    assert any(world.judge.withdrawn for world in worlds)
    assert {process.state for world in worlds for process in world.processes} >= {"up", "crashed", "fenced", "finished"}


def test_the_simulation_forgets():
    """Clients are erased on their own wish and the operator's, and jobs done, given up, paused, and left by others."""
    # In the last one all devices are away in the midst of a job, for longer than it waits.
    worlds = _worlds(seed for seed in (*range(60), 294) if draw(seed).forgets)
    tables = [world.store.tables for world in worlds]
    assert sum(world.judge.erasures.n_swaps for world in worlds) > 10
    assert {row.requested_by for stored in tables for row in stored.erasures.values()} == {"device", "operator"}
    assert {job.state for stored in tables for job in stored.jobs.values()} >= {"done", "failed"}
    assert {event.kind for stored in tables for event in stored.events} >= {
        "unlearning_step_missed",
        "unlearning_paused",
    }


@pytest.mark.parametrize("seed", [3, 7, 31])
def test_a_seed_plays_the_same_every_time(seed: int):
    """The same rows in the same order, or no failure could be looked at twice."""
    first, second = run(draw(seed)), run(draw(seed))
    assert first.store.tables == second.store.tables
    assert first.schedule.now == second.schedule.now
