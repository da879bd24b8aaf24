"""What those who have read the adaptive rule do to it, and how much of the honest ranker is to be left."""

from collections import Counter

import pytest
from made_results import profile, results

from foltr_research.reproductions.claims import Status
from foltr_research.reproductions.harness import plan
from foltr_research.reproductions.outcomes import Results
from foltr_research.reproductions.registry import EXPERIMENTS
from foltr_research.reproductions.robustness.attacks_by_rule import ATTACKS, SHARES
from foltr_research.reproductions.robustness.aware_attackers import CLICKS, UNAWARE
from foltr_research.reproductions.robustness.aware_attacks import AWARE, parameters_of

EXPERIMENT = EXPERIMENTS["robustness-aware"]


@pytest.fixture(scope="module")
def planned():
    return plan(EXPERIMENT, "quick", profile(), 1)


def test_adaptive_meets_every_attack_with_every_share(planned):
    """Beside a mean without a defence with the most attackers, and honest federations of both."""
    runs = Counter((one.labels["rule"], one.labels["share"]) for one in planned)
    each = len(CLICKS) * (len(AWARE) + len(UNAWARE))
    assert runs == {
        ("mean", "0 %"): len(CLICKS),
        ("adaptive", "0 %"): len(CLICKS),
        **{("adaptive", share): each for share in SHARES},
        ("mean", "40 %"): each,
    }
    assert not AWARE.keys() & ATTACKS.keys()
    assert set(UNAWARE) == ATTACKS.keys()


def test_attacks_are_set_as_was_found(planned):
    """The parameters are those of the search, and what makes each attack this one; the feature is one of the data."""
    for one in planned:
        name = one.labels["attack"]
        if name in AWARE:
            feature = {"feature": 1} if name == "demotion" else {}
            assert one.config.attack == AWARE[name].attack
            assert one.config.attack_parameters == {**parameters_of(name), **feature}
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
