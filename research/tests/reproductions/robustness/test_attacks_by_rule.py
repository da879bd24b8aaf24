"""Which attack meets which rule in the setting of the thesis, and what each is told."""

import pytest
from made_results import profile

from foltr_research.reproductions.claims import Status
from foltr_research.reproductions.experiment import CLICKS
from foltr_research.reproductions.harness import plan
from foltr_research.reproductions.outcomes import Results
from foltr_research.reproductions.registry import EXPERIMENTS
from foltr_research.reproductions.robustness.attacks_by_rule import ATTACKS, RULES, federation
from foltr_research.simulation.sweeps.sweep import config_digest


@pytest.fixture(scope="module")
def planned():
    return plan(EXPERIMENTS["robustness"], "quick", profile(), 1)


def chosen(planned, **labels):
    return [one.config for one in planned if labels.items() <= one.labels.items()]


def test_full_scale_is_the_thesis_setting():
    """Ten clients, B = 5, 10,000 rounds of FPDGD with a linear ranker."""
    for name in ("thesis-5.2", "thesis-5.3", "thesis-5.4", "robustness"):
        found = {
            (one.config.method, one.config.ranker, one.config.clients, one.config.interactions, one.config.rounds)
            for one in plan(EXPERIMENTS[name], "full", profile(), 1)
        }
        assert found == {("fpdgd", "linear", 10, 5, 10_000)}


def test_every_attack_meets_every_rule_at_20_and_40_per_cent(planned):
    """With all click models; Bulyan cannot tolerate two of ten and is not there."""
    for share, attackers in (("20 %", 2), ("40 %", 4)):
        met = {(one.labels["attack"], one.labels["rule"]) for one in planned if one.labels["share"] == share}
        assert met == {(attack, rule) for attack in ATTACKS for rule in RULES if rule != "bulyan"}
        assert {config.attackers for config in chosen(planned, share=share)} == {attackers}
        assert len(chosen(planned, share=share)) == len(met) * len(CLICKS)


def test_other_shares_have_click_poisoning_alone(planned):
    """10 and 30 %; one attacker of ten is as many as Bulyan tolerates."""
    assert {one.labels["attack"] for one in planned if one.labels["share"] in {"10 %", "30 %"}} == {"clicks"}
    assert {one.labels["share"] for one in planned if one.labels["rule"] == "bulyan"} == {"0 %", "10 %"}


def test_fixed_rules_are_told_the_number_of_attackers_and_adaptive_is_not(planned):
    """Without any, two; Bulyan one."""
    assert {one.byzantine for one in chosen(planned, rule="krum", share="40 %")} == {4.0}
    assert {one.byzantine for one in chosen(planned, rule="krum", attack="nobody")} == {2.0}
    assert {one.byzantine for one in chosen(planned, rule="bulyan", attack="nobody")} == {1.0}
    assert {one.byzantine for one in chosen(planned, rule="adaptive")} == {0.2}
    assert all(one.aggregation_parameters == {} for one in chosen(planned, rule="adaptive"))


def test_bounds_are_waived_only_where_a_rule_does_not_hold(planned):
    """Krum with four of ten as in the thesis, and buckets of which most may be hostile; nothing else."""
    waived = {(one.labels["rule"], one.labels["share"]) for one in planned if one.config.aggregation_parameters}
    assert waived == {
        ("krum", "40 %"),
        ("multi-krum", "40 %"),
        ("bucketing+geometric-median", "30 %"),
        ("bucketing+geometric-median", "40 %"),
    }


def test_knowledge_is_as_the_label_says():
    """Full, and noise, only where it is written."""
    for attack in ATTACKS:
        config = federation("quick", "mean", "perfect", attack, 2)
        assert (config.attack_parameters == {"knowledge": "full"}) == attack.endswith("(full)")
        assert (config.attack_parameters == {"jitter": 1.0}) == attack.endswith("noisy)")


def test_experiments_share_their_runs(planned):
    """The honest baseline and the attacks on the thesis' rules are run once for all."""
    own = {config_digest(one.config) for one in planned}
    figures = {config_digest(one.config) for one in plan(EXPERIMENTS["thesis-5.2"], "quick", profile(), 1)}
    assert figures <= own


@pytest.mark.parametrize("name", ["thesis-5.2", "thesis-5.3", "thesis-5.4", "robustness"])
def test_claims_without_runs_are_not_testable(name):
    """A verdict never comes from nothing."""
    for n_grades in (3, 5):
        for claim in EXPERIMENTS[name].claims:
            assert claim.check(Results((), profile(n_grades))).status is Status.NOT_TESTABLE, claim.text
