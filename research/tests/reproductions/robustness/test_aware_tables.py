"""The tables of who has read the rule: means, worst seeds, and who knows what."""

import pytest
from made_results import results

from foltr_research.reproductions.claims import Status
from foltr_research.reproductions.registry import EXPERIMENTS
from foltr_research.reproductions.robustness.aware_tables import by_sight, kept_in_the_worst_seed, settings, sight_of

EXPERIMENT = EXPERIMENTS["robustness-aware"]


def labels(attack, share, rule, clicks="navigational"):
    return (("attack", attack), ("share", share), ("clicks", clicks), ("rule", rule))


FOUND = results(
    {
        labels("nobody", "0 %", "mean"): (0.5, 0.5),
        labels("nobody", "0 %", "adaptive"): (0.5, 0.49),
        labels("clicks", "40 %", "adaptive"): (0.5, 0.45),
        labels("launder", "40 %", "adaptive"): (0.4, 0.3),
        labels("launder", "40 %", "mean"): (0.2, 0.1),
        labels("creep", "40 %", "adaptive"): (0.36, 0.36),
        labels("framing (full)", "40 %", "adaptive"): (0.5, 0.5),
    }
)


def test_the_worst_seed_stands_beside_the_mean():
    """0.4 and 0.3 of 0.5 are 70 and 60 %; a class's worst place and worst seed may be of two attacks."""
    text = kept_in_the_worst_seed(FOUND)
    assert "| launder | own data | - | - | - | 70.0 (60.0) | 30.0 (20.0) |" in text
    assert "| nobody |  | 99.0 (98.0) |" in text
    text = by_sight(FOUND)
    assert "| own data | 40 % | 71.0 | 70.0 | launder, navigational | 60.0 | launder, navigational |" in text, text
    assert "| unaware | 40 % | 95.0 | 95.0 | clicks, navigational | 90.0 |" in text
    assert "| sight | 40 % | 100.0 | 100.0 |" in text
    assert "| sight | 10 %" not in text
    assert [sight_of(name) for name in ("clicks", "launder", "framing (full)")] == ["unaware", "own data", "sight"]
    assert "| launder | `None` | defaults |" in settings(FOUND)


@pytest.mark.parametrize(
    ("at_20", "at_40", "status", "least"),
    [
        ((0.48, 0.48), (0.43, 0.43), Status.CONFIRMED, "at 2 of 2 places; the least is 86.0 ± 0.0 % (launder, 40 %"),
        ((0.48, 0.48), (0.42, 0.42), Status.NOT_CONFIRMED, "at 1 of 2 places; the least is 84.0 ± 0.0 %"),
        ((0.47, 0.47), (0.5, 0.5), Status.NOT_CONFIRMED, "at 1 of 2 places; the least is 94.0 ± 0.0 % (launder, 20 %"),
        ((0.48, 0.48), (0.4, 0.46), Status.NOT_CONFIRMED, "at 1 of 2 places; the least is 86.0 ± 6.0 %"),
    ],
)
def test_what_is_to_be_kept_depends_on_the_share(at_20, at_40, status, least):
    """95 % with 20 % attackers, 85 % with 40 %, beyond chance; the honest ranker has 0.5, and 30 % are not judged."""
    kept = {
        labels("launder", share, "adaptive"): values
        for share, values in (("20 %", at_20), ("30 %", (0.1, 0.1)), ("40 %", at_40))
    }
    verdict = EXPERIMENT.claims[0].check(results({labels("nobody", "0 %", "mean"): (0.5, 0.5), **kept}))
    assert verdict.status is status
    assert verdict.found.startswith(least)
