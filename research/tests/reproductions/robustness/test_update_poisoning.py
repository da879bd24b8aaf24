"""Claims on model poisoning and on the price of rules that can fail."""

import pytest
from made_results import profile, results

from foltr_research.reproductions.claims import Status
from foltr_research.reproductions.experiment import CLICKS
from foltr_research.reproductions.harness import plan
from foltr_research.reproductions.registry import EXPERIMENTS
from foltr_research.reproductions.robustness.attacks_by_rule import SHARES
from foltr_research.reproductions.robustness.update_poisoning import OF_KRUM

PARTIAL, FULL = OF_KRUM


def claim(name, text):
    return next(one for one in EXPERIMENTS[name].claims if text in one.text)


def under_krum(**attacks):
    """Finals by attack as functions of the number of attackers."""
    named = {"partial": PARTIAL, "full": FULL, "clicks": "clicks"}
    return results(
        {
            (("rule", "krum"), ("attackers", share), ("clicks", clicks), ("attack", named[attack])): [
                value(m),
                value(m) + 0.001,
            ]
            for attack, value in attacks.items()
            for share, m in SHARES.items()
            for clicks in CLICKS
        }
    )


@pytest.mark.parametrize(
    ("full", "leads", "closes"),
    [
        (lambda m: 0.3 if m < 3 else 0.39, Status.CONFIRMED, Status.CONFIRMED),
        (lambda m: 0.3 if m != 1 else 0.4, Status.NOT_CONFIRMED, Status.NOT_CONFIRMED),
    ],
)
def test_knowledge(full, leads, closes):
    """It helps with few attackers, and less with many."""
    found = under_krum(partial=lambda _: 0.4, full=full)
    assert claim("thesis-5.3", "Full knowledge").check(found).status is leads
    assert claim("thesis-5.3", "lead of full knowledge").check(found).status is closes


@pytest.mark.parametrize(("full", "status"), [(0.3, Status.CONFIRMED), (0.45, Status.NOT_CONFIRMED)])
def test_attack_made_for_krum(full, status):
    """More harm than data poisoning at every share and with every click model."""
    found = under_krum(clicks=lambda _: 0.4, full=lambda _: full)
    assert claim("thesis-5.3", "does more harm to Krum").check(found).status is status


@pytest.mark.parametrize(("krum", "status"), [(0.45, Status.CONFIRMED), (0.5, Status.NOT_CONFIRMED)])
def test_price(krum, status):
    """Krum below the mean with every click model."""
    found = results(
        {
            (("shown", "rules"), ("rule", rule), ("clicks", clicks)): [value, value + 0.001]
            for rule, value in (("mean", 0.5), ("krum", krum))
            for clicks in CLICKS
        }
    )
    assert claim("thesis-5.4", "Krum costs").check(found).status is status


def test_price_by_what_is_tolerated():
    """One to three for Krum, which ten clients allow; up to four for the trimmed mean; nobody attacks."""
    planned = plan(EXPERIMENTS["thesis-5.4"], "quick", profile(), 1)
    assert {one.config.attackers for one in planned} == {0}
    by_rule = {}
    for one in planned:
        if one.labels["shown"] == "by m":
            by_rule.setdefault(one.labels["rule"], set()).add(one.config.byzantine)
            assert not one.config.aggregation_parameters
    assert by_rule == {"krum": {1, 2, 3}, "multi-krum": {1, 2, 3}, "trimmed-mean": {1, 2, 3, 4}}
