"""All experiments by name."""

from foltr.core.errors import SettingsError
from foltr_research.reproductions.experiment import Experiment
from foltr_research.reproductions.experiments import (
    all_methods,
    correlated_sums,
    counterfactual,
    fedips,
    following_norms,
    foltr_es,
    foltr_es_pdgd,
    fpdgd,
    fpdgd_sizes,
    noniid,
    noniid_labels,
    remedy,
    secure_sums,
    secure_sums_hostile,
    thesis_unlearning,
    unlearning,
    unlearning_canary,
)
from foltr_research.reproductions.robustness import (
    attacks_by_rule,
    aware_attackers,
    click_poisoning,
    differing,
    four_types,
    participation,
    update_poisoning,
    variants,
    votes,
    votes_in_sums,
)

_MODULES = (
    foltr_es,
    foltr_es_pdgd,
    fpdgd,
    fpdgd_sizes,
    noniid,
    noniid_labels,
    remedy,
    click_poisoning,
    update_poisoning,
    variants,
    attacks_by_rule,
    participation,
    aware_attackers,
    differing,
    four_types,
    votes,
    votes_in_sums,
    thesis_unlearning,
    unlearning,
    unlearning_canary,
    fedips,
    counterfactual,
    all_methods,
    secure_sums,
    secure_sums_hostile,
    correlated_sums,
    following_norms,
)
EXPERIMENTS: dict[str, Experiment] = {one.name: one for module in _MODULES for one in module.EXPERIMENTS}


def experiment(name: str) -> Experiment:
    """Return an experiment. Raises SettingsError with all names for an unknown one."""
    if name not in EXPERIMENTS:
        raise SettingsError(f"name: there is no experiment {name!r}; known are {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]
