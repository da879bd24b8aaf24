"""Clients that differ, with and without attackers: grids, tables of made-up runs, and what one grade teaches."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from made_results import outcome, profile

from foltr.core.learning.pdgd import pdgd_gradient
from foltr_research.reproductions.claims import Status
from foltr_research.reproductions.harness import plan
from foltr_research.reproductions.outcomes import Results
from foltr_research.reproductions.registry import EXPERIMENTS
from foltr_research.reproductions.robustness.four_types import DIFFERING, RULES, relative

OF_LABELS, OF_INTENTS, OF_ONE_GRADE = (
    EXPERIMENTS[name] for name in ("robustness-types", "robustness-type-1", "robustness-one-grade")
)


def run(rule, value, *, seed=1, attack="nobody", kind="type 3", dropped=()):
    labels = {"clients": kind, "clicks": "made", "attack": attack, "rule": rule}
    made = outcome(labels, seed, value)
    record = {"attackers": [], "dropped": dict(dropped), "clipped": {}, "findings": []}
    return replace(made, result={**made.result, "robustness": None if rule == "mean" else record})


def runs(values, **more):
    """By rule, a value for each seed."""
    each = [run(rule, value, seed=seed, **more) for rule in values for seed, value in enumerate(values[rule], start=1)]
    return Results(tuple(each), profile())


def verdict(experiment, text, results):
    (claim,) = (one for one in experiment.claims if one.text.startswith(text))
    return claim.judge(results)


@pytest.mark.parametrize("n_grades", [3, 5])
def test_each_type_is_run_under_each_rule_with_and_without_attackers(n_grades):
    """One client in five attacks; the rules have the same clients, and only the option is set."""
    for experiment, populations in ((OF_LABELS, {"type2", "type3", "type4"}), (OF_INTENTS, {"type1"})):
        data = profile(n_grades, intents=experiment is OF_INTENTS)
        if data.intents:
            data = replace(data, data="synthetic-intents")
        planned = [one.config for one in plan(experiment, "quick", data, 1)]
        assert {one.population for one in planned} == populations
        assert {one.attackers / one.clients for one in planned} == {0.0, 0.2}
        for one in planned:
            honest = one.changed(aggregation="mean", aggregation_parameters={})
            assert honest in planned
            assert one.aggregation_parameters in ({}, {"differing": 1})
    planned = [one.config for one in plan(OF_ONE_GRADE, "quick", profile(n_grades), 1)]
    assert {(one.population, one.labels_per_client, one.attackers) for one in planned} == {("type2", 1, 0)}


def test_a_cost_is_relative_to_the_mean_over_seeds():
    """Two seeds of 0.1 and 0.3 exchanged cost nothing; relative to each seed's own value they would gain 67 %."""
    results = runs({"mean": [0.1, 0.3], "adaptive": [0.3, 0.1]})
    of_run = [one.value("late") for one in results.select({"rule": "mean"})]
    found = relative(results, {"clients": "type 3", "clicks": "made", "attack": "nobody"}, "adaptive")
    assert found.mean() == pytest.approx(0.0)
    assert found[0] == pytest.approx((of_run[1] - of_run[0]) / np.mean(of_run))


def test_claims_are_judged_by_what_they_name():
    """5 % at the most without attackers, 90 % kept with them; what type 2 keeps under attack is only shown."""
    cheap = runs({"mean": [0.5, 0.52], "adaptive": [0.5, 0.519], DIFFERING: [0.4, 0.42]})
    assert verdict(OF_LABELS, "The rule adaptive costs", cheap).status is Status.CONFIRMED
    assert verdict(OF_LABELS, "The rule adaptive, differing costs", cheap).status is Status.NOT_CONFIRMED
    of_type_2 = runs({"adaptive": [0.1, 0.1]}, attack="launder", kind="type 2, two grades each")
    honest = runs({"mean": [0.5, 0.52]}, kind="type 2, two grades each")
    attacked = runs({"mean": [0.2, 0.2], "adaptive": [0.48, 0.5], DIFFERING: [0.3, 0.3]}, attack="launder")
    everything = Results((*cheap, *honest, *of_type_2, *attacked), profile())
    keeps = verdict(OF_LABELS, "The rule adaptive keeps", everything)
    assert keeps.status is Status.CONFIRMED
    assert "at 1 of 1 places" in keeps.found
    assert verdict(OF_LABELS, "The rule adaptive, differing keeps", everything).status is Status.NOT_CONFIRMED
    costs, kept = (section.text(everything) for section in OF_LABELS.sections)
    assert costs.splitlines()[-1].startswith("| type 3 | made | 0.")
    assert "| launder |" in kept
    assert verdict(OF_LABELS, "The rule adaptive keeps", cheap).status is Status.NOT_TESTABLE


def test_chance_is_told_from_a_difference():
    """Of clients with one grade: rankers that differ without a sign, and ones that are worse in every seed."""
    values = [0.1, 0.2, 0.3, 0.2] * 10
    by_chance = runs({"mean": values, "adaptive": values[1:] + values[:1], DIFFERING: values})
    assert verdict(OF_ONE_GRADE, "With one grade", by_chance).status is Status.CONFIRMED
    worse = runs({"mean": values, "adaptive": [value - 0.06 for value in values], DIFFERING: values})
    assert verdict(OF_ONE_GRADE, "With one grade", worse).status is Status.NOT_CONFIRMED
    (section,) = OF_ONE_GRADE.sections
    assert len([line for line in section.text(by_chance).splitlines() if line.startswith("| made |")]) == len(RULES)


@pytest.mark.parametrize(("grades", "teaches"), [((1, 1, 1, 1), False), ((0, 0, 0, 0), False), ((0, 1, 1, 2), True)])
def test_lists_of_one_grade_teach_nothing_in_expectation(grades, teaches):
    """The expected step over all lists and clicks, exactly: 0 if no document is better than another."""
    rng = np.random.default_rng(4)
    features, weights = rng.normal(size=(4, 3)).astype(np.float32), rng.normal(size=3)
    click, stop = (0.05, 0.5, 0.95), (0.2, 0.5, 0.9)
    scores = features @ weights
    expected = np.zeros(3)
    for shown in itertools.permutations(range(4), 3):
        left, chance = np.exp(scores), 1.0
        for document in shown:
            chance *= left[document] / left.sum()
            left[document] = 0.0
        for clicks in itertools.product([False, True], repeat=3):
            likely = probability([grades[document] for document in shown], clicks, click, stop)
            if likely:
                step = pdgd_gradient(weights, features, np.array(shown), np.array(clicks))
                expected += chance * likely * step
    assert (np.abs(expected).max() > 1e-3) == teaches
    if not teaches:
        np.testing.assert_allclose(expected, 0.0, atol=1e-9)


def probability(grades, clicks, click, stop):
    """Of these clicks by a user who reads from the top, and may stop after each click."""
    if not grades:
        return 1.0
    rest = probability(grades[1:], clicks[1:], click, stop)
    if not clicks[0]:
        return (1.0 - click[grades[0]]) * rest
    stops = stop[grades[0]] * (not any(clicks[1:]))
    return click[grades[0]] * (stops + (1.0 - stop[grades[0]]) * rest)
