"""Verdicts are what the numbers say, either way."""

import math
from dataclasses import replace

import numpy as np
import pytest
from made_results import by_method, outcome, profile, results

from foltr_research.reproductions.checks import (
    above_by,
    among,
    both,
    declines,
    except_on,
    higher,
    increasing,
    insignificant,
    leads_most,
    learns,
    learns_nothing,
    loses,
    mean_loss_between,
    named,
    not_above,
    not_testable,
    only_named,
    only_on,
    similar,
    tends_up,
)
from foltr_research.reproductions.claims import (
    Claim,
    Difference,
    Status,
    Verdict,
    difference,
    difference_of,
    judged,
    none_significant,
)
from foltr_research.reproductions.outcomes import Results

A, B = {"method": "a"}, {"method": "b"}


def test_difference_takes_the_t_quantile_for_few_seeds():
    """What seeds have in common cancels; three seeds need 4.303 standard errors two-sided, 2.920 one-sided."""
    found = difference_of(np.array([0.0, 0.1, 0.2]))
    assert found.mean == pytest.approx(0.1)
    assert found.standard_error == pytest.approx(0.1 / math.sqrt(3))
    for mean, far in ((0.042, False), (0.044, True)):
        assert Difference(mean, 0.01, 3).above() is Difference(-mean, 0.01, 3).below() is far
    assert Difference(0.044, 0.01, 3).p == pytest.approx(0.05, abs=0.003)
    assert not Difference(0.044, 0.01, 3).above(0.05 / 2)
    assert Difference(0.1, 0.02, 3).margin() == pytest.approx(4.303 * 0.02, rel=1e-3)
    assert Difference(0.1, 0.02, 10).margin() == pytest.approx(2.262 * 0.02, rel=1e-3)
    for bound, held in ((0.130, True), (0.128, False)):
        assert Difference(0.1, 0.01, 3).at_most(bound) is Difference(-0.1, 0.01, 3).at_least(-bound) is held
        assert Difference(0.1, 0.01, 3).within(bound) is Difference(-0.1, 0.01, 3).within(bound) is held
    assert math.isnan(difference_of(np.array([0.1])).margin())
    found = difference(by_method(a=[0.5, 0.7, 0.6]).select(A), by_method(b=[0.4, 0.6, 0.5]).select(B), "offline")
    assert found.mean == pytest.approx(0.1)
    assert found.standard_error == pytest.approx(0.0, abs=1e-12)
    assert found.above()
    assert not Difference(0.0, 0.0, 3).above()


def test_levels_are_divided_by_the_cells_that_may_fail():
    """Of three cells all at 5 %, most (two) at 2.5 %, any at 1.67 %: Bonferroni."""
    cells = {str(i): Difference(0.1, 0.01, 3) for i in range(3)}
    for need, level in (("all", 0.05), ("most", 0.025), ("any", 0.05 / 3)):
        levels = set()
        judged(cells, lambda _, at, seen=levels: not seen.add(at), need)
        assert list(levels) == [pytest.approx(level)]
    assert judged(cells, Difference.above, "all", {"1"}).status is Status.NOT_CONFIRMED


def test_nothing_significant_wants_seeds_enough_to_see_something():
    """No difference at 5 % of two: held if 0.02 would show, refuted by one that does, and else not testable."""
    small, large, noisy = (Difference(*numbers, 5) for numbers in ((0.002, 0.002), (0.02, 0.002), (0.002, 0.02)))
    for cells, status in (
        ((small, small), Status.CONFIRMED),
        ((small, large), Status.NOT_CONFIRMED),
        ((small, noisy), Status.NOT_TESTABLE),
    ):
        differences = dict(zip("ab", cells, strict=True))
        assert none_significant(differences, Difference.above, 0.02).status is status


def test_higher_confirms_a_clear_lead_only():
    """Clear: confirmed; within the noise, or the other way round: not. All, most or any of the click models decide."""
    check = higher("offline", A, B)
    assert check(by_method(a=[0.50, 0.51, 0.52], b=[0.40, 0.42, 0.41])).status is Status.CONFIRMED
    assert check(by_method(a=[0.50, 0.30, 0.52], b=[0.40, 0.42, 0.41])).status is Status.NOT_CONFIRMED
    assert check(by_method(a=[0.40, 0.42, 0.41], b=[0.50, 0.51, 0.52])).status is Status.NOT_CONFIRMED
    values = {
        (("method", method), ("clicks", clicks)): [level + 0.001 * seed for seed in range(3)]
        for method, levels in {"a": (0.5, 0.5, 0.3), "b": (0.4, 0.4, 0.4)}.items()
        for clicks, level in zip(("perfect", "navigational", "informational"), levels, strict=True)
    }
    made = results(values)
    assert higher("offline", A, B)(made).status is Status.NOT_CONFIRMED
    verdict = higher("offline", A, B, need="most")(made)
    assert verdict.status is Status.CONFIRMED
    assert verdict.found.startswith("2 of 3: perfect +0.100")
    assert higher("offline", A, B, where={"clicks": "informational"})(made).status is Status.NOT_CONFIRMED
    assert higher("offline", A, B, need="any")(made).status is Status.CONFIRMED
    made = results({(("method", "a"), ("clicks", "perfect")): [0.5, 0.6, 0.7]})
    assert higher("offline", A, B)(made).status is Status.NOT_TESTABLE


@pytest.mark.parametrize(
    "check",
    [
        higher("offline", A, B),
        not_above("offline", A, B, 0.1),
        above_by("offline", A, B, 0.1),
        similar("offline", "method", 0.9),
        insignificant("offline", "method", 0.9),
        increasing("offline", "method", ("b", "a")),
        tends_up("offline", "method", ("b", "a")),
        learns("offline", where=A),
        learns_nothing("offline", 0.9, where=A),
        declines("offline", where=A),
        loses("offline", A, B, 0.1),
        mean_loss_between("offline", A, B, (0.0, 1.0)),
    ],
)
def test_one_seed_says_nothing(check):
    """Without a standard error no claim is confirmed or denied by any check."""
    one = by_method(a=[0.9], b=[0.1])
    assert check(one).status is Status.NOT_TESTABLE
    exact = Claim("it is so", "ours", "none", lambda _: Verdict(Status.CONFIRMED, "so it is"))
    assert exact.judge(one).status is Status.NOT_TESTABLE
    assert exact.judge(by_method(a=[0.9, 0.8])).status is Status.CONFIRMED


@pytest.mark.parametrize(
    "check",
    [higher("offline", {"method": "x"}, B), similar("offline", "x", 0.1), loses("offline", {"x": "y"}, B, 0.1)],
)
def test_absent_runs_say_nothing(check):
    """A comparison with runs that are not there is not testable, rather than an error."""
    assert check(by_method(b=[0.1, 0.2, 0.3])).status is Status.NOT_TESTABLE


def test_similar_and_bounds():
    """The interval 0.01 ± 0.0169 is within 0.03 and not within 0.02, though the mean is."""
    made = by_method(a=[0.50, 0.52, 0.51], b=[0.50, 0.50, 0.50])
    assert similar("offline", "method", 0.03)(made).status is Status.CONFIRMED
    assert similar("offline", "method", 0.02)(made).status is Status.NOT_CONFIRMED
    assert not_above("offline", A, B, 0.03)(made).status is Status.CONFIRMED
    assert not_above("offline", A, B, 0.02)(made).status is Status.NOT_CONFIRMED
    assert not_above("offline", B, A, 0.01)(made).status is Status.CONFIRMED
    clear = by_method(a=[0.60, 0.62, 0.61], b=[0.50, 0.50, 0.50])
    assert above_by("offline", A, B, 0.09)(clear).status is Status.CONFIRMED
    assert above_by("offline", A, B, 0.10)(clear).status is Status.NOT_CONFIRMED


def test_all_pairs_are_compared():
    """Three values that are each 0.01 from the next differ by 0.02 at their ends."""
    steps = by_method(a=[0.50, 0.51, 0.52], b=[0.51, 0.52, 0.53], c=[0.52, 0.53, 0.54])
    assert similar("offline", "method", 0.015)(steps).status is Status.NOT_CONFIRMED
    assert similar("offline", "method", 0.021)(steps).status is Status.CONFIRMED
    assert insignificant("offline", "method", 0.1)(steps).status is Status.NOT_CONFIRMED
    alike = by_method(a=[0.50, 0.51, 0.52], b=[0.51, 0.51, 0.51], c=[0.50, 0.52, 0.51])
    assert insignificant("offline", "method", 0.1)(alike).status is Status.CONFIRMED
    assert insignificant("offline", "method", 0.01)(alike).status is Status.NOT_TESTABLE


def test_a_tendency_is_of_means_and_a_larger_lead_is_tested():
    """A tendency needs no certainty; a lead of 0.1 is larger than one of 0.05 beyond chance, and not the reverse."""
    noisy = by_method(a=[0.3, 0.5, 0.4], b=[0.5, 0.4, 0.4])
    assert tends_up("offline", "method", ("a", "b"))(noisy).status is Status.CONFIRMED
    assert tends_up("offline", "method", ("b", "a"))(noisy).status is Status.NOT_CONFIRMED
    made = results(
        {
            (("method", method), ("clicks", clicks)): [level, level + 0.011, level + 0.019]
            for method, clicks, level in (("a", "x", 0.5), ("b", "x", 0.4), ("a", "y", 0.5), ("b", "y", 0.45))
        }
    )
    first, other = {"clicks": "x"}, {"clicks": "y"}
    assert leads_most("offline", A, B, first, [other])(made).status is Status.CONFIRMED
    assert leads_most("offline", A, B, other, [first])(made).status is Status.NOT_CONFIRMED


def test_increasing():
    """From the first to the last it must rise and fall nowhere."""
    rising = by_method(a=[0.30, 0.31, 0.32], b=[0.40, 0.41, 0.42], c=[0.50, 0.51, 0.52])
    assert increasing("offline", "method")(rising).status is Status.CONFIRMED
    assert increasing("offline", "method", ("c", "b", "a"))(rising).status is Status.NOT_CONFIRMED
    verdict = increasing("offline", "method", ("b", "a", "c"))(rising)
    assert verdict.status is Status.NOT_CONFIRMED
    assert "a step goes down: perfect" in verdict.found


def test_learns_declines_and_loses():
    """The end of the curve against its start, 0.2 in these results, and its best; 0.3 of 0.5 is a loss of 40 %."""
    learning, idle = by_method(a=[0.50, 0.52, 0.51]), by_method(a=[0.21, 0.19, 0.20])
    assert learns("offline")(learning).status is Status.CONFIRMED
    assert learns("offline")(idle).status is Status.NOT_CONFIRMED
    assert learns_nothing("shown", 0.02)(idle).status is Status.CONFIRMED
    assert learns_nothing("shown", 0.01)(idle).status is Status.NOT_CONFIRMED
    assert learns_nothing("shown", 0.02)(learning).status is Status.NOT_CONFIRMED
    made = by_method(ideal=[0.5, 0.5, 0.5], actual=[0.29, 0.30, 0.31])
    ideal, actual = {"method": "ideal"}, {"method": "actual"}
    assert loses("offline", ideal, actual, 0.35)(made) == Verdict(Status.CONFIRMED, "loss: perfect 40.0 ± 1.2 %")
    assert loses("offline", ideal, actual, 0.39)(made).status is Status.NOT_CONFIRMED
    for bounds, status in (((0.3, 0.45), True), ((0.41, 0.5), False), ((0.3, 0.39), False)):
        found = mean_loss_between("offline", ideal, actual, bounds)(made)
        assert (found.status is Status.CONFIRMED) is status


def test_a_decline_is_from_a_peak_that_other_seeds_share():
    """A common peak counts; each seed's own lucky round does not, though every curve ends below its best."""
    labels = {"method": "a", "clicks": "perfect"}
    fallen = Results(tuple(outcome(labels, seed, 0.3 + 0.01 * seed, peak=0.5) for seed in (1, 2, 3)), profile())
    assert declines("offline")(fallen).status is Status.CONFIRMED
    assert declines("offline")(by_method(a=[0.50, 0.52, 0.51])).status is Status.NOT_CONFIRMED
    lucky = []
    for seed in (1, 2, 3):
        one = outcome(labels, seed, 0.5, first=0.5)
        one.result["ndcg_at_10"].extend({"round": at, "value": 0.5 + 0.1 * (at == 20 + seed)} for at in range(21, 26))
        lucky.append(one)
    assert declines("offline")(Results(tuple(lucky), profile())).status is Status.NOT_CONFIRMED


def test_restrictions_and_both():
    """A claim on other data is not tested; of several checks all must hold, and a false one decides."""
    check = only_on(5, "why", not_above("offline", A, B, 1.0))
    values = {(("method", name), ("clicks", "perfect")): [0.4, 0.5] for name in "ab"}
    assert check(results(values, n_grades=5)).status is Status.CONFIRMED
    assert check(results(values, n_grades=3)) == Verdict(Status.NOT_TESTABLE, "why")
    made = by_method(a=[0.50, 0.52, 0.51], b=[0.40, 0.41, 0.42], c=[0.9, 0.1, 0.5])
    true, false, silent = higher("offline", A, B), higher("offline", B, A), not_testable("why")
    assert named("of a", true)(made) == Verdict(Status.CONFIRMED, f"of a: {true(made).found}")
    assert both(true, silent)(made).status is Status.NOT_TESTABLE
    assert both(true, true)(made).status is Status.CONFIRMED
    assert both(silent, false, true)(made).status is Status.NOT_CONFIRMED
    assert similar("offline", "method", 0.15)(made).status is Status.NOT_CONFIRMED
    assert among("method", ("a", "b"), similar("offline", "method", 0.15))(made).status is Status.CONFIRMED
    for name, status in (
        ("MQ2007/Fold1", Status.CONFIRMED),
        ("MSLR-sample", Status.CONFIRMED),
        ("MQ2007-agg/Fold1", Status.NOT_TESTABLE),
        ("MQ2008", Status.NOT_TESTABLE),
    ):
        there = Results(made.outcomes, replace(made.data, name=name))
        assert only_named(("MQ2007", "MSLR-WEB10K"), true)(there).status is status
        assert (except_on("MSLR-WEB10K", true, false)(there).status is Status.CONFIRMED) is (name == "MSLR-sample")
