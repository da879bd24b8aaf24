"""What the experiments on robustness run: which attack meets which rule, with which settings of the rule."""

from collections import Counter

import pytest
from made_results import profile

from foltr_research.reproductions.experiment import CLICKS
from foltr_research.reproductions.harness import plan
from foltr_research.reproductions.registry import EXPERIMENTS
from foltr_research.reproductions.robustness import aware_attackers, participation
from foltr_research.reproductions.robustness.attacks_by_rule import ATTACKS, RULES, SHARES, federation
from foltr_research.reproductions.robustness.aware_attacks import AWARE, parameters_of
from foltr_research.reproductions.robustness.variants import ON_OTHER_DATA
from foltr_research.reproductions.robustness.vote_measures import VOTES
from foltr_research.simulation.sweeps.sweep import config_digest


def planned(name, n_grades=5):
    return plan(EXPERIMENTS[name], "quick", profile(n_grades), 1)


@pytest.fixture(scope="module")
def by_rule():
    return planned("robustness")


def chosen(runs, **labels):
    return [one.config for one in runs if labels.items() <= one.labels.items()]


def test_every_attack_meets_every_rule_at_20_and_40_per_cent(by_rule):
    """With all click models; other shares have click poisoning alone. Bulyan tolerates one of ten at the most."""
    for share, attackers in (("20 %", 2), ("40 %", 4)):
        met = {(one.labels["attack"], one.labels["rule"]) for one in by_rule if one.labels["share"] == share}
        assert met == {(attack, rule) for attack in ATTACKS for rule in RULES if rule != "bulyan"}
        assert {config.attackers for config in chosen(by_rule, share=share)} == {attackers}
        assert len(chosen(by_rule, share=share)) == len(met) * len(CLICKS)
    assert {one.labels["attack"] for one in by_rule if one.labels["share"] in {"10 %", "30 %"}} == {"clicks"}
    assert {one.labels["share"] for one in by_rule if one.labels["rule"] == "bulyan"} == {"0 %", "10 %"}


def test_fixed_rules_are_told_the_number_of_attackers_and_adaptive_is_not(by_rule):
    """Without any, two; Bulyan one. Bounds are waived only where a rule does not hold."""
    assert {one.byzantine for one in chosen(by_rule, rule="krum", share="40 %")} == {4.0}
    assert {one.byzantine for one in chosen(by_rule, rule="krum", attack="nobody")} == {2.0}
    assert {one.byzantine for one in chosen(by_rule, rule="bulyan", attack="nobody")} == {1.0}
    assert {one.byzantine for one in chosen(by_rule, rule="adaptive")} == {0.2}
    waived = {(one.labels["rule"], one.labels["share"]) for one in by_rule if one.config.aggregation_parameters}
    bucketing = "bucketing+geometric-median"
    assert waived == {("krum", "40 %"), ("multi-krum", "40 %"), (bucketing, "30 %"), (bucketing, "40 %")}


def test_knowledge_is_as_the_label_says_and_experiments_share_their_runs(by_rule):
    """Attackers have full knowledge only under that label; a run that several figures show is made once."""
    for attack in ATTACKS:
        config = federation("quick", "mean", "perfect", attack, 2)
        assert (config.attack_parameters == {"knowledge": "full"}) == attack.endswith("(full)")
        assert (config.attack_parameters == {"jitter": 1.0}) == attack.endswith("noisy)")
    own = {config_digest(one.config) for one in by_rule}
    assert {config_digest(one.config) for one in planned("thesis-5.2")} <= own


def test_chapter_5_with_a_neural_ranker_and_on_other_data():
    """The same runs except the ranker, which the setting names; on other data the same, if it has as many grades."""
    for name in ("thesis-5.2", "thesis-5.3", "thesis-5.4"):
        linear, neural = planned(name), planned(f"{name}-neural")
        assert [one.labels for one in linear] == [one.labels for one in neural]
        assert [one.config.changed(ranker="neural") for one in linear] == [one.config for one in neural]
        assert "64 hidden units" in EXPERIMENTS[f"{name}-neural"].setting
    for name, (other, data, n_grades) in ON_OTHER_DATA.items():
        one = EXPERIMENTS[name]
        assert (one.grid, one.claims, one.needs_grades) == (
            EXPERIMENTS[other].grid,
            EXPERIMENTS[other].claims,
            n_grades,
        )
        assert data in one.source


def test_adaptive_meets_every_attack_that_has_read_it_with_every_share():
    """Beside a mean with the most attackers, and honest federations of both; attacks are set as was found."""
    runs = planned("robustness-aware")
    n_clicks = len(aware_attackers.CLICKS)
    each = n_clicks * (len(AWARE) + len(aware_attackers.UNAWARE))
    assert Counter((one.labels["rule"], one.labels["share"]) for one in runs) == {
        ("mean", "0 %"): n_clicks,
        ("adaptive", "0 %"): n_clicks,
        **{("adaptive", share): each for share in SHARES},
        ("mean", "40 %"): each,
    }
    assert not AWARE.keys() & ATTACKS.keys()
    assert set(aware_attackers.UNAWARE) == ATTACKS.keys()
    for one in runs:
        name = one.labels["attack"]
        if name in AWARE:
            feature = {"feature": 1} if name == "demotion" else {}
            assert one.config.attack == AWARE[name].attack
            assert one.config.attack_parameters == {**parameters_of(name), **feature}
    assert {one.config.byzantine for one in runs if one.labels["rule"] == "adaptive"} == {0.2}


def test_the_price_of_rules_is_by_what_they_tolerate():
    """One to three for Krum, which ten clients allow; up to four for the trimmed mean; nobody attacks."""
    by_m, runs = {}, planned("thesis-5.4")
    assert {one.config.attackers for one in runs} == {0}
    for one in runs:
        if one.labels["shown"] == "by m":
            by_m.setdefault(one.labels["rule"], set()).add(one.config.byzantine)
            assert not one.config.aggregation_parameters
    assert by_m == {"krum": {1, 2, 3}, "multi-krum": {1, 2, 3}, "trimmed-mean": {1, 2, 3, 4}}


def test_where_six_of_twenty_take_part_every_rule_meets_every_attack():
    """An honest federation, too; eight of twenty attack, fixed rules expect two of six, adaptive has its defaults."""
    runs = planned("robustness-participation")
    assert len(runs) == len(CLICKS) * len(participation.RULES) * (len(participation.ATTACKS) + 1)
    told = {(one.labels["attack"] == "nobody", one.config.clients, one.config.participants) for one in runs}
    assert told == {(True, 20, 6), (False, 20, 6)}
    assert all(one.config.attackers == (0 if one.labels["attack"] == "nobody" else 8) for one in runs)
    assert {one.config.byzantine for one in runs if one.labels["rule"] not in {"mean", "adaptive"}} == {2.0}
    assert {one.config.byzantine for one in runs if one.labels["rule"] == "adaptive"} == {0.2}
    assert all(one.config.aggregation_parameters == {} for one in runs)


@pytest.mark.parametrize("n_grades", [3, 5])
def test_honest_clients_that_differ_are_run_with_and_without_the_rule(n_grades):
    """The same clients, all of them honest."""
    runs = [one.config for one in planned("robustness-differing", n_grades)]
    assert {one.population for one in runs} == {"iid", "type2", "type3", "type4"}
    assert {one.attackers for one in runs} == {0}
    assert all(one.changed(aggregation="mean") in runs for one in runs)


@pytest.mark.parametrize("n_grades", [3, 5])
@pytest.mark.parametrize("name", ["robustness-votes", "robustness-votes-secure"])
def test_every_setting_with_votes_has_one_without(name, n_grades):
    """The pair shows the effect of votes alone; attackers that lie only in votes have no counterpart."""
    runs = planned(name, n_grades)
    for one in runs:
        alone = one.labels["attack"].startswith("lie: ") or "nobody lies" in one.labels["attack"]
        if one.config.take_back and not alone:
            assert one.config.changed(take_back=False) in [other.config for other in runs]
        assert 2 * one.config.attackers < one.config.clients
    assert {one.config.privacy for one in runs} == {"secure" if "secure" in name else "trusted"}
    if name == "robustness-votes":
        assert {one.labels["rule"] for one in runs if one.config.take_back} == {VOTES, "adaptive, votes"}
        assert {one.config.attackers for one in runs} == {0, 2, 4}
        assert {one.config.population for one in runs} == {"iid", "type2", "type3"}
        assert {one.config.liars_vote for one in runs} == {"better", "worse", "honest"}
    else:
        of_size = {
            n: {(one.labels["attack"], one.labels["share"]) for one in runs if one.config.clients == n}
            for n in (200, 1000)
        }
        assert of_size[200] == of_size[1000]
        assert len(of_size[200]) == 6
