"""What those who have read the adaptive rule do to it, and how much of the honest ranker is to be left."""

import pytest
from made_results import profile, results

from foltr.reproductions.claims import Status
from foltr.reproductions.harness import plan
from foltr.reproductions.outcomes import Results
from foltr.reproductions.registry import EXPERIMENTS
from foltr.reproductions.robustness.attacks_by_rule import ATTACKS, AWARE
from foltr.reproductions.robustness.aware_attackers import CLICKS, RULES

EXPERIMENT = EXPERIMENTS["robustness-aware"]


@pytest.fixture(scope="module")
def planned():
    return plan(EXPERIMENT, "quick", profile(), 1)


def test_every_rule_meets_every_attack_and_an_honest_federation(planned):
    """With noisy clicks, and 20 to 40 % attackers; none of these attacks is among those of the other experiments."""
    assert len(planned) == len(CLICKS) * len(RULES) * (1 + 3 * len(AWARE))
    assert {(one.labels["share"], one.config.attackers) for one in planned} == {
        *(("0 %", 0), ("20 %", 2), ("30 %", 3), ("40 %", 4))
    }
    assert not AWARE.keys() & ATTACKS.keys()


def test_attacks_have_their_defaults(planned):
    """Launderers know their own updates; framers cannot but see the others'."""
    found = {(one.labels["attack"], one.config.attack) for one in planned}
    assert found == {("nobody", None), ("launder", "launder"), ("framing (full)", "framing")}
    assert all(one.config.attack_parameters == {} for one in planned)
    assert {one.config.byzantine for one in planned if one.labels["rule"] == "adaptive"} == {0.2}


@pytest.mark.parametrize(
    ("at_20", "at_40", "status", "least"),
    [
        ((0.48, 0.48), (0.43, 0.43), Status.CONFIRMED, "at 2 of 2 places; the least is 86.0 % (launder, 40 %, made)"),
        ((0.48, 0.48), (0.42, 0.42), Status.NOT_CONFIRMED, "at 1 of 2 places; the least is 84.0 %"),
        ((0.47, 0.47), (0.5, 0.5), Status.NOT_CONFIRMED, "at 1 of 2 places; the least is 94.0 % (launder, 20 %"),
    ],
)
def test_what_is_to_be_kept_depends_on_the_share(at_20, at_40, status, least):
    """95 % with 20 % of attackers, 85 % with 40 %; the honest ranker has 0.5 here, and 30 % are not judged."""
    found = results(
        {
            labels("nobody", "0 %", "mean"): (0.5, 0.5),
            labels("launder", "20 %", "adaptive"): at_20,
            labels("launder", "30 %", "adaptive"): (0.1, 0.1),
            labels("launder", "40 %", "adaptive"): at_40,
        }
    )
    verdict = EXPERIMENT.claims[0].check(found)
    assert verdict.status is status
    assert verdict.found.startswith(least)


def test_claims_without_runs_are_not_testable():
    """A verdict never comes from nothing."""
    for claim in EXPERIMENT.claims:
        assert claim.check(Results((), profile())).status is Status.NOT_TESTABLE


def labels(attack, share, rule):
    return (("attack", attack), ("share", share), ("clicks", "made"), ("rule", rule))
