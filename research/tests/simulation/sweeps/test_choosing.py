"""Parameters are chosen on validation queries, for each fold and condition, and then measured on test queries."""

import pytest

from foltr.core.errors import SettingsError
from foltr_research.simulation.config import SimulationConfig
from foltr_research.simulation.sweeps.choosing import chosen_configs, parameters_to_choose
from foltr_research.simulation.sweeps.sweep import SweepRow, grid

BASE = SimulationConfig(clients=3, interactions=2, rounds=2, evaluate_on="validation")
RATES, SEEDS = [0.03, 0.1, 0.3], [1, 2]


def row(config, value, *, metric="ndcg_at_10"):
    """A finished run with this last value; None for one that failed."""
    if value is None:
        return SweepRow(config, None, "failed")
    curve = [{"round": 0, "value": 0.9}, {"round": 2, "value": value}]
    other = {} if metric == "ndcg_at_10" else {metric: curve}
    return SweepRow(config, {"ndcg_at_10": curve if not other else [], "metrics": other}, None)


def test_each_fold_and_click_model_has_its_own_choice():
    """By the mean over seeds; the chosen run on the test queries has every seed."""
    varied = {"fold": [1, 2], "clicks": ["perfect", "poison"], "parameters.learning_rate": RATES, "seed": SEEDS}
    best = {(1, "perfect"): 0.03, (1, "poison"): 0.1, (2, "perfect"): 0.3, (2, "poison"): 0.1}
    rows = []
    for config in grid(BASE, varied):
        rate = config.parameters["learning_rate"]
        is_best = rate == best[config.fold, config.clicks[0]]
        # One seed alone would choose 0.03.
        rows.append(row(config, 0.5 + 0.1 * is_best if config.seed == 1 else 0.4 + 0.3 * is_best))
    chosen = chosen_configs(rows, parameters_to_choose(varied))
    assert [(one.fold, one.clicks[0], one.parameters["learning_rate"], one.seed) for one in chosen] == [
        (*place, rate, seed) for place, rate in best.items() for seed in SEEDS
    ]
    assert {one.evaluate_on for one in chosen} == {"test"}


def test_the_first_metric_chooses_and_failed_runs_do_not():
    """Parameters with a failed seed are not chosen; if all have one, nothing is."""
    varied = {"hidden": [4, 8], "seed": SEEDS}
    configs = grid(BASE.changed(metrics=("err@10", "map"), ranker="neural"), varied)
    keys = parameters_to_choose(varied)
    values = [0.4, 0.4, 0.5, 0.5]
    rows = [row(config, value, metric="err@10") for config, value in zip(configs, values, strict=True)]
    assert [one.hidden for one in chosen_configs(rows, keys)] == [8, 8]
    rows[3] = row(configs[3], None)
    assert [one.hidden for one in chosen_configs(rows, keys)] == [4, 4]
    rows[0] = row(configs[0], None)
    assert chosen_configs(rows, keys) == []


def test_conditions_alone_are_nothing_to_choose():
    with pytest.raises(SettingsError, match="nothing to choose"):
        parameters_to_choose(["clicks", "method", "attack_parameters.z", "seed", "fold"])
    assert parameters_to_choose(["aggregation_parameters.radius", "clicks", "hidden"]) == [
        "aggregation_parameters.radius",
        "hidden",
    ]
