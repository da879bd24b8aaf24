"""Checks of claims: each compares settings of an experiment and makes a verdict by the rules of `claims`.

``by`` are the labels whose combinations are the cells of a claim, and ``where`` those of the compared runs.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np

from foltr_research.reproductions.claims import (
    Check,
    Difference,
    Differences,
    Need,
    Status,
    Verdict,
    difference,
    difference_of,
    judged,
    minus,
    none_significant,
)
from foltr_research.reproductions.outcomes import METRICS, Labels, Results


def higher(
    metric: str,
    better: Labels,
    worse: Labels,
    by: Sequence[str] = ("clicks",),
    where: Labels | None = None,
    need: Need = "all",
) -> Check:
    """Check that ``better`` is above ``worse`` in all, most (more than half) or any of the combinations of ``by``.

    Args:
        by: label keys that both sides share, e.g. click model and ε.
        where: labels of the compared runs.
    """

    def check(results: Results) -> Verdict:
        return judged(_compared(results, metric, better, worse, by, where), Difference.above, need)

    return check


def significantly_higher(
    metric: str,
    better: Labels,
    worse: Labels,
    comparisons: int,
    by: Sequence[str] = ("clicks",),
    where: Labels | None = None,
) -> Check:
    """Check that ``better`` is above ``worse`` everywhere, at a level divided by a paper's number of comparisons."""

    def check(results: Results) -> Verdict:
        found = _compared(results, metric, better, worse, by, where)
        return judged(found, lambda one, level: one.above(level / comparisons))

    return check


def not_above(
    metric: str,
    first: Labels,
    second: Labels,
    margin: float,
    by: Sequence[str] = ("clicks",),
    where: Labels | None = None,
) -> Check:
    """Check that ``first`` is nowhere above ``second`` by more than ``margin``."""
    return lambda results: judged(
        _compared(results, metric, first, second, by, where), lambda one, level: one.at_most(margin, level)
    )


def above_by(
    metric: str,
    first: Labels,
    second: Labels,
    margin: float,
    by: Sequence[str] = ("clicks",),
    where: Labels | None = None,
) -> Check:
    """Check that ``first`` is everywhere above ``second`` by more than ``margin``."""
    return lambda results: judged(
        _compared(results, metric, first, second, by, where), lambda one, level: one.at_least(margin, level)
    )


def similar(
    metric: str, key: str, tolerance: float, by: Sequence[str] = ("clicks",), where: Labels | None = None
) -> Check:
    """Check that all values of the label ``key`` are within ``tolerance`` of each other, everywhere."""

    def check(results: Results) -> Verdict:
        return judged(_pairs(results, metric, key, by, where), lambda one, level: one.within(tolerance, level))

    return check


def insignificant(
    metric: str, key: str, visible: float, by: Sequence[str] = ("clicks",), where: Labels | None = None
) -> Check:
    """Check that no two values of the label ``key`` differ significantly, as `none_significant`."""

    def check(results: Results) -> Verdict:
        return none_significant(
            _pairs(results, metric, key, by, where), lambda one, level: one.above(level) or one.below(level), visible
        )

    return check


def increasing(
    metric: str,
    key: str,
    values: Sequence[str] = (),
    by: Sequence[str] = ("clicks",),
    where: Labels | None = None,
    need: Need = "all",
) -> Check:
    """Check that along ``values`` (default: the grid's) the last is above the first and no step goes down."""

    def check(results: Results) -> Verdict:
        chosen = results.select(where or {})
        order = list(values or chosen.labels(key))
        rises, falls = {}, []
        for place, labels in places(chosen, by):
            steps = [chosen.select({**labels, key: value}) for value in order]
            rises[place] = difference(steps[-1], steps[0], metric)
            if any(difference(after, before, metric).below() for before, after in pairwise(steps)):
                falls.append(place)
        verdict = judged(rises, Difference.above, need, falls)
        if not falls or verdict.status is Status.NOT_TESTABLE:
            return verdict
        return Verdict(verdict.status, f"{verdict.found}; a step goes down: {', '.join(falls)}")

    return check


def tends_up(
    metric: str, key: str, values: Sequence[str], by: Sequence[str] = ("clicks",), where: Labels | None = None
) -> Check:
    """Check that the mean of the last of ``values`` is above that of the first everywhere, with no test of chance."""

    def check(results: Results) -> Verdict:
        ends = ({key: values[-1]}, {key: values[0]})
        return judged(_compared(results, metric, *ends, by, where), lambda one, _: one.mean > 0.0)

    return check


def leads_most(
    metric: str, better: Labels, worse: Labels, at: Labels, than: Sequence[Labels], by: Sequence[str] = ()
) -> Check:
    """Check that the lead of ``better`` over ``worse`` is larger at one place than at each of some others."""

    def check(results: Results) -> Verdict:
        found = {}
        for place, labels in places(results.select(at), by):
            here, *others = (_lead(results.select({**labels, **where}), metric, better, worse) for where in (at, *than))
            for where, other in zip(than, others, strict=True):
                name = ", ".join(filter(None, (place, f"more than with {', '.join(where.values())}")))
                found[name] = minus(here, other)
        return judged(found, Difference.above)

    return check


def learns(metric: str, by: Sequence[str] = ("clicks",), where: Labels | None = None, need: Need = "all") -> Check:
    """Check that the curve ends above its start."""

    def check(results: Results) -> Verdict:
        return judged(
            {place: _rise(there, metric) for place, there in _each(results, by, where)}, Difference.above, need
        )

    return check


def learns_nothing(metric: str, margin: float, by: Sequence[str] = ("clicks",), where: Labels | None = None) -> Check:
    """Check that no curve ends above its start by more than ``margin``."""

    def check(results: Results) -> Verdict:
        rises = {place: _rise(there, metric) for place, there in _each(results, by, where)}
        return judged(rises, lambda one, level: one.at_most(margin, level))

    return check


def declines(metric: str, by: Sequence[str] = ("clicks",), where: Labels | None = None, need: Need = "all") -> Check:
    """Check that the curve ends below its best value, as `_drop` finds it."""

    def check(results: Results) -> Verdict:
        drops = {place: _drop(there, metric) for place, there in _each(results, by, where)}
        return judged(drops, Difference.below, need)

    return check


def learns_unreliably(
    metric: str, margin: float, by: Sequence[str] = ("clicks",), where: Labels | None = None
) -> Check:
    """Check that somewhere the curve ends below its best value, or above its start by less than ``margin``."""

    def check(results: Results) -> Verdict:
        found = {}
        for place, there in _each(results, by, where):
            rise = _rise(there, metric)
            found[f"{place}, end - best"] = _drop(there, metric)
            found[f"{place}, end - start - {margin:g}"] = replace(rise, mean=rise.mean - margin)
        return judged(found, Difference.below, "any")

    return check


def loses(
    metric: str,
    ideal: Labels,
    actual: Labels,
    at_least: float,
    by: Sequence[str] = ("clicks",),
) -> Check:
    """Check that ``actual`` loses at least this share of ``ideal``, everywhere."""

    def check(results: Results) -> Verdict:
        losses = _losses(results, metric, ideal, actual, by)
        verdict = judged(losses, lambda one, level: one.at_least(at_least, level))
        return verdict if verdict.status is Status.NOT_TESTABLE else Verdict(verdict.status, _loss_numbers(losses))

    return check


def mean_loss_between(
    metric: str, ideal: Labels, actual: Labels, bounds: tuple[float, float], by: Sequence[str] = ("clicks",)
) -> Check:
    """Check that the share of ``ideal`` that ``actual`` loses on average is between the bounds, everywhere."""

    def check(results: Results) -> Verdict:
        losses = _losses(results, metric, ideal, actual, by)
        verdict = judged(losses, lambda one, _: bounds[0] <= one.mean <= bounds[1])
        return verdict if verdict.status is Status.NOT_TESTABLE else Verdict(verdict.status, _loss_numbers(losses))

    return check


def not_testable(reason: str) -> Check:
    """A claim that cannot be tested with the data or the scale."""
    return lambda _: Verdict(Status.NOT_TESTABLE, reason)


def only_on(n_grades: int, reason: str, check: Check) -> Check:
    """Restrict a check to one kind of data (3 grades: MQ2007/2008; 5 grades: MSLR-WEB10K and Yahoo!)."""

    def checked(results: Results) -> Verdict:
        return check(results) if results.data.n_grades == n_grades else Verdict(Status.NOT_TESTABLE, reason)

    return checked


def only_named(names: Sequence[str], check: Check) -> Check:
    """Restrict a check to some data sets, if findings differ between sets of one kind. A sample counts as its set."""

    def checked(results: Results) -> Verdict:
        if _set_name(results) in map(str.lower, names):
            return check(results)
        return Verdict(Status.NOT_TESTABLE, f"a claim on {' and '.join(names)}, which this data is not")

    return checked


def except_on(name: str, own: Check, check: Check) -> Check:
    """Judge one data set, named as for `only_named`, by a check of its own, and all others by the other."""
    return lambda results: (own if _set_name(results) == name.lower() else check)(results)


def among(key: str, values: Sequence[str], check: Check) -> Check:
    """Restrict a check to the runs with one of these values of a label."""
    return lambda results: check(Results(tuple(one for one in results if one.labels.get(key) in values), results.data))


def named(name: str, check: Check) -> Check:
    """Put a name before what a check found, to tell it from others."""

    def checked(results: Results) -> Verdict:
        verdict = check(results)
        return Verdict(verdict.status, f"{name}: {verdict.found}")

    return checked


def both(*checks: Check) -> Check:
    """Confirmed if all checks are; not testable if none is false and one cannot be tested."""

    def checked(results: Results) -> Verdict:
        verdicts = [check(results) for check in checks]
        states = {verdict.status for verdict in verdicts}
        found = "; ".join(dict.fromkeys(verdict.found for verdict in verdicts))
        for status in (Status.NOT_CONFIRMED, Status.NOT_TESTABLE):
            if status in states:
                return Verdict(status, found)
        return Verdict(Status.CONFIRMED, found)

    return checked


def places(results: Results, by: Sequence[str]) -> list[tuple[str, dict[str, str]]]:
    """Return the occurring combinations of ``by``, each with a name. One without a name if ``by`` is empty."""
    return [(", ".join(labels.values()), labels) for labels in results.combinations(by)]


def _set_name(results: Results) -> str:
    return results.data.name.split("/")[0].lower().replace("mslr-sample", "mslr-web10k")


def _compared(
    results: Results, metric: str, first: Labels, second: Labels, by: Sequence[str], where: Labels | None
) -> dict[str, Difference]:
    chosen = results.select(where or {})
    return {
        place: difference(chosen.select({**labels, **first}), chosen.select({**labels, **second}), metric)
        for place, labels in places(chosen.select(first), by)
    }


def _pairs(results: Results, metric: str, key: str, by: Sequence[str], where: Labels | None) -> dict[str, Difference]:
    """Return the differences of all pairs of the label's values, the later of the grid minus the earlier."""
    found = {}
    for place, there in _each(results, by, where):
        for one, other in combinations(there.labels(key), 2):
            name = ", ".join(filter(None, (place, f"{other} - {one}")))
            found[name] = difference(there.select({key: other}), there.select({key: one}), metric)
    return found


def _lead(results: Results, metric: str, better: Labels, worse: Labels) -> dict[int, float]:
    one, other = (results.select(labels).by_seed(metric) for labels in (better, worse))
    return {seed: one[seed] - other[seed] for seed in one.keys() & other.keys()}


def _losses(results: Results, metric: str, ideal: Labels, actual: Labels, by: Sequence[str]) -> dict[str, Difference]:
    found = {}
    for place, labels in places(results.select(ideal), by):
        whole, rest = (results.select({**labels, **which}).by_seed(metric) for which in (ideal, actual))
        seeds = sorted(whole.keys() & rest.keys())
        found[place] = difference_of(np.array([1.0 - rest[seed] / whole[seed] for seed in seeds]))
    return found


def _loss_numbers(losses: Differences) -> str:
    numbers = (f"{place} {100 * one.mean:.1f} ± {100 * one.standard_error:.1f} %" for place, one in losses.items())
    return "loss: " + "; ".join(numbers)


def _rise(results: Results, metric: str) -> Difference:
    curves = [METRICS[metric].curve(one.result)[:, 1] for one in results]
    return difference_of(np.array([curve[-1] - curve[0] for curve in curves], np.float64))


def _drop(results: Results, metric: str) -> Difference:
    """Return the end of the curves minus their best value.

    The best round of each seed is that of the other seeds' mean curve: the highest of many noisy values is luck, and
    every curve ends below its own.
    """
    curves = np.array([METRICS[metric].curve(one.result)[:, 1] for one in results], np.float64)
    if len(curves) < 2:
        return Difference(0.0, float("nan"), len(curves))
    best = (curves.sum(axis=0) - curves).argmax(axis=1)
    return difference_of(curves[:, -1] - curves[np.arange(len(curves)), best])


def _each(results: Results, by: Sequence[str], where: Labels | None) -> list[tuple[str, Results]]:
    chosen = results.select(where or {})
    return [(place, chosen.select(labels)) for place, labels in places(chosen, by)]
