"""The runs with hostile devices are those that the report describes, and its tables are made of what runs say."""

from dataclasses import replace

import pytest
from made_results import outcome, profile

from foltr_research.reproductions.claims import Status
from foltr_research.reproductions.experiments.secure_sums_hostile import (
    ATTACKS,
    COHORTS,
    EXPERIMENTS,
    PAST_THE_BOUND,
    PROVED,
    UNSEEN,
)
from foltr_research.reproductions.outcomes import Results
from foltr_research.simulation.config import resolve
from foltr_research.simulation.secure_sums import secure_sums_of

(HOSTILE,) = EXPERIMENTS
CLAIMS = {claim.text: claim for claim in HOSTILE.claims}
DISCARDED, BEST, LEFT_OUT = HOSTILE.sections


def planned(proofs):
    return [one for one in HOSTILE.grid("quick", profile()) if one.labels["proofs"] == proofs]


def test_one_hostile_of_a_thousand_is_ten_of_ten_thousand():
    """So a round has as many as the label says, on average; none attack where it says none."""
    unseen, proved = planned("none"), planned("l2")
    assert len(unseen) == 2 * len(UNSEEN)
    assert len(proved) == (2 * len(PROVED) + 1) * len(ATTACKS) + 2
    for one in (*unseen, *proved):
        assert one.config.attackers == 10 * int(one.labels["hostile"])
        assert one.config.clients == 10_000
        assert (one.config.attack is None) == (one.labels["hostile"] == "0")
        assert one.config.norm_proof == one.labels["proofs"]


def test_cohorts_are_there_where_nobody_sees_norms():
    """With proofs there is one sum, and its mean."""
    assert {(one.config.cohorts, one.config.aggregation) for one in planned("none")} == {
        (1, "mean"),
        (COHORTS, "median"),
    }
    assert {(one.config.cohorts, one.config.aggregation) for one in planned("l2")} == {(None, "mean")}


def test_attacks_with_proofs_are_as_long_as_the_clip_norm():
    """So that they pass, but for the one that is to show that longer ones do not."""
    lengths = set()
    for one in planned("l2"):
        training, ranker = resolve(one.config, 8)
        if one.config.attack == "bounded":
            lengths.add(one.config.attack_parameters["length"] / secure_sums_of(one.config, training, ranker).clip_norm)
        elif one.labels["attack"] == PAST_THE_BOUND:
            assert one.config.attack == "inner-product"
    assert lengths == {1.0}


@pytest.mark.parametrize(("attacked", "status"), [(0.3, Status.CONFIRMED), (0.6, Status.NOT_CONFIRMED)])
def test_a_ruined_ranker_has_lost_a_quarter(attacked, status):
    """Of what it has with nobody attacking, in the same seeds."""
    runs = [
        outcome({"cohorts": "1", "hostile": hostile, "clicks": "informational"}, seed, value)
        for hostile, value in (("0", 0.7), ("1", attacked))
        for seed in (1, 2)
    ]
    claim = CLAIMS["Without proofs one hostile device of 1,000 ruins a ranker that is made of one sum"]
    assert claim.check(Results(tuple(runs), profile())).status is status


def proved(attack, hostile, value, lost=0, failed=0, noise="gaussian"):
    """Two runs with norm proofs."""
    labels = {"proofs": "l2", "noise": noise, "attack": attack, "hostile": str(hostile), "clicks": "informational"}
    robustness = {"abandoned_rounds": lost, "norm_proofs": {"checked": 1000, "failed": failed}}
    return [with_robustness(outcome(labels, seed, value), robustness) for seed in (1, 2)]


def with_robustness(one, robustness):
    return replace(one, result={**one.result, "robustness": robustness})


def within_the_bound(values, hostile=100):
    """The runs of all attacks, each beside the one that nobody attacks, which ended at 0.7."""
    runs = [one for attack in ATTACKS for one in proved(attack, 0, 0.7)]
    return runs + [one for attack, value in zip(ATTACKS, values, strict=True) for one in proved(attack, hostile, value)]


@pytest.mark.parametrize(
    ("values", "status"),
    [((0.69, 0.7, 0.69, 0.7), Status.CONFIRMED), ((0.69, 0.7, 0.67, 0.7), Status.NOT_CONFIRMED)],
)
def test_to_change_nothing_is_to_change_nothing_under_any_attack(values, status):
    """The worst decides."""
    claim = CLAIMS["With proofs and gaussian noise 100 hostile devices of 1,000 change nothing"]
    assert claim.check(Results(tuple(within_the_bound(values)), profile())).status is status


def test_claims_without_runs_are_not_testable():
    """A verdict never comes from nothing."""
    assert {claim.check(Results((), profile())).status for claim in HOSTILE.claims} == {Status.NOT_TESTABLE}


def test_the_best_attack_is_the_one_that_costs_most():
    """A line for each number of hostile devices."""
    runs = Results(tuple(within_the_bound((0.65, 0.7, 0.61, 0.7))), profile())
    assert BEST.text(runs).splitlines()[2:] == ["| gaussian | 100 | features | 0.610 | 0.090 | 0.0 |"]


def test_what_was_left_out_is_counted():
    """Beside what a federation without hostile devices ends at."""
    runs = Results((*proved("zeros", 0, 0.7), *proved(PAST_THE_BOUND, 100, 0.69, failed=100)), profile())
    assert LEFT_OUT.text(runs).splitlines()[2:] == ["| gaussian | 100 | 1,000 | 100 | 0.690 | 0.700 |"]


def test_rounds_without_a_model_are_counted():
    """The mean over seeds."""
    labels = {"proofs": "none", "rule": "median", "cohorts": "20", "hostile": "1"}
    runs = [with_robustness(outcome(labels, seed, 0.5), {"abandoned_rounds": lost}) for seed, lost in ((1, 2), (2, 5))]
    lines = DISCARDED.text(Results(tuple(runs), profile())).splitlines()
    assert lines[2:] == ["| median | 20 | 1 | 3.5 |"]
