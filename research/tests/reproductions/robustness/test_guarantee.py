"""The inequality that docs/robustness.md proves budgets by holds in runs under every attack that has read them."""

import numpy as np
import pytest
from simulated import config, simulated

from foltr.core.aggregation import budgets
from foltr_research.attacks.registry import has_parameter
from foltr_research.reproductions.robustness.aware_attacks import AWARE, parameters_of, with_feature

FADES = np.array([horizon.fade for horizon in budgets.HORIZONS])[:, None]
ROUNDS, START = 40, 8


@pytest.mark.parametrize("name", AWARE)
def test_nobody_is_farther_from_the_median_client_than_its_budget(monkeypatch, name):
    """Of ten clients four attack; who is beyond a budget, as the median client has moved, gets no farther away.

    It holds for each client, for strangers together, and for every horizon, after each step that is counted.
    """
    grant, n_checked, n_shortened = budgets.granted_shares, 0, 0

    def checked(sums, deviations, faded, bounds):
        nonlocal n_checked, n_shortened
        shares = grant(sums, deviations, faded, bounds)
        before = np.linalg.norm(FADES * sums - bounds.centre, axis=2)
        after = np.linalg.norm(budgets.sums_after(sums, deviations, shares) - bounds.centre, axis=2)
        most = np.sqrt(bounds.squares * faded)
        assert (after <= np.maximum(most, before) * (1.0 + 1e-6) + 1e-9).all()
        n_checked += after.size
        n_shortened += int((shares < 1.0).sum())
        return shares

    monkeypatch.setattr(budgets, "granted_shares", checked)
    attack = AWARE[name].attack
    start = {"start": START} if has_parameter(attack, "start") else {}
    parameters = with_feature({**parameters_of(name), **start}, 8)
    simulated(
        config(
            clients=10,
            rounds=ROUNDS,
            clicks="informational",
            aggregation="adaptive",
            attack=attack,
            attackers=4,
            attack_parameters=parameters,
        )
    )
    assert n_checked > 5 * ROUNDS * len(FADES)
    assert n_shortened or attack == "framing", "the attack is held back at some time"
