"""Every way to forget, by name."""

import numpy as np
import pytest
from simulated import config, population

from foltr_research.simulation.unlearning.departure import Leaver, UnlearningSimulation
from foltr_research.simulation.unlearning.strategies import (
    ASCENT,
    ERASER,
    ERASER_LOG,
    FINE_TUNING,
    LATE_WAYS,
    LONG,
    LONG_LOG,
    MIDDLE,
    REMOVE,
    REMOVE_LAST,
    REMOVE_LIVE,
    ROLLBACK,
    ROLLBACK_LOG,
    WAYS,
    federate,
)

ROUNDS, LAST = 40, 4


@pytest.fixture(scope="module")
def simulation():
    of = config(rounds=ROUNDS, seed=3)
    return UnlearningSimulation(of, population(of), Leaver(LAST, joined=21))


@pytest.fixture(scope="module")
def history(simulation):
    return federate(simulation)


@pytest.mark.parametrize("name", [*WAYS, *LATE_WAYS])
def test_every_way_makes_a_model_and_says_what_it_took(name, simulation, history):
    """Finite, other than the model before, the same whenever it is made; evaluated at its last step."""
    found, again = ({**WAYS, **LATE_WAYS}[name](simulation, history) for _ in range(2))
    np.testing.assert_array_equal(found.weights, again.weights)
    assert np.isfinite(found.weights).all()
    assert not np.array_equal(found.weights, history.trained.weights)
    assert found.ndcg[-1][0] >= 1
    assert found.seconds >= 0.0


@pytest.mark.parametrize(
    ("name", "steps", "updates"),
    [
        (ERASER, 4, 4 * 4),
        (ERASER_LOG, 4, 4 * 4),
        (MIDDLE, 20, 20 * 4),
        (ROLLBACK, 2, 2 * 4),
        (ROLLBACK_LOG, 2, 2 * 4),
        (LONG, 2, 2 * 4),
        (LONG_LOG, 2, 2 * 4),
        (REMOVE, 20, 0),
        (REMOVE_LIVE, 120, 100 * 4),
        (REMOVE_LAST, 1, 0),
        (FINE_TUNING, 100, 100 * 4),
        (ASCENT, 101, 20 + 80 * 4),
    ],
)
def test_what_a_way_takes(name, steps, updates, simulation, history):
    """Steps, and updates that clients were asked for: none where stored ones are added up."""
    found = {**WAYS, **LATE_WAYS}[name](simulation, history)
    assert (found.ndcg[-1][0], found.updates) == (steps, updates)
