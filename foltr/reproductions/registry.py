"""The experiments there are, by name."""

from foltr.errors import SettingsError
from foltr.reproductions import (
    fedips,
    foltr_es,
    fpdgd,
    methods,
    noniid,
    noniid_labels,
    remedy,
    robustness,
    robustness_clicks,
    robustness_participation,
    robustness_updates,
    unlearning,
    unlearning_figures,
)
from foltr.reproductions.harness import Experiment

_MODULES = (
    foltr_es,
    fpdgd,
    noniid,
    noniid_labels,
    remedy,
    robustness_clicks,
    robustness_updates,
    robustness,
    robustness_participation,
    unlearning,
    unlearning_figures,
    fedips,
    methods,
)
EXPERIMENTS: dict[str, Experiment] = {one.name: one for module in _MODULES for one in module.EXPERIMENTS}


def experiment(name: str) -> Experiment:
    """SettingsError with the names there are, if there is no such experiment."""
    if name not in EXPERIMENTS:
        raise SettingsError(f"name: there is no experiment {name!r}; known are {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]
