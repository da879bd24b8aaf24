"""One round: what cannot be used is dropped, too few updates follow the fallback, and the report says what was done."""

from typing import Any

import numpy as np
import pytest

from foltr.core.aggregation.fates import Fate
from foltr.core.aggregation.mean import RunningMean
from foltr.core.aggregation.round_aggregation import RoundAggregate, TooFewUpdatesError, aggregate_round
from foltr.core.aggregation.round_report import ClientFate
from foltr.core.aggregation.rule_spec import PRE_STEPS, RULES, read_rule
from foltr.core.aggregation.rules import run_rule
from foltr.core.errors import DataError

PLAIN_RULES = [rule for rule in RULES if rule != "adaptive"]


def ids(n: int) -> list[str]:
    return [f"client-{i:02}" for i in range(n)]


def aggregate(text: str, rows: np.ndarray, weights: np.ndarray | None = None, **settings: Any) -> RoundAggregate:
    spec = read_rule(text, **settings)
    used = np.ones(len(rows)) if weights is None else weights
    return aggregate_round(spec, ids(len(rows)), rows, used, None, np.random.default_rng(4))


def fate_of(result: RoundAggregate, i: int) -> ClientFate:
    fate = result.report.fates[i]
    assert fate.client_id == ids(i + 1)[-1]
    return fate


def test_any_step_before_any_rule(rng: np.random.Generator) -> None:
    """The result is a vector of float64; shares stay within one; the report names what was used."""
    for rule in PLAIN_RULES:
        for step in [None, *PRE_STEPS]:
            for dtype in [np.float32, np.float64]:
                text = rule if step is None else f"{step}+{rule}"
                rows = (rng.normal(size=(30, 6)) + 1).astype(dtype)
                weights = rng.integers(1, 9, 30).astype(np.float64)
                result = aggregate(text, rows, weights, byzantine=2)
                assert result.vector.shape == (6,), (rule, step, dtype)
                assert result.vector.dtype == np.float64, (rule, step, dtype)
                assert np.linalg.norm(result.vector - 1) < 3, (rule, step, dtype)
                assert (result.report.configured, result.report.rule) == (text, text)
                assert result.report.fallback_reason is None
                assert (result.report.parameters["n"], result.report.parameters["m"]) == (30, 2), (rule, step, dtype)
                if text == "mean":
                    assert result.report.fates == (), (rule, step, dtype)
                    continue
                assert [fate.client_id for fate in result.report.fates] == ids(30), (rule, step, dtype)
                shares = [fate.share for fate in result.report.fates]
                assert sum(share for share in shares if share is not None) <= 1 + 1e-9, (rule, step, dtype)
                assert all((fate.reason == "") == (fate.fate == Fate.KEPT) for fate in result.report.fates)


def test_mean_is_the_running_mean_to_the_bit(rng: np.random.Generator) -> None:
    """A federation that lists its rule as mean has the same model as one without a rule."""
    rows, weights = rng.normal(size=(7, 9)).astype(np.float32), rng.integers(1, 9, 7).astype(np.float64)
    mean = RunningMean(9)
    mean.add_rows(rows, weights)
    assert aggregate("mean", rows, weights).vector.tolist() == mean.mean().tolist()


def test_one_update_that_is_not_finite(rng: np.random.Generator) -> None:
    """That update is refused, not the round: the rest gives what it gives alone. Nor does one without weight count."""
    for rule in PLAIN_RULES:
        for wrong in [np.nan, np.inf, -np.inf]:
            rows = rng.normal(size=(12, 4))
            rows[5, 2] = wrong
            result = aggregate(rule, rows, byzantine=1)
            rest = np.delete(rows, 5, axis=0)
            np.testing.assert_array_equal(result.vector, aggregate(rule, rest, byzantine=1).vector)
            fate = fate_of(result, 5)
            assert (fate.fate, fate.share, fate.reason) == (Fate.DROPPED, 0.0, "not finite"), (rule, wrong)
            assert result.report.parameters["n"] == 11, (rule, wrong)
    rows, weights = rng.normal(size=(6, 3)), np.array([1.0, 1, 0, 1, 1, 1])
    result = aggregate("median", rows, weights, byzantine=1)
    np.testing.assert_allclose(result.vector, np.median(np.delete(rows, 2, axis=0), axis=0))
    assert fate_of(result, 2).reason == "weight 0"


def test_krum_says_whom_it_chose_and_why_not_the_others(rng: np.random.Generator) -> None:
    """Also of buckets, whose clients share the result."""
    rows = rng.normal(size=(9, 3))
    rows[8] += 30
    result = aggregate("krum", rows, byzantine=2)
    kept = [fate for fate in result.report.fates if fate.fate == Fate.KEPT]
    assert [fate.share for fate in kept] == [1.0]
    last = fate_of(result, 8)
    assert last.fate == Fate.DROPPED
    assert last.score is not None
    assert last.reason == f"farther from the others than the chosen: score {last.score:.4g}"
    result = aggregate("bucketing+krum", rng.normal(size=(14, 3)), byzantine=2)
    assert result.report.parameters["bucket_size"] == 2
    shares = sorted(fate.share or 0.0 for fate in result.report.fates)
    assert shares == [0.0] * 12 + [0.5] * 2
    left_out = next(fate for fate in result.report.fates if fate.fate == Fate.DROPPED)
    assert left_out.reason.startswith("its bucket is farther from the others")


def test_the_report_says_what_was_clipped_or_trimmed(rng: np.random.Generator) -> None:
    """The length before and after, and shares by coordinate, which can be left out where time matters."""
    rows = rng.normal(size=(5, 8))
    rows[1] *= 100
    result = aggregate("norm-bounding", rows)
    fate = fate_of(result, 1)
    assert fate.fate == Fate.CLIPPED
    assert fate.share is not None
    assert fate.share < 0.01
    assert fate.reason.endswith(f"clipped to {result.report.parameters['clip_norm']:.4g}")
    rows = rng.normal(size=(7, 5))
    rows[3] = 100
    result = aggregate("trimmed-mean", rows, byzantine=1)
    assert fate_of(result, 3).reason == "trimmed in every coordinate"
    assert result.report.parameters["beta"] == 1
    spec = read_rule("trimmed-mean", byzantine=1)
    without = aggregate_round(spec, ids(7), rows, np.ones(7), with_shares=False)
    assert all(fate.share is None for fate in without.report.fates)
    np.testing.assert_allclose(without.vector, result.vector)


def test_too_few_updates_follow_the_fallback(rng: np.random.Generator) -> None:
    """The report says which rule was used instead, and why; what is refused counts towards too few."""
    rows = rng.normal(size=(6, 3))
    result = aggregate("krum", rows, byzantine=2)
    np.testing.assert_allclose(result.vector, np.median(rows, axis=0))
    assert (result.report.configured, result.report.rule) == ("krum", "median")
    assert result.report.fallback_reason == (
        "krum needs at least 2m + 3 = 7 updates to tolerate m = 2 hostile ones, and there are 6"
    )
    result = aggregate("krum", rng.normal(size=(2, 3)), byzantine=2)
    assert result.report.rule == "median"
    assert result.report.parameters["m"] == 0
    assert result.report.fallback_reason is not None
    assert result.report.fallback_reason.endswith("and median tolerates 0 of 2")
    trimmed = aggregate("bulyan", rng.normal(size=(6, 3)), byzantine=3, fallback="trimmed-mean")
    assert (trimmed.report.rule, trimmed.report.parameters["beta"]) == ("trimmed-mean", 2)
    rows = rng.normal(size=(7, 3))
    rows[0] = np.nan
    result = aggregate("krum", rows, byzantine=2)
    assert result.report.rule == "median"
    assert fate_of(result, 0).reason == "not finite"


def test_no_model_where_there_is_no_fallback(rng: np.random.Generator) -> None:
    """By the setting, or because the fallback cannot be computed; the report tells of Krum with 4 of 10."""
    with pytest.raises(TooFewUpdatesError, match=r"krum needs at least .* as aggregation_fallback says"):
        aggregate("krum", rng.normal(size=(4, 3)), byzantine=1, fallback="abandon")
    with pytest.raises(TooFewUpdatesError, match=r"bulyan needs .*; and krum needs"):
        aggregate("bulyan", rng.normal(size=(2, 3)), byzantine=1, fallback="krum")
    settings = {"byzantine": 0.4, "parameters": {"beyond_bounds": "true"}}
    assert aggregate("krum", rng.normal(size=(10, 3)), **settings).report.parameters["beyond_bounds"] == 1.0
    assert "beyond_bounds" not in aggregate("krum", rng.normal(size=(15, 3)), **settings).report.parameters


def test_the_largest_numbers_there_are(rng: np.random.Generator) -> None:
    """Updates at the end of float32's range leave a finite result, and no warning."""
    for rule in [rule for rule in PLAIN_RULES if rule != "mean"]:
        for step in [None, "nnm"]:
            rows = (rng.normal(size=(19, 5)) + 1).astype(np.float32)
            rows[:3] = np.finfo(np.float32).max
            result = aggregate(rule if step is None else f"{step}+{rule}", rows, byzantine=3)
            if step is None or rule != "norm-bounding":
                assert np.abs(result.vector - 1).max() < 3, (rule, step)


def test_claims_do_not_decide(rng: np.random.Generator) -> None:
    """Two of ten that claim a billion interactions each do not carry away any rule but the mean."""
    for rule in PLAIN_RULES:
        rows = rng.normal(size=(11, 4))
        rows[:2] = 50
        weights = np.full(11, 5.0)
        weights[:2] = 1e9
        far = np.abs(aggregate(rule, rows, weights, byzantine=2).vector).max() > 4
        assert far == (rule == "mean"), rule


def test_what_is_no_round(rng: np.random.Generator) -> None:
    """And of one that is, the inputs are left alone."""
    for rows, weights, complaint in [
        (np.zeros((2, 3)), np.ones(3), "3 clients|2 clients, updates of shape"),
        (np.zeros((3, 0)), np.ones(3), "updates of shape"),
        (np.zeros((2, 3), np.int64), np.ones(2), "updates are int64, expected float32 or float64"),
        (np.zeros((2, 3)), np.array([1.0, -1.0]), "a weight is negative or not finite"),
        (np.zeros((2, 3)), np.array([1.0, np.nan]), "a weight is negative or not finite"),
        (np.full((2, 3), np.nan), np.ones(2), "none of 2 updates can be used: 2 not finite"),
        (np.zeros((2, 3)), np.zeros(2), "none of 2 updates can be used: 2 weight 0"),
        (np.zeros((0, 3)), np.zeros(0), "none of 0 updates can be used: there are none"),
    ]:
        with pytest.raises(DataError, match=complaint):
            aggregate("median", rows, weights)
    with pytest.raises(ValueError, match="bucketing needs a random generator"):
        run_rule(read_rule("bucketing+mean"), np.zeros((4, 2)), np.ones(4))
    rows = rng.normal(size=(5, 3))
    assert aggregate_round(read_rule("median"), ids(5), rows, np.ones(5), b"kept").memory == b"kept"
    rows = rng.normal(size=(20, 3)).astype(np.float32)
    rows[3] = np.inf
    before = rows.copy()
    for rule in PLAIN_RULES:
        aggregate(rule, rows, byzantine=1)
    np.testing.assert_array_equal(rows, before)
