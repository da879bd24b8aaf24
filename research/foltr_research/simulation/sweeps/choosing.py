"""Chooses hyper-parameters by validation queries, as LETOR's folds are meant: apart for each fold."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from foltr.core.errors import SettingsError
from foltr.core.evaluation.named_metrics import NDCG_AT_10
from foltr_research.simulation.config import SimulationConfig
from foltr_research.simulation.sweeps.sweep import SweepRow

# What a sweep may choose. Other varied fields, such as click models or attacks, are conditions: each has a choice.
_CHOSEN = ("parameters.", "aggregation_parameters.")
_CHOSEN_FIELDS = ("hidden", "activation")


def parameters_to_choose(varied: Iterable[str]) -> list[str]:
    """Return the varied keys that validation chooses. Raises SettingsError without any."""
    chosen = [key for key in varied if key.startswith(_CHOSEN) or key in _CHOSEN_FIELDS]
    if not chosen:
        raise SettingsError("--choose-by: nothing to choose; vary a parameter, e.g. --vary learning_rate=0.03,0.1,0.3")
    return chosen


def chosen_configs(rows: Sequence[SweepRow], keys: Sequence[str]) -> list[SimulationConfig]:
    """Return the best configuration of each fold and condition, on the test queries, with all its seeds.

    Best is the highest mean over seeds of the last value of the first metric; of equals, the first in the order of the
    grid. Parameters with a failed run are not chosen.

    Args:
        rows: measured on validation queries.
        keys: as of `parameters_to_choose`.
    """
    found: dict[str, dict[str, list[SweepRow]]] = {}
    for row in rows:
        condition, value = _split(row.config, keys)
        found.setdefault(condition, {}).setdefault(value, []).append(row)
    chosen = []
    for candidates in found.values():
        means = {value: _mean(of_seeds) for value, of_seeds in candidates.items()}
        best = max(means, key=means.__getitem__)
        if np.isfinite(means[best]):
            chosen += [row.config.changed(evaluate_on="test") for row in candidates[best]]
    return chosen


def _split(config: SimulationConfig, keys: Sequence[str]) -> tuple[str, str]:
    """Return the condition and the chosen parameters of a configuration, as texts; neither has the seed."""
    values: dict[str, Any] = config.model_dump(mode="json", exclude={"seed"})
    chosen = {}
    for key in keys:
        field, _, parameter = key.partition(".")
        chosen[key] = values[field].pop(parameter, None) if parameter else values.pop(field)
    return json.dumps(values, sort_keys=True), json.dumps(chosen, sort_keys=True)


def _mean(rows: Sequence[SweepRow]) -> float:
    values = [_last(row) for row in rows]
    return float(np.mean(values)) if np.isfinite(values).all() else -np.inf


def _last(row: SweepRow) -> float:
    if row.result is None:
        return float("nan")
    name = row.config.metrics[0] if row.config.metrics else NDCG_AT_10
    curve = row.result["ndcg_at_10"] if name == NDCG_AT_10 else row.result["metrics"][name]
    return float(curve[-1]["value"])
