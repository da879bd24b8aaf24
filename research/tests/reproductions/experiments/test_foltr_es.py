"""The settings of FOLtR-ES' figures are those of the thesis."""

import pytest
from made_results import outcome, profile

from foltr_research.reproductions.claims import Status
from foltr_research.reproductions.experiments.foltr_es import EXPERIMENTS, TRUTH_PROBABILITIES
from foltr_research.reproductions.outcomes import Results

BY_NAME = {one.name: one for one in EXPERIMENTS}


def test_full_scale_is_the_papers():
    """2,000 clients, 4 interactions each, 250 updates (2 million interactions), antithetic, Adam at 0.001."""
    for variant in BY_NAME["thesis-3.1"].grid("full", profile()):
        config = variant.config
        assert (config.clients, config.interactions, config.rounds) == (2_000, 4, 250)
        assert config.method == "foltr-es"
        assert str(config.parameters["truth_probability"]) == variant.labels["p"]
        assert config.hidden == 10
    assert {variant.labels["p"] for variant in BY_NAME["thesis-3.1"].grid("full", profile())} == set(
        TRUTH_PROBABILITIES
    )


@pytest.mark.parametrize("scale", ["quick", "full"])
def test_number_of_clients_keeps_the_budget(scale):
    """Fewer clients make more updates of the same number of interactions."""
    variants = BY_NAME["thesis-3.2"].grid(scale, profile())
    budgets = {one.config.clients * one.config.interactions * one.config.rounds for one in variants}
    assert len(budgets) == 1
    if scale == "full":
        assert {one.config.clients for one in variants} == {50, 1_000, 2_000}


def test_pdgd_has_the_same_batches():
    """PDGD is updated as often and after as many interactions as FOLtR-ES, whose metric is sent as it is."""
    for one in BY_NAME["thesis-3.3"].grid("full", profile()):
        assert one.config.clients * one.config.interactions == 8_000
        if one.config.method == "foltr-es":
            assert one.config.parameters["truth_probability"] == 1.0
        else:
            assert one.config.method == "pdgd-batch"


def test_figures_share_their_runs():
    """Figure 3.4 shows other numbers of the runs of 3.1, and 3.5 of those of 3.3."""
    for one, other in (("thesis-3.1", "thesis-3.4"), ("thesis-3.3", "thesis-3.5")):
        first, second = (BY_NAME[name].grid("quick", profile()) for name in (one, other))
        assert [variant.config for variant in first] == [variant.config for variant in second]


@pytest.mark.parametrize(("late", "status"), [(0.52, Status.CONFIRMED), (0.7, Status.NOT_CONFIRMED)])
def test_narrowing_gap(late, status):
    """PDGD leads by 0.2 early; the gap narrows if it leads by less in the end."""
    claim = next(claim for claim in BY_NAME["thesis-3.3"].claims if "narrows" in claim.text)
    runs = [
        outcome({"method": method, "ranker": "linear", "clicks": "perfect"}, 1, final, first)
        for method, first, final in (("PDGD", 0.4, late), ("FOLtR-ES", 0.2, 0.4))
    ]
    assert claim.check(Results(tuple(runs), profile())).status is status


def test_privacy_claim_both_ways():
    """MaxRR that rises with p confirms the claim; MaxRR that falls denies it."""
    claim = next(claim for claim in BY_NAME["thesis-3.1"].claims if "The less privacy" in claim.text)
    for levels, status in (((0.4, 0.5, 0.6), Status.CONFIRMED), ((0.6, 0.5, 0.4), Status.NOT_CONFIRMED)):
        runs = [
            outcome({"ranker": "linear", "p": p, "clicks": "perfect"}, seed, level + 0.001 * seed)
            for p, level in zip(TRUTH_PROBABILITIES, levels, strict=True)
            for seed in (1, 2, 3)
        ]
        assert claim.check(Results(tuple(runs), profile())).status is status
