"""What is kept, the best of many rules with and without its luck, and verdicts that go both ways."""

from dataclasses import replace
from math import inf

import pytest
from made_results import outcome, profile

from foltr_research.reproductions.claims import Status
from foltr_research.reproductions.outcomes import METRICS, Results
from foltr_research.reproductions.robustness.measures import (
    Place,
    best_worst_case,
    comparisons,
    costs_at_most,
    detection,
    kept,
    near_best,
    nobody_left_out,
    within_budgets,
    worst_cases,
)
from foltr_research.simulation.config import SimulationConfig

PLACE = Place("lie", "20 %", "perfect")


def runs(rule, values, attack="lie", share="20 %"):
    labels = {"attack": attack, "share": share, "rule": rule, "clicks": "perfect"}
    return [outcome(labels, seed, value) for seed, value in enumerate(values, start=1)]


def honest(*values):
    return runs("mean", values, "nobody", "0 %")


def made(*groups):
    return Results(tuple(one for group in groups for one in group), profile())


def with_record(
    dropped, findings, attackers=("device-001", "device-002"), clipped=None, attack="lie", farthest=None, **parameters
):
    labels = {"attack": "lie", "share": "20 %", "rule": "adaptive", "clicks": "perfect"}
    record = {
        "attackers": list(attackers),
        "dropped": dropped,
        "clipped": {} if clipped is None else clipped,
        "findings": [{"round": at, "kind": kind, "client": client, "detail": ""} for at, kind, client in findings],
        "farthest": farthest,
    }
    one = outcome(labels, 1, 0.5)
    config = SimulationConfig(rounds=100, attack=attack, attackers=2, attack_parameters=parameters)
    return replace(one, config=config, result={**one.result, "robustness": record})


def test_kept_is_relative_to_the_honest_run_of_the_same_seed():
    """It compares the last evaluations, and leaves out a run without an honest counterpart."""
    table = kept(made(honest(0.4, 0.5), runs("krum", [0.3, 0.4])))
    assert table[PLACE]["krum"] == pytest.approx([0.3 / 0.4, 0.4 / 0.5])
    assert kept(made(honest(0.4), runs("krum", [0.3, 0.4]))).get(PLACE) == {}
    points = [{"round": at, "value": value} for at, value in ((0, 0.1), (300, 0.2), (320, 0.3), (400, 0.5))]
    assert METRICS["late"].value({"ndcg_at_10": points}) == pytest.approx((0.3 + 0.5) / 2)
    assert METRICS["late"].value({"ndcg_at_10": [{"round": 0, "value": 0.1}, {"round": 1, "value": 0.2}]}) == 0.2


def test_the_best_rule_is_compared_by_seed_and_once_more_without_its_luck():
    """Krum is best on the mean, by its second seed; the other seed would have chosen the median each time."""
    table = kept(
        made(honest(0.5, 0.5), runs("krum", [0.2, 0.5]), runs("median", [0.4, 0.25]), runs("adaptive", [0.4, 0.4]))
    )
    found = comparisons(table)[0]
    assert (found.place, found.rule) == (PLACE, "krum")
    assert found.best == pytest.approx(0.7)
    assert found.difference.mean == pytest.approx(((0.8 - 0.4) + (0.8 - 1.0)) / 2 / 0.7)
    # Seed 1 follows seed 2 to Krum's 0.4; seed 2 follows seed 1 to the median's 0.5.
    assert found.chosen_elsewhere.mean == pytest.approx(((0.8 - 0.4) + (0.8 - 0.5)) / 2 / 0.7)


@pytest.mark.parametrize(("own", "status"), [(0.397, Status.CONFIRMED), (0.38, Status.NOT_CONFIRMED)])
def test_near_the_best(own, status):
    """Within one per cent of it; nothing is said of one seed, which has no standard error."""
    verdict = near_best(0.01)(made(honest(0.5, 0.5), runs("krum", [0.4, 0.4]), runs("adaptive", [own, own])))
    assert verdict.status is status
    verdict = near_best(0.01)(made(honest(0.5), runs("krum", [0.4]), runs("adaptive", [0.4])))
    assert verdict.status is Status.NOT_TESTABLE


@pytest.mark.parametrize(
    ("own", "status", "equal"),
    [(0.5, Status.CONFIRMED, "2 of 2"), (0.499, Status.CONFIRMED, "0 of 2"), (0.49, Status.NOT_CONFIRMED, "0 of 2")],
)
def test_cost_without_attackers(own, status, equal):
    """At most half a per cent; runs that took the same course are counted."""
    verdict = costs_at_most(0.005, {"attack": "nobody"})(
        made(honest(0.5, 0.5), runs("adaptive", [own, own], "nobody", "0 %"))
    )
    assert verdict.status is status
    assert f"{equal} runs equal" in verdict.found


@pytest.mark.parametrize(
    ("own", "status"), [((0.3, 0.31), Status.CONFIRMED), ((0.1, 0.5), Status.NOT_CONFIRMED)], ids=["clear", "by chance"]
)
def test_worst_cases_are_of_rules_that_were_run_everywhere(own, status):
    """Bulyan, which met one attack of two, has none; a lead of 0.2 in the mean is no lead if seeds differ by more."""
    results = made(
        honest(0.5, 0.5),
        runs("krum", [0.1, 0.1]),
        runs("krum", [0.4, 0.4], "clicks"),
        runs("adaptive", own),
        runs("adaptive", [0.5, 0.5], "clicks"),
        runs("bulyan", [0.5, 0.5]),
    )
    found = worst_cases(kept(results))
    assert found.keys() == {"krum", "adaptive"}
    assert found["krum"] == (pytest.approx(0.2), PLACE)
    assert best_worst_case(results).status is status


def test_detection_needs_every_attacker():
    """The round of the last one that was found for the first time; infinite if one never was."""
    seen = [(6, "defence_raised", "device-001"), (9, "defence_lowered", "device-001")]
    seen += [(20, "defence_raised", "device-001"), (12, "defence_raised", "device-002")]
    found = detection(with_record({"device-001": 80, "device-002": 88, "device-007": 8}, seen))
    assert found.rounds == 12
    assert found.hostile_left_out == pytest.approx(168 / 200)
    assert (found.honest_clients, found.honest_left_out) == (1, pytest.approx(8 / 800))
    assert detection(with_record({"device-001": 80}, seen[:1])).rounds == inf


def test_honest_clients_left_out():
    """One update is enough to say so; what is shortened of attackers is not counted."""
    assert nobody_left_out(made([with_record({"device-001": 5}, [])])).status is Status.CONFIRMED
    assert nobody_left_out(made([with_record({"device-003": 1}, [])])).status is Status.NOT_CONFIRMED
    found = detection(with_record({}, [], clipped={"device-001": 90, "device-004": 4}))
    assert found.honest_shortened == pytest.approx(4 / 800)


def test_names_that_change_are_no_more_updates():
    """Two attackers of four names send 200 updates in all; those that come late, or where half take part, fewer."""
    names = ("device-001", "device-001.2", "device-002", "device-002.2")
    found = detection(with_record(dict.fromkeys(names, 25), [], names, attack="sybils", life=50))
    assert (found.hostile_left_out, found.honest_left_out) == (0.5, 0.0)
    late = detection(with_record({"device-001": 10}, [], attack="late-joiners", start=91))
    assert late.hostile_left_out == 0.5
    one = with_record({"device-001": 50, "device-003": 20}, [])
    found = detection(replace(one, config=one.config.changed(clients=10, participants=5)))
    assert (found.hostile_left_out, found.honest_left_out) == (0.5, 0.05)


@pytest.mark.parametrize(
    ("farthest", "status"),
    [
        ((0.9, 1.0 + 1e-9), Status.CONFIRMED),
        ((1.01, 0.9), Status.NOT_CONFIRMED),
        ((0.9, None), Status.NOT_TESTABLE),
        ((), Status.NOT_TESTABLE),
    ],
)
def test_one_round_beyond_a_budget_is_enough(farthest, status):
    """Of any run; and of runs without a record nothing is said."""
    runs_made = [with_record({}, [], farthest=most) for most in farthest]
    assert within_budgets(made(runs_made)).status is status
