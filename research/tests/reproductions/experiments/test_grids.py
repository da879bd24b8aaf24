"""What experiments run: the papers' settings at full scale, and grids in which what is compared differs once."""

from dataclasses import replace

import pytest
from made_results import outcome, profile

from foltr_research.reproductions.experiments.fedips import BIASES
from foltr_research.reproductions.experiments.foltr_es import TRUTH_PROBABILITIES
from foltr_research.reproductions.experiments.fpdgd import NO_EPSILON, PRIVACY, SHARED_EPSILONS
from foltr_research.reproductions.experiments.secure_sums import SIZES
from foltr_research.reproductions.experiments.secure_sums_hostile import (
    ATTACKS,
    COHORTS,
    PAST_THE_BOUND,
    PROVED,
    UNSEEN,
)
from foltr_research.reproductions.harness import plan
from foltr_research.reproductions.outcomes import Results
from foltr_research.reproductions.registry import EXPERIMENTS
from foltr_research.simulation.config import resolve
from foltr_research.simulation.privacy_reports import epsilon_bound
from foltr_research.simulation.secure_sums import secure_sums_of

YAHOO = replace(profile(5), n_train_queries=14_377)
# By experiment: the data, and clients, interactions and rounds.
PAPERS = {
    "fedips-1": (YAHOO, {(2_000, 5, 500)}),
    "thesis-3.1": (profile(), {(2_000, 4, 250)}),
    "thesis-table-3.1": (profile(5), {(1_000, 2, 200)}),
    "thesis-4.3": (profile(2, intents=True), {(4, 5, 10_000)}),
    "thesis-4.4": (profile(2, intents=True), {(4, 5, 10_000)}),
    "thesis-4.5": (profile(), {(5, interactions, 10_000) for interactions in (2, 5, 10)}),
    "thesis-4.6": (profile(), {(10, 5, 10_000)}),
    "thesis-5.2": (profile(), {(10, 5, 10_000)}),
    "thesis-5.3": (profile(), {(10, 5, 10_000)}),
    "thesis-5.4": (profile(), {(10, 5, 10_000)}),
    "robustness": (profile(), {(10, 5, 10_000)}),
}


def planned(name, scale="full", data=None):
    one = EXPERIMENTS[name]
    data = data or profile(2 if one.needs_intents else 5, intents=one.needs_intents)
    return plan(one, scale, data, 1)


def configs(name, *args):
    return [run.config for run in planned(name, *args)]


@pytest.mark.parametrize("name", PAPERS)
def test_full_scale_is_the_papers(name):
    """As many clients, interactions and rounds; a federation of FPDGD on MQ2007 has four million interactions."""
    data, expected = PAPERS[name]
    found = configs(name, "full", data)
    if name == "fedips-1":
        found = [config for config in found if config.method == "fedips"]
        assert len(found) == len(BIASES)
        told = {(one.clicks_per_round, one.parameters["serp_length"], one.logging_fraction) for one in found}
        assert told == {(10, 5, 0.01)}
    assert {(one.clients, one.interactions, one.rounds) for one in found} == expected
    if name == "thesis-table-3.1":
        letor = {(one.clients, one.interactions, one.rounds) for one in configs(name, "full", profile(3))}
        assert letor == {(1_000, 4, 1_000)}
        assert EXPERIMENTS[name].seeds["full"] == 25
    if name.startswith(("thesis-5", "robustness")):
        assert {(one.method, one.ranker) for one in found} == {("fpdgd", "linear")}


def test_foltr_es_and_pdgd_have_the_same_budgets():
    """By truth probability; fewer clients make more updates; PDGD is updated as often, after as many interactions."""
    runs = planned("thesis-3.1")
    assert {(run.config.method, run.config.hidden) for run in runs} == {("foltr-es", 10)}
    assert {run.labels["p"] for run in runs} == set(TRUTH_PROBABILITIES)
    assert all(str(run.config.parameters["truth_probability"]) == run.labels["p"] for run in runs)
    for scale in ("quick", "full"):
        assert len({one.clients * one.interactions * one.rounds for one in configs("thesis-3.2", scale)}) == 1
    assert {one.clients for one in configs("thesis-3.2")} == {50, 1_000, 2_000}
    for one in configs("thesis-3.3"):
        assert one.clients * one.interactions == 8_000
        assert one.method == "pdgd-batch" or one.parameters["truth_probability"] == 1.0


def test_figures_share_their_runs():
    """One table or figure shows other numbers of the runs of another."""
    for one, other in (
        ("thesis-3.1", "thesis-3.4"),
        ("thesis-3.3", "thesis-3.5"),
        ("thesis-table-4.2", "thesis-4.3"),
        ("thesis-table-4.3", "thesis-4.5"),
    ):
        assert configs(one, "quick") == configs(other, "quick"), one


def test_fpdgd_is_compared_as_in_its_paper():
    """Privacy parameters in pairs, PDGD with the same interactions and with the same updates, fixed budgets."""
    found = {}
    for run in planned("thesis-3.7"):
        found.setdefault(run.labels["method"], {})[run.labels["ε"]] = run.config.parameters
    ours = {epsilon: one["sensitivity"] for epsilon, one in found["FPDGD"].items()}
    assert ours == {epsilon: sensitivity for epsilon, sensitivity, _ in PRIVACY}
    assert all(float(epsilon) == one["epsilon"] for epsilon, one in found["FPDGD"].items())
    truth = {epsilon: str(one["truth_probability"]) for epsilon, one in found["FOLtR-ES"].items()}
    assert truth == {NO_EPSILON if p == "1.0" else epsilon: p for epsilon, _, p in PRIVACY}
    for epsilon in SHARED_EPSILONS:
        assert epsilon_bound(float(truth[epsilon]), 11) == pytest.approx(float(epsilon), abs=0.005)
    for name in ("thesis-3.6", "thesis-table-3.1"):
        (section,) = EXPERIMENTS[name].sections
        last = section.text(Results((outcome({}, 1, 0.5),), profile())).splitlines()[-1]
        assert last.startswith("| 10 | ")
        assert last.endswith(" | p = 1 | none | none |")
    pdgd = {run.labels["method"]: run.config for run in planned("thesis-3.6", "full", profile(3))}
    pdgd = {name: one.clients * one.interactions for name, one in pdgd.items() if one.method == "pdgd"}
    assert pdgd == {"PDGD, same interactions": 4_000, "PDGD, same updates": 1}
    for scale in ("quick", "full"):
        assert len({one.interactions * one.rounds for one in configs("thesis-3.10", scale)}) == 1
        assert len({one.rounds for one in configs("thesis-3.9", scale)}) == 1


def test_intents_have_rankers_and_words_of_their_own():
    """FedPer has a layer to share; #R = 1 has as many clients as grades; outputs say that features are synthetic."""
    assert {one.ranker for one in configs("thesis-4.4") if one.method == "fedper"} == {"neural"}
    assert sorted({one.clients for one in configs("thesis-4.8")}) == [3, 5]
    for one in EXPERIMENTS.values():
        if one.needs_intents:
            assert any("synthetic" in difference for difference in one.differences), one.name
            assert all("synthetic" in figure.title for figure in one.figures), one.name


def test_every_client_of_secure_sums_takes_part_twenty_times():
    """In one of ten rounds, so that a round has n of the federation's 10 n; epsilon is for all twenty."""
    secure = [run for run in planned("privacy", "quick") if run.config.privacy == "secure"]
    assert len(secure) == len(SIZES) * 7
    for run in secure:
        sums = secure_sums_of(run.config, *resolve(run.config, 8))
        assert (sums.period, run.config.rounds // sums.period, run.config.participations) == (10, 20, 20)
        assert run.config.clients == 10 * int(run.labels["n"])


def test_hostile_devices_of_secure_sums():
    """Ten of ten thousand for one of a thousand; cohorts without proofs; attacks with them as long as the clip norm."""
    runs = planned("privacy-hostile", "quick")
    unseen, proved = ([run for run in runs if run.labels["proofs"] == proofs] for proofs in ("none", "l2"))
    assert (len(unseen), len(proved)) == (2 * len(UNSEEN), (2 * len(PROVED) + 1) * len(ATTACKS) + 2)
    for run in runs:
        assert (run.config.clients, run.config.attackers) == (10_000, 10 * int(run.labels["hostile"]))
        assert (run.config.attack is None) == (run.labels["hostile"] == "0")
        assert run.config.norm_proof == run.labels["proofs"]
    assert {(run.config.cohorts, run.config.aggregation) for run in unseen} == {(1, "mean"), (COHORTS, "median")}
    assert {(run.config.cohorts, run.config.aggregation) for run in proved} == {(None, "mean")}
    assert {run.config.attack for run in proved if run.labels["attack"] == PAST_THE_BOUND} <= {"inner-product", None}
    bounded = [run.config for run in proved if run.config.attack == "bounded"]
    lengths = {one.attack_parameters["length"] / secure_sums_of(one, *resolve(one, 8)).clip_norm for one in bounded}
    assert lengths == {1.0}
