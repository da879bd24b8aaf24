"""The runs on secure sums are those that the report describes, and its tables are made of what runs say."""

from dataclasses import replace

import pytest
from made_results import outcome, profile

from foltr.reproductions.claims import Status
from foltr.reproductions.experiments.secure_sums import COHORTS, EXPERIMENTS, HOSTILE, SIZES
from foltr.reproductions.outcomes import Results
from foltr.simulation.config import resolve
from foltr.simulation.secure_sums import secure_sums_of

(PRIVACY,) = EXPERIMENTS
CLAIMS = {claim.text: claim for claim in PRIVACY.claims}


def test_every_client_takes_part_twenty_times():
    """In one of ten rounds, so that a round has n of the federation's 10 n; epsilon is for all twenty."""
    grid = PRIVACY.grid("quick", profile())
    secure = [one for one in grid if one.config.privacy == "secure"]
    assert len(secure) == len(SIZES) * 7 + 2 * len(HOSTILE)
    for one in secure:
        training, ranker = resolve(one.config, 8)
        sums = secure_sums_of(one.config, training, ranker)
        assert (sums.period, one.config.rounds // sums.period, one.config.participations) == (10, 20, 20)
        if "n" in one.labels:
            assert one.config.clients == 10 * int(one.labels["n"])


def test_one_hostile_of_a_thousand_is_ten_of_ten_thousand():
    """So a round has as many as the label says, on average; none attack where it says none."""
    hostile = [one for one in PRIVACY.grid("quick", profile()) if "hostile" in one.labels]
    for one in hostile:
        assert one.config.attackers == 10 * int(one.labels["hostile"])
        assert one.config.clients == 10_000
        assert (one.config.attack is None) == (one.labels["hostile"] == "0")
        assert (one.config.cohorts, one.config.aggregation) in {(1, "mean"), (COHORTS, "median")}


@pytest.mark.parametrize(("attacked", "status"), [(0.3, Status.CONFIRMED), (0.6, Status.NOT_CONFIRMED)])
def test_a_ruined_ranker_has_lost_a_quarter(attacked, status):
    """Of what it has with nobody attacking, in the same seeds."""
    runs = [
        outcome({"cohorts": "1", "hostile": hostile, "clicks": "informational"}, seed, value)
        for hostile, value in (("0", 0.7), ("1", attacked))
        for seed in (1, 2)
    ]
    claim = CLAIMS["One hostile device of 1,000 ruins a ranker that is made of one sum"]
    assert claim.check(Results(tuple(runs), profile())).status is status


def test_claims_without_runs_are_not_testable():
    """A verdict never comes from nothing."""
    assert {claim.check(Results((), profile())).status for claim in PRIVACY.claims} == {Status.NOT_TESTABLE}


def with_result(one, **fields):
    return replace(one, result={**one.result, **fields})


def test_the_claimed_epsilon_is_beside_the_true_one():
    """A line for each epsilon that was run, of one round and of twenty."""
    figures = {"epsilon_per_round_add_remove": 27.12, "epsilon_per_round_replace": 54.26}
    run = with_result(outcome({"noise": "fpdgd-paper", "ε": "8", "n": "10"}, 1, 0.5), privacy=figures)
    (section,) = [one for one in PRIVACY.sections if one.file == "epsilon"]
    assert section.text(Results((run,), profile())).splitlines()[2:] == ["| 8 | 27.1 | 54.3 | 160 | 542 |"]


def test_rounds_without_a_model_are_counted():
    """The mean over seeds."""
    labels = {"rule": "median", "cohorts": "20", "hostile": "1"}
    runs = [
        with_result(outcome(labels, seed, 0.5), robustness={"abandoned_rounds": lost})
        for seed, lost in ((1, 2), (2, 5))
    ]
    (section,) = [one for one in PRIVACY.sections if one.file == "discarded"]
    assert section.text(Results(tuple(runs), profile())).splitlines()[2:] == ["| median | 20 | 1 | 3.5 |"]
