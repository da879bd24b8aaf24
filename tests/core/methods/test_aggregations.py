"""The federator part of methods that send differences of weights."""

import numpy as np
import pytest

from foltr.core.aggregation.round_aggregation import TooFewUpdatesError
from foltr.core.aggregation.rule_spec import MEAN, RULES, read_rule
from foltr.core.errors import DataError
from foltr.core.methods.aggregations import DeltaAggregation, UpdateRows, is_plain_mean
from foltr.core.methods.base import Memory
from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.updates import DenseDelta, EvolutionPair, PartDelta

BASE = np.array([1.0, 2.0, 3.0], np.float32)


def dense(values):
    return DenseDelta(dim=len(values), values=pack_vector(values))


def test_updates_count_by_their_interactions_or_all_alike():
    """FPDGD, Eq. 10; FedIPS, Algorithm 1, line 11; FedPer: only covered entries change; FedBuff: stale is smaller."""
    aggregation = DeltaAggregation(3)
    aggregation.add(dense([4.0, 0.0, -4.0]), 3)
    aggregation.add(dense([0.0, 8.0, 0.0]), 1)
    following = aggregation.finish(BASE)
    np.testing.assert_array_equal(following.weights, np.array([1 + 12 / 4, 2 + 8 / 4, 3 - 12 / 4], np.float32))
    assert following.memory == Memory()
    assert following.report is None
    assert following.weights.dtype == np.float32
    aggregation = DeltaAggregation(3, by_interactions=False, step=0.5)
    aggregation.add(dense([4.0, 0.0, -4.0]), 3)
    aggregation.add(dense([0.0, 8.0, 0.0]), 1)
    np.testing.assert_array_equal(aggregation.finish(BASE).weights, np.array([2.0, 4.0, 2.0], np.float32))
    np.testing.assert_array_equal(BASE, [1.0, 2.0, 3.0])
    aggregation = DeltaAggregation(3, start=0, n_values=2)
    aggregation.add(PartDelta(dim=3, start=0, values=pack_vector([1.0, -1.0])), 5)
    np.testing.assert_array_equal(aggregation.finish(BASE).weights, np.array([2.0, 1.0, 3.0], np.float32))
    aggregation = DeltaAggregation(3)
    aggregation.add(dense([4.0, 0.0, 0.0]), 1, staleness_weight=0.5)
    assert aggregation.finish(BASE).weights[0] == 3.0


MEDIAN = read_rule("median", byzantine=1)
UPDATES = [[1.0, 0.0, 5.0], [2.0, 1.0, 4.0], [900.0, -900.0, 900.0]]


def test_a_rule_takes_the_place_of_the_mean():
    """With every client's fate, on the covered part, by the step; the optimiser's memory is left alone."""
    aggregation = DeltaAggregation(3, rule=MEDIAN, n_expected=3)
    for i, values in enumerate(UPDATES):
        aggregation.add(dense(values), 5, client_id=f"device-{i}")
    following = aggregation.finish(BASE)
    np.testing.assert_array_equal(following.weights, BASE + np.array([2.0, 0.0, 5.0], np.float32))
    assert following.report.rule == "median"
    assert [fate.client_id for fate in following.report.fates] == ["device-0", "device-1", "device-2"]
    aggregation = DeltaAggregation(3, rule=MEDIAN)
    aggregation.add_rows(np.array(UPDATES, np.float32), np.ones(3, np.int64), ["a", "b", "c"])
    assert aggregation.finish(BASE, Memory(optimiser=b"moments")).memory.optimiser == b"moments"
    aggregation = DeltaAggregation(3, start=0, n_values=2, step=0.5, rule=MEDIAN)
    for i in range(3):
        aggregation.add(PartDelta(dim=3, start=0, values=pack_vector([4.0, -4.0])), 1, 0.5, f"device-{i}")
    np.testing.assert_array_equal(aggregation.finish(BASE).weights, np.array([2.0, 1.0, 3.0], np.float32))
    assert is_plain_mean(MEAN)
    assert is_plain_mean(read_rule("mean", byzantine=0.4, fallback="abandon"))
    assert not is_plain_mean(read_rule("nnm+mean"))
    assert not is_plain_mean(read_rule("median"))


def test_rows_at_once_are_updates_one_by_one(rng):
    """A runner of blocks and the service end at the same bits, with any rule."""
    for text in [rule for rule in RULES if rule != "adaptive"] + ["nnm+krum", "bucketing+median"]:
        rows = rng.standard_normal((12, 5)).astype(np.float32)
        rule = read_rule(text, byzantine=1)
        base = np.zeros(5, np.float32)
        together = DeltaAggregation(5, rule=rule, n_expected=12, rng=np.random.default_rng(3))
        together.add_rows(rows, np.arange(1, 13), [f"device-{i:03d}" for i in range(12)])
        one_by_one = DeltaAggregation(5, rule=rule, rng=np.random.default_rng(3))
        for i, row in enumerate(rows):
            one_by_one.add(dense(row), i + 1, client_id=f"device-{i:03d}")
        first, second = together.finish(base), one_by_one.finish(base)
        np.testing.assert_array_equal(first.weights, second.weights)
        assert first.report == second.report, text


def test_what_the_adaptive_rule_remembers_outlasts_another_rule(rng):
    """An operator may try another rule and come back: the evidence waits, byte for byte."""
    for text in [rule for rule in RULES if rule != "adaptive"] + ["nnm+krum"]:
        aggregation = DeltaAggregation(5, rule=read_rule(text, byzantine=1))
        rows = rng.standard_normal((12, 5)).astype(np.float32)
        aggregation.add_rows(rows, np.ones(12, np.int64), list("abcdefghijkl"))
        before = Memory(defence=b"evidence")
        assert aggregation.finish(np.zeros(5, np.float32), before).memory == before, text


def test_more_updates_than_expected_are_all_kept(rng):
    """A row that was taken is never lost or changed; nothing of another length is broadcast into place."""
    rows = rng.standard_normal((40, 3)).astype(np.float32)
    updates = UpdateRows(3, 2)
    for i, row in enumerate(rows):
        updates.add(row, float(i), str(i))
    kept, weights, names = updates.all()
    np.testing.assert_array_equal(kept, rows)
    assert weights.tolist() == list(range(40))
    assert names == [str(i) for i in range(40)]
    updates = UpdateRows(3, 2)
    with pytest.raises(DataError, match="shape"):
        updates.add(np.zeros(2, np.float32), 1.0, "device-1")
    with pytest.raises(DataError, match="shape"):
        updates.add_rows(np.zeros((2, 4), np.float32), np.ones(2), ["device-1", "device-2"])


def test_a_round_with_too_few_updates_says_so():
    """It takes the fallback, or makes no model if the fallback says so; without updates it makes none."""
    aggregation = DeltaAggregation(3, rule=read_rule("krum", byzantine=1))
    aggregation.add(dense([2.0, 2.0, 2.0]), 1, client_id="device-1")
    report = aggregation.finish(BASE).report
    assert report.fallback_reason is not None
    assert (report.configured, report.rule) == ("krum", "median")
    strict = DeltaAggregation(3, rule=read_rule("krum", byzantine=1, fallback="abandon"))
    strict.add(dense([2.0, 2.0, 2.0]), 1, client_id="device-1")
    with pytest.raises(TooFewUpdatesError):
        strict.finish(BASE)
    for rule in (MEAN, MEDIAN):
        with pytest.raises(DataError):
            DeltaAggregation(3, rule=rule).finish(BASE)
    part = PartDelta(dim=3, start=1, values=pack_vector([0.0]))
    for body in (dense([0.0] * 4), part, EvolutionPair(seed=1, plus=0.5)):
        with pytest.raises(DataError):
            DeltaAggregation(3).add(body, 1)
