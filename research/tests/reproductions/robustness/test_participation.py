"""What is told to whom where six of twenty take part in a round."""

from made_results import profile

from foltr_research.reproductions.experiment import CLICKS
from foltr_research.reproductions.harness import plan
from foltr_research.reproductions.registry import EXPERIMENTS
from foltr_research.reproductions.robustness.participation import ATTACKS, RULES


def test_every_rule_meets_every_attack_and_an_honest_federation():
    """With all click models; eight of twenty attack."""
    planned = plan(EXPERIMENTS["robustness-participation"], "quick", profile(), 1)
    assert len(planned) == len(CLICKS) * len(RULES) * (len(ATTACKS) + 1)
    assert {(one.config.clients, one.config.participants) for one in planned} == {(20, 6)}
    assert {one.config.attackers for one in planned if one.labels["attack"] != "nobody"} == {8}
    assert {one.config.attackers for one in planned if one.labels["attack"] == "nobody"} == {0}


def test_fixed_rules_are_told_what_they_withstand():
    """Two of six; nothing is waived for anybody, and adaptive has its defaults."""
    planned = plan(EXPERIMENTS["robustness-participation"], "quick", profile(), 1)
    assert {one.config.byzantine for one in planned if one.labels["rule"] not in {"mean", "adaptive"}} == {2.0}
    assert {one.config.byzantine for one in planned if one.labels["rule"] == "adaptive"} == {0.2}
    assert all(one.config.aggregation_parameters == {} for one in planned)
