"""Claims on data poisoning that can fail."""

import pytest
from made_results import results

from foltr_research.reproductions.claims import Status
from foltr_research.reproductions.experiment import CLICKS
from foltr_research.reproductions.registry import EXPERIMENTS
from foltr_research.reproductions.robustness.attacks_by_rule import SHARES
from foltr_research.reproductions.robustness.click_poisoning import EXTRA, HONEST, OF_THE_THESIS, losses


def claim(text):
    return next(one for one in EXPERIMENTS["thesis-5.2"].claims if text in one.text)


def made(n_grades=5, **by_rule):
    """Finals by rule, a function of the number of attackers and the click model; 0.4 for those not named."""
    rules = {
        HONEST: lambda _m, _clicks: 0.5,
        **dict.fromkeys(("mean", *OF_THE_THESIS, *EXTRA), lambda _m, _clicks: 0.4),
    }
    rules |= {name.replace("_", "-"): value for name, value in by_rule.items()}
    return results(
        {
            (("attackers", share), ("clicks", clicks), ("rule", rule)): [value(m, clicks), value(m, clicks) + 0.001]
            for share, m in SHARES.items()
            for clicks in CLICKS
            for rule, value in rules.items()
        },
        n_grades,
    )


def test_losses_are_shares_of_the_honest_ranker():
    """0.4 of 0.5 and 0.401 of 0.501, each seed by its own."""
    found = losses(made(), "20 %")
    assert found.keys() == set(CLICKS)
    assert found["perfect"].mean == pytest.approx((0.1 / 0.5 + 0.1 / 0.501) / 2)


@pytest.mark.parametrize(("most", "status"), [("informational", Status.CONFIRMED), ("perfect", Status.NOT_CONFIRMED)])
def test_the_most_affected_click_model(most, status):
    """By the share that is lost."""
    found = made(mean=lambda _m, clicks: 0.2 if clicks == most else 0.4)
    assert claim("most affected").check(found).status is status


def test_perfect_clicks_suffer_from_few_too():
    """Two attackers take more than five per cent."""
    found = made(mean=lambda m, _: 0.5 - 0.02 * m * m)
    assert claim("only a large number").check(found).status is Status.NOT_CONFIRMED


def test_perfect_clicks_suffer_from_many():
    """Nothing from up to 20 %, much from 40 %."""
    found = made(mean=lambda m, _: 0.5 if m < 3 else 0.3)
    assert claim("only a large number").check(found).status is Status.CONFIRMED


def test_more_attackers_more_harm():
    """A step up is a contradiction."""
    check = claim("The more attackers").check
    assert check(made(mean=lambda m, _: 0.5 - 0.05 * m)).status is Status.CONFIRMED
    assert check(made(mean=lambda m, _: 0.2 if m == 2 else 0.5 - 0.05 * m)).status is Status.NOT_CONFIRMED


@pytest.mark.parametrize(("krum", "web", "letor"), [(0.45, True, False), (0.3, False, True)])
def test_selection_against_coordinates(krum, web, letor):
    """The thesis claims one thing of MSLR-WEB10K and the opposite of MQ2007; neither claim is for the other's data."""
    better, opposite = claim("Krum and Multi-Krum defend better"), claim("trimmed mean and median defend better")
    values = {"krum": lambda _m, _c: krum, "multi_krum": lambda _m, _c: krum}
    assert (better.check(made(5, **values)).status is Status.CONFIRMED) is web
    assert (opposite.check(made(3, **values)).status is Status.CONFIRMED) is letor
    assert better.check(made(3, **values)).status is opposite.check(made(5, **values)).status is Status.NOT_TESTABLE
