"""The settings of FPDGD's figures are those of its paper."""

import pytest
from made_results import outcome, profile

from foltr_research.reproductions.claims import Status
from foltr_research.reproductions.experiments.fpdgd import EXPERIMENTS, PRIVACY
from foltr_research.reproductions.outcomes import Results

BY_NAME = {one.name: one for one in EXPERIMENTS}


@pytest.mark.parametrize(
    ("n_grades", "interactions", "rounds", "budget"), [(3, 4, 1_000, 4_000_000), (5, 2, 200, 400_000)]
)
def test_full_scale_is_the_papers(n_grades, interactions, rounds, budget):
    """1,000 clients; 4 million interactions on MQ2007, 400,000 on MSLR-WEB10K; 25 runs."""
    for one in BY_NAME["thesis-table-3.1"].grid("full", profile(n_grades)):
        config = one.config
        assert (config.clients, config.interactions, config.rounds) == (1_000, interactions, rounds)
        assert config.clients * config.interactions * config.rounds == budget
    assert BY_NAME["thesis-table-3.1"].seeds["full"] == 25


def test_privacy_parameters_are_paired_as_in_the_paper():
    """ε 1.2, 2.3, 4.5, 10 with Δ 3, 3, 5, 5 and FOLtR-ES' p 0.25, 0.5, 0.9, 1."""
    found = {}
    for one in BY_NAME["thesis-3.7"].grid("full", profile()):
        found.setdefault(one.labels["ε"], {}).update(one.config.parameters)
    assert {epsilon: (float(one["sensitivity"]), str(one["truth_probability"])) for epsilon, one in found.items()} == {
        epsilon: (sensitivity, p) for epsilon, sensitivity, p in PRIVACY
    }
    assert all(float(epsilon) == one["epsilon"] for epsilon, one in found.items())


def test_pdgd_once_with_the_same_interactions_and_once_with_the_same_updates():
    """One learner sees all interactions of a round, another a single one."""
    found = {
        one.labels["method"]: one.config
        for one in BY_NAME["thesis-3.6"].grid("full", profile(3))
        if one.config.method == "pdgd"
    }
    assert found["PDGD, same interactions"].clients * found["PDGD, same interactions"].interactions == 4_000
    assert found["PDGD, same updates"].clients * found["PDGD, same updates"].interactions == 1
    assert {config.rounds for config in found.values()} == {1_000}


@pytest.mark.parametrize("scale", ["quick", "full"])
def test_fixed_budget(scale):
    """Figure 3.10: the rounds make up for the interactions of an update; Figure 3.9: they do not."""
    fixed, free = (BY_NAME[name].grid(scale, profile()) for name in ("thesis-3.10", "thesis-3.9"))
    assert len({one.config.interactions * one.config.rounds for one in fixed}) == 1
    assert len({one.config.rounds for one in free}) == 1
    assert [one.config.interactions for one in free] == [int(one.labels["B"]) for one in free]


@pytest.mark.parametrize(("lead", "status"), [(0.1, Status.CONFIRMED), (-0.1, Status.NOT_CONFIRMED)])
def test_main_claim_both_ways(lead, status):
    """FPDGD above FOLtR-ES everywhere confirms it; below denies it."""
    runs = [
        outcome({"method": method, "ε": "10", "clicks": clicks}, seed, level + 0.001 * seed)
        for clicks in ("perfect", "informational")
        for method, level in (("FPDGD", 0.5 + lead), ("FOLtR-ES", 0.5))
        for seed in (1, 2, 3)
    ]
    assert BY_NAME["thesis-3.6"].claims[0].check(Results(tuple(runs), profile())).status is status
