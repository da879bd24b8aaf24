"""The tables of who has read the rule: means, worst seeds, and who knows what."""

from made_results import results

from foltr_research.reproductions.robustness.aware_tables import by_sight, kept_in_the_worst_seed, settings, sight_of


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


def test_attacks_are_classed_by_what_is_known():
    """Whatever is not made for the rule does not know it."""
    assert [sight_of(name) for name in ("clicks", "launder", "framing (full)")] == ["unaware", "own data", "sight"]


def test_the_worst_seed_stands_beside_the_mean():
    """0.4 and 0.3 of 0.5 are 70 and 60 %; the mean of all is shown without a defence."""
    text = kept_in_the_worst_seed(FOUND)
    assert "| launder | own data | - | - | - | 70.0 (60.0) | 30.0 (20.0) |" in text
    assert "| nobody |  | 99.0 (98.0) |" in text


def test_each_class_has_its_worst_place_and_its_worst_seed():
    """They may be of two attacks: launder's mean is the lower one, and creep has no seed as low as launder's worst."""
    text = by_sight(FOUND)
    assert "| own data | 40 % | 71.0 | 70.0 | launder, navigational | 60.0 | launder, navigational |" in text, text
    assert "| unaware | 40 % | 95.0 | 95.0 | clicks, navigational | 90.0 |" in text
    assert "| sight | 40 % | 100.0 | 100.0 |" in text
    assert "| sight | 10 %" not in text


def test_settings_are_told():
    """Of attacks without any the defaults."""
    assert "| launder | `None` | defaults |" in settings(FOUND)
