"""What is asked of votes in secure sums; the numbers of runs are made up."""

from made_results import profile

from foltr_research.reproductions.harness import plan
from foltr_research.reproductions.registry import EXPERIMENTS

EXPERIMENT = EXPERIMENTS["robustness-votes-secure"]


def test_every_attack_with_votes_has_one_without():
    """Under the same policy but for the votes; liars are fewer than half, and each size has all of them."""
    planned = plan(EXPERIMENT, "quick", profile(3), 1)
    for one in planned:
        assert one.config.privacy == "secure"
        assert 2 * one.config.attackers < one.config.clients
        alone = one.labels["attack"].startswith("lie: ") or "nobody lies" in one.labels["attack"]
        if one.config.take_back and not alone:
            assert one.config.changed(take_back=False) in [other.config for other in planned]
    kinds = [
        {(one.labels["attack"], one.labels["share"]) for one in planned if one.config.clients == n} for n in (200, 1000)
    ]
    assert kinds[0] == kinds[1]
    assert len(kinds[0]) == 6
