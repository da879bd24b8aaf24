"""How often devices accept, what their test costs, and what is asked of it; the numbers of runs are made up."""

from dataclasses import replace

import pytest
from made_results import outcome, profile

from foltr_research.reproductions.claims import Status
from foltr_research.reproductions.harness import plan
from foltr_research.reproductions.outcomes import Results
from foltr_research.reproductions.registry import EXPERIMENTS
from foltr_research.reproductions.robustness.acceptance_measures import ALONE, LENIENT, TEST, acceptances

EXPERIMENT = EXPERIMENTS["robustness-acceptance"]
NO_COST, MORE_KEPT, NOT_ALONE, ADAPTIVE_MORE = (claim.check for claim in EXPERIMENT.claims)


def made(rule, value, *, attack="launder", seed=1, accepted=(0.0,)):
    share = "0 %" if attack == "nobody" else "40 %"
    one = outcome({"attack": attack, "share": share, "rule": rule, "clicks": "made"}, seed, value)
    if rule not in {TEST, LENIENT}:
        return one
    config = one.config.changed(acceptance_level=0.05)
    return replace(one, config=config, result={**one.result, "accepted_per_round": list(accepted)})


def runs(*outcomes):
    return Results((made("mean", 0.5, attack="nobody"), *outcomes), profile())


def test_every_place_has_the_mean_the_test_and_adaptive():
    """Votes and what is better on average are left out of a fifth of attackers; who learns alone meets no attack."""
    planned = plan(EXPERIMENT, "quick", profile(5), 1)
    places = {}
    for one in planned:
        places.setdefault((one.labels["attack"], one.labels["share"]), {})[one.labels["rule"]] = one.config
    assert len(places) == 13
    for (attack, share), rules in places.items():
        assert {"mean", TEST, "adaptive"} <= rules.keys()
        assert (LENIENT in rules) == ("adaptive, votes" in rules) == (share != "20 %")
        assert (ALONE in rules) == (attack == "nobody")
        assert rules[TEST].changed(acceptance_level=None) == rules["mean"]
        assert rules.get("adaptive, votes", rules["adaptive"]).changed(take_back=False) == rules["adaptive"]
        assert {config.attackers for config in rules.values()} == {int(share[0]) if share != "0 %" else 0}


def test_acceptances_are_told_by_quarters():
    """The mean over seeds of the mean over rounds."""
    rounds = (0.0, 0.0, 0.5, 0.5, 0.0, 0.0, 1.0, 1.0)
    text = acceptances(runs(made(TEST, 0.4, accepted=rounds), made(TEST, 0.4, accepted=[0.0] * 8, seed=2)))
    assert text.splitlines()[-1] == f"| launder | 40 % | made | {TEST} | 18.8 | 0.0 | 25.0 | 0.0 | 50.0 |"
    assert acceptances(runs()) == "No run has a test.\n"


@pytest.mark.parametrize(("value", "status"), [(0.499, Status.CONFIRMED), (0.49, Status.NOT_CONFIRMED)])
def test_the_test_may_cost_half_a_per_cent(value, status):
    """Where nobody attacks."""
    assert NO_COST(runs(made(TEST, value, attack="nobody"))).status is status


def test_where_the_mean_is_ruined_the_test_is_to_keep_more():
    """Places where it is not are not judged."""
    for kept, status in ((0.3, Status.CONFIRMED), (0.1, Status.NOT_CONFIRMED)):
        fine = [made("mean", 0.49, attack="lie"), made(TEST, 0.48, attack="lie")]
        verdict = MORE_KEPT(runs(made("mean", 0.2), made(TEST, kept), *fine))
        assert verdict.status is status
        assert f"launder, 40 %, made: 40.0 % without, {200 * kept:.1f} % with" in verdict.found
    assert MORE_KEPT(runs(*fine)).status is Status.NOT_TESTABLE


@pytest.mark.parametrize(("value", "status"), [(0.45, Status.CONFIRMED), (0.43, Status.NOT_CONFIRMED)])
def test_the_test_is_to_be_worth_more_than_learning_alone(value, status):
    """Under each attack, and less than adaptive."""
    others = (made(ALONE, 0.44, attack="nobody"), made("adaptive", 0.46))
    assert NOT_ALONE(runs(*others, made(TEST, value))).status is status
    assert ADAPTIVE_MORE(runs(*others, made(TEST, value))).status is Status.CONFIRMED
    assert ADAPTIVE_MORE(runs(*others, made(TEST, 0.47))).status is Status.NOT_CONFIRMED


def test_claims_without_runs_are_not_testable():
    """A verdict never comes from nothing."""
    for claim in EXPERIMENT.claims:
        assert claim.check(Results((), profile())).status is Status.NOT_TESTABLE
