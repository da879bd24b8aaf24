"""Verdicts are what the numbers say, either way."""

import math

import numpy as np
import pytest
from made_results import by_method, outcome, profile, results

from foltr_research.reproductions.claims import (
    Difference,
    Status,
    Verdict,
    both,
    declines,
    difference,
    difference_of,
    higher,
    increasing,
    learns,
    learns_nothing,
    not_above,
    not_testable,
    only_on,
    relative_loss,
    similar,
)
from foltr_research.reproductions.outcomes import Results

A, B = {"method": "a"}, {"method": "b"}


def test_difference_takes_the_t_quantile_for_few_seeds():
    """What seeds have in common cancels; three seeds want 2.920 standard errors, an interval has 4.303."""
    found = difference_of(np.array([0.0, 0.1, 0.2]))
    assert found.mean == pytest.approx(0.1)
    assert found.standard_error == pytest.approx(0.1 / math.sqrt(3))
    assert not found.above  # 0.1 against 2.920 * 0.0577 = 0.169
    assert Difference(0.17, 0.1 / math.sqrt(3), 3).above
    assert Difference(-0.17, 0.1 / math.sqrt(3), 3).below
    assert Difference(0.1, 0.02, 3).half_width == pytest.approx(4.303 * 0.02)
    assert Difference(0.1, 0.02, 10).half_width == pytest.approx(2.262 * 0.02)
    assert math.isnan(difference_of(np.array([0.1])).half_width)
    found = difference(by_method(a=[0.5, 0.7, 0.6]).select(A), by_method(b=[0.4, 0.6, 0.5]).select(B), "offline")
    assert found.mean == pytest.approx(0.1)
    assert found.standard_error == pytest.approx(0.0, abs=1e-12)
    assert found.above


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
        increasing("offline", "method", ("b", "a")),
        learns("offline", where=A),
    ],
)
def test_one_seed_says_nothing(check):
    """Without a standard error no claim is confirmed or denied."""
    assert check(by_method(a=[0.9], b=[0.1])).status is Status.NOT_TESTABLE


@pytest.mark.parametrize(
    "check",
    [higher("offline", {"method": "x"}, B), similar("offline", "x", 0.1), relative_loss("offline", {"x": "y"}, B, 0.1)],
)
def test_absent_runs_say_nothing(check):
    """A comparison with runs that are not there is not testable, rather than an error."""
    assert check(by_method(b=[0.1, 0.2, 0.3])).status is Status.NOT_TESTABLE


def test_similar_and_not_above():
    """Within the tolerance everywhere, or not; a lead may not be larger than the margin, a deficit may be."""
    made = by_method(a=[0.50, 0.52, 0.51], b=[0.50, 0.50, 0.50])
    assert similar("offline", "method", 0.02)(made).status is Status.CONFIRMED
    assert similar("offline", "method", 0.005)(made).status is Status.NOT_CONFIRMED
    made = by_method(a=[0.50, 0.52, 0.51], b=[0.50, 0.50, 0.50])
    assert not_above("offline", A, B, 0.02)(made).status is Status.CONFIRMED
    assert not_above("offline", A, B, 0.005)(made).status is Status.NOT_CONFIRMED
    assert not_above("offline", B, A, 0.0)(made).status is Status.CONFIRMED


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
    assert learns("offline", at_least=0.5)(learning).status is Status.NOT_CONFIRMED
    assert learns("offline")(idle).status is Status.NOT_CONFIRMED
    assert learns_nothing("shown", 0.02)(idle).status is Status.CONFIRMED
    assert learns_nothing("shown", 0.02)(learning).status is Status.NOT_CONFIRMED
    labels = {"method": "a", "clicks": "perfect"}
    fallen = Results(tuple(outcome(labels, seed, 0.3 + 0.01 * seed, peak=0.5) for seed in (1, 2, 3)), profile())
    assert declines("offline")(fallen).status is Status.CONFIRMED
    assert declines("offline")(by_method(a=[0.50, 0.52, 0.51])).status is Status.NOT_CONFIRMED
    made = by_method(ideal=[0.5, 0.5], actual=[0.3, 0.3])
    verdict = relative_loss("offline", {"method": "ideal"}, {"method": "actual"}, 0.35)(made)
    assert verdict == Verdict(Status.CONFIRMED, "loss: perfect 40%")
    assert (
        relative_loss("offline", {"method": "ideal"}, {"method": "actual"}, 0.45)(made).status is Status.NOT_CONFIRMED
    )


def test_only_on_and_both():
    """A claim on five grades is not tested on three; of two claims all that can be tested must hold."""
    check = only_on(5, "why", not_above("offline", A, B, 1.0))
    values = {(("method", name), ("clicks", "perfect")): [0.4, 0.5] for name in "ab"}
    assert check(results(values, n_grades=5)).status is Status.CONFIRMED
    assert check(results(values, n_grades=3)) == Verdict(Status.NOT_TESTABLE, "why")
    made = by_method(a=[0.50, 0.52, 0.51], b=[0.40, 0.41, 0.42])
    true, false, silent = higher("offline", A, B), higher("offline", B, A), not_testable("why")
    assert both(true, silent)(made).status is Status.CONFIRMED
    assert both(true, false)(made).status is Status.NOT_CONFIRMED
    assert both(silent, silent)(made) == Verdict(Status.NOT_TESTABLE, "why")
