"""What is said of honest clients that differ; the numbers of runs are made up."""

from dataclasses import replace

from made_results import outcome, profile

from foltr_research.reproductions.claims import Status
from foltr_research.reproductions.outcomes import Results
from foltr_research.reproductions.registry import EXPERIMENTS

EXPERIMENT = EXPERIMENTS["robustness-differing"]
(COSTS_LITTLE,) = (claim.check for claim in EXPERIMENT.claims)
(TABLE,) = (section.text for section in EXPERIMENT.sections)


def run(rule, value, *, seed=1, kind="alike", dropped=(), clipped=()):
    made = outcome({"clients": kind, "clicks": "made", "rule": rule}, seed, value)
    record = {"attackers": [], "dropped": dict(dropped), "clipped": dict(clipped), "findings": []}
    return replace(made, result={**made.result, "robustness": record})


def results(*runs):
    return Results(runs, profile())


def test_the_worst_kind_decides():
    """A loss of 2 % at one of two kinds is too much, though the other gains; the table tells whom it costs.

    Random walks do not count, and two seeds that are exchanged cost nothing.
    """
    good = [run(rule, value, seed=seed) for seed in (1, 2) for rule, value in (("mean", 0.5), ("adaptive", 0.51))]
    bad = [replace(one, labels={**one.labels, "clients": "rare"}) for one in good if one.labels["rule"] == "mean"]
    bad += [run("adaptive", 0.49, seed=seed, kind="rare") for seed in (1, 2)]
    assert COSTS_LITTLE(results(*good)).status is Status.CONFIRMED
    verdict = COSTS_LITTLE(results(*good, *bad))
    assert verdict.status is Status.NOT_CONFIRMED
    assert "at 1 of 2" in verdict.found
    assert "rare, made" in verdict.found
    assert COSTS_LITTLE(results()).status is Status.NOT_TESTABLE
    walks = [replace(one, labels={**one.labels, "clients": "one label each, FedPer"}) for one in bad]
    assert COSTS_LITTLE(results(*good, *walks)).status is Status.CONFIRMED
    exchanged = [run("mean", 0.1), run("mean", 0.3, seed=2), run("adaptive", 0.3), run("adaptive", 0.1, seed=2)]
    assert "the least is +0.0 ±" in COSTS_LITTLE(results(*exchanged)).found
    runs = [run("mean", 0.5), run("adaptive", 0.5, dropped={"device-01": 3, "device-02": 7}, clipped={"device-03": 1})]
    row = TABLE(results(*runs)).splitlines()[-1]
    assert row.startswith("| alike | made | 0.500 | +0.0")
    assert "| 2.0 |" in row
    assert "| 7 |" in row
