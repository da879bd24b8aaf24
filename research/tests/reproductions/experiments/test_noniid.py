"""The experiments of chapter 4: whose data they use, and verdicts that go both ways."""

import pytest
from made_results import profile, results

from foltr_research.reproductions.claims import Status
from foltr_research.reproductions.experiment import CLICKS
from foltr_research.reproductions.experiments.noniid import CONTROL, IID, NON_IID, PENALTIES, no_better
from foltr_research.reproductions.harness import plan
from foltr_research.reproductions.registry import EXPERIMENTS


def named(name, claim):
    return next(one for one in EXPERIMENTS[name].claims if claim in one.text)


def configs(name, scale="full", data=None):
    one = EXPERIMENTS[name]
    return [
        run.config
        for run in plan(one, scale, data or profile(2 if one.needs_intents else 5, intents=one.needs_intents), 1)
    ]


def arrangements(merged, control, by_intent):
    return results(
        {
            (("ranker", "linear"), *which.items(), ("clicks", clicks)): [value, value + 0.01]
            for which, value in ((IID, merged), (CONTROL, control), (NON_IID, by_intent))
            for clicks in CLICKS
        }
    )


def test_full_scale_is_the_papers():
    """Four clients for four intents, as many as grades for #R = 1, one for each pair for #R = 2; 10,000 rounds."""
    for name, clients in (("thesis-4.3", 4), ("thesis-4.4", 4), ("thesis-4.5", 5), ("thesis-4.6", 10)):
        found = configs(name)
        assert {config.clients for config in found} == {clients}
        assert {config.rounds for config in found} == {10_000}
    assert sorted({config.clients for config in configs("thesis-4.8")}) == [3, 5]


def test_the_table_and_the_figure_share_their_runs():
    """Table 4.2 and Figure 4.3 are two views of the same runs, as are Table 4.3 and Figure 4.5."""
    assert configs("thesis-table-4.2") == configs("thesis-4.3")
    assert configs("thesis-table-4.3") == configs("thesis-4.5")


def test_fedper_has_a_neural_ranker_only():
    """A linear ranker has no layers to share."""
    rankers = {config.ranker for config in configs("thesis-4.4") if config.method == "fedper"}
    assert rankers == {"neural"}


@pytest.mark.parametrize(
    ("control", "status"), [(0.85, Status.CONFIRMED), (0.60, Status.NOT_CONFIRMED)], ids=["training", "measure"]
)
def test_what_of_the_gap_is_training(control, status):
    """The gap counts as one of training only where most of it stays when both are tested alike."""
    check = named("thesis-4.3", "one of training").check
    assert check(arrangements(0.9, control, 0.5)).status is status


@pytest.mark.parametrize(("gain", "status"), [(0.01, Status.CONFIRMED), (0.05, Status.NOT_CONFIRMED)])
def test_the_best_penalty_decides(gain, status):
    """One mu that helps is enough against the claim that FedProx does not."""
    made = {(("ranker", "linear"), ("method", "FPDGD"), ("clicks", "perfect")): [0.5, 0.5]}
    for mu in PENALTIES:
        value = 0.5 + (gain if mu == "0.1" else -0.1)
        labels = (("ranker", "linear"), ("method", "FedProx"), ("mu", mu), ("clicks", "perfect"))
        made[labels] = [value, value]
    assert no_better(results(made), "FedProx").status is status


def test_every_output_of_intents_says_that_features_are_synthetic():
    """Judgements are genuine, features are not: figures and reports say so."""
    for one in EXPERIMENTS.values():
        if one.needs_intents:
            assert any("synthetic" in difference for difference in one.differences), one.name
            assert all("synthetic" in figure.title for figure in one.figures), one.name
