"""FedIPS' figures: the paper's own settings, and a lead that grows."""

from dataclasses import replace

import pytest
from made_results import profile, results

from foltr_research.reproductions.claims import Status
from foltr_research.reproductions.experiments.fedips import BIASES
from foltr_research.reproductions.harness import plan
from foltr_research.reproductions.registry import EXPERIMENTS


def test_full_scale_is_the_papers():
    """2,000 clients, 5 queries, K = 5, m = 10 clicks, 500 rounds, lists by a ranker of 1 % of the queries."""
    yahoo = replace(profile(5), n_train_queries=14_377)
    found = [run.config for run in plan(EXPERIMENTS["fedips-1"], "full", yahoo, 1) if run.config.method == "fedips"]
    assert len(found) == len(BIASES)
    for config in found:
        assert (config.clients, config.rounds, config.interactions, config.clicks_per_round) == (2_000, 500, 5, 10)
        assert config.parameters["serp_length"] == 5
        assert config.logging_fraction == 0.01


@pytest.mark.parametrize(("late", "status"), [(0.10, Status.CONFIRMED), (0.02, Status.NOT_CONFIRMED)])
def test_growing_lead(late, status):
    """FedIPS' lead at the strongest bias against that at the weakest."""
    leads = dict(zip(BIASES, (0.02, 0.02, 0.05, late), strict=True))
    made = {}
    for bias, lead in leads.items():
        made[("method", "FedIPS"), ("gamma", bias)] = [0.4 + lead, 0.41 + lead]
        made[("method", "FedAvg"), ("gamma", bias)] = [0.4, 0.412]
    claim = next(one for one in EXPERIMENTS["fedips-1"].claims if "larger" in one.text)
    assert claim.check(results(made)).status is status
