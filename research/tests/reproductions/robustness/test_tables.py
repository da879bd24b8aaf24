"""What the tables say is what the results say."""

from dataclasses import replace

import pytest
from made_results import outcome, profile

from foltr_research.reproductions.outcomes import Results
from foltr_research.reproductions.robustness.tables import detections, exceptions, kept_table, summary


def run(attack, share, rule, seed, value, **config):
    labels = {"attack": attack, "share": share, "rule": rule, "clicks": "perfect"}
    one = outcome(labels, seed, value)
    record = {"attackers": [], "dropped": {}, "clipped": {}, "findings": []}
    if attack != "nobody":
        record["attackers"] = ["device-001"]
        config |= {"attack": attack, "attackers": 1}
    if rule == "adaptive" and attack != "nobody":
        record |= {
            "dropped": {"device-001": 10, "device-002": 1},
            "findings": [{"round": 4 + seed, "kind": "defence_raised", "client": "device-001", "detail": ""}],
        }
    return replace(one, config=one.config.changed(**config), result={**one.result, "robustness": record})


@pytest.fixture
def made():
    found = []
    for seed, luck in enumerate((-0.01, 0.01), start=1):
        for rule, value in (("mean", 0.5), ("krum", 0.45), ("adaptive", 0.5)):
            found.append(run("nobody", "0 %", rule, seed, value))
        beyond = {"aggregation_parameters": {"beyond_bounds": True}}
        for attack in ("clicks", "huge"):
            found.append(run(attack, "40 %", "mean", seed, 0.1))
            found.append(run(attack, "40 %", "krum", seed, 0.4 + luck, **beyond))
            found.append(run(attack, "40 %", "adaptive", seed, 0.45 if attack == "huge" else 0.35))
        found.append(run("clicks", "10 %", "krum", seed, 0.45))
    return Results(tuple(found), profile())


def test_tables_say_what_the_results_say(made):
    """Kept shares with standard errors, the best bold; worst cases; where another keeps more; who was found."""
    text = kept_table(made)
    assert "**perfect clicks, 40 % attackers**" in text
    assert "| nobody | **100.0** ± 0.0 | 90.0 ± 0.0 | **100.0** ± 0.0 |" in text
    assert "| huge | 20.0 ± 0.0 | 80.0 ± 2.0† | **90.0** ± 0.0 |" in text
    assert "| perfect | 10 % | - | **90.0** ± 0.0 | - |" in text
    text = summary(made)
    assert "10 %" not in text
    assert "| adaptive | 100.0 | 80.0 | 70.0 |" in text
    text = exceptions(made)
    assert text.startswith("1 of 2 places.")
    assert "| clicks | 40 % | perfect | krum | 80.0 % | 70.0 % | -12.5 ± 2.5 % | no | -12.5 ± 2.5 % |" in text
    text = detections(made)
    assert "| nobody | 0 % | - | - | - | 0 | 0.00 % | 0.00 % |" in text
    assert "| huge | 40 % | 6 | 2 of 2 | 50 % | 2 | 0.56 % | 0.00 % |" in text
