"""Claims of papers, and functions that compute a verdict from the results.

Two settings are compared by the differences of runs with the same seed (so the same fold, users and clicks, as far as
the methods allow). One is above the other if the mean difference is above zero by Student's t test, paired, one-sided,
at 5 %. With one seed the standard error is unknown and no verdict is possible.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from foltr_research.reproductions.outcomes import METRICS, Labels, Results

# Quantiles of Student's t for a one-sided test at 5 %, for 1 to 30 degrees of freedom. The last is used beyond.
_T = (
    *(6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812),
    *(1.796, 1.782, 1.771, 1.761, 1.753, 1.746, 1.740, 1.734, 1.729, 1.725),
    *(1.721, 1.717, 1.714, 1.711, 1.708, 1.706, 1.703, 1.701, 1.699, 1.697),
)

# The same for a two-sided interval at 95 %.
_T_OF_INTERVAL = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
    *(2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042),
)

HIGHER = "the paired difference over seeds is above 0 (Student's t, one-sided, 5 %)"
LOWER = "the paired difference over seeds is below 0 (Student's t, one-sided, 5 %)"


class Status(StrEnum):
    CONFIRMED = "confirmed"
    NOT_CONFIRMED = "not confirmed"
    NOT_TESTABLE = "not testable here"


@dataclass(frozen=True)
class Verdict:
    """A verdict on a claim, with its numbers in one line."""

    status: Status
    found: str


Check = Callable[[Results], Verdict]
Need = Literal["all", "most", "any"]


@dataclass(frozen=True)
class Claim:
    """A statement of a paper in our words, its source, and the check that would confirm it."""

    text: str
    source: str
    criterion: str
    check: Check


@dataclass(frozen=True)
class Difference:
    """A difference of two settings over common seeds: mean, standard error (NaN for one seed), number of seeds."""

    mean: float
    standard_error: float
    n: int

    @property
    def above(self) -> bool:
        return self.mean > self._margin

    @property
    def below(self) -> bool:
        return self.mean < -self._margin

    @property
    def half_width(self) -> float:
        """Return the half-width of the mean's 95 % interval, by Student's t; NaN for one seed."""
        return _T_OF_INTERVAL[min(self.n - 1, len(_T_OF_INTERVAL)) - 1] * self.standard_error

    def __str__(self) -> str:
        return f"{self.mean:+.3f} ± {self.standard_error:.3f}"

    @property
    def _margin(self) -> float:
        return _T[min(self.n - 1, len(_T)) - 1] * self.standard_error if self.n > 1 else float("inf")


def difference_of(values: NDArray[np.float64]) -> Difference:
    """Summarise (seeds,) paired differences."""
    n = len(values)
    error = float(values.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
    return Difference(float(values.mean()) if n else float("nan"), error, n)


def difference(first: Results, second: Results, metric: str) -> Difference:
    """Return first minus second, over the seeds that both have."""
    one, two = first.by_seed(metric), second.by_seed(metric)
    return difference_of(np.array([one[seed] - two[seed] for seed in sorted(one.keys() & two.keys())], np.float64))


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
        chosen = results.select(where or {})
        differences = {
            place: difference(chosen.select({**labels, **better}), chosen.select({**labels, **worse}), metric)
            for place, labels in _places(chosen.select(better), by)
        }
        return _verdict(differences, need=need, held={place: found.above for place, found in differences.items()})

    return check


def similar(
    metric: str, key: str, tolerance: float, by: Sequence[str] = ("clicks",), where: Labels | None = None
) -> Check:
    """Check that the means of all values of the label ``key`` are within ``tolerance`` of each other, everywhere."""

    def check(results: Results) -> Verdict:
        chosen = results.select(where or {})
        spreads = {}
        for place, labels in _places(chosen, by):
            there = chosen.select(labels)
            means = [there.select({key: value}).mean(metric) for value in there.labels(key)]
            spreads[place] = max(means) - min(means) if len(means) > 1 else float("nan")
        if not spreads or all(np.isnan(list(spreads.values()))):
            return Verdict(Status.NOT_TESTABLE, "no runs to compare")
        held = all(spread <= tolerance for spread in spreads.values())
        found = "largest difference of means: " + _listed({place: f"{spread:.3f}" for place, spread in spreads.items()})
        return Verdict(Status.CONFIRMED if held else Status.NOT_CONFIRMED, found)

    return check


def not_above(
    metric: str,
    first: Labels,
    second: Labels,
    margin: float,
    by: Sequence[str] = ("clicks",),
    where: Labels | None = None,
) -> Check:
    """Check that the mean of ``first`` is nowhere above that of ``second`` by more than ``margin``."""

    def check(results: Results) -> Verdict:
        chosen = results.select(where or {})
        differences = {
            place: difference(chosen.select({**labels, **first}), chosen.select({**labels, **second}), metric)
            for place, labels in _places(chosen.select(first), by)
        }
        return _verdict(
            differences, need="all", held={place: found.mean <= margin for place, found in differences.items()}
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
        for place, labels in _places(chosen, by):
            steps = [chosen.select({**labels, key: value}) for value in order]
            rises[place] = difference(steps[-1], steps[0], metric)
            if any(difference(after, before, metric).below for before, after in pairwise(steps)):
                falls.append(place)
        verdict = _verdict(
            rises, need=need, held={place: rise.above and place not in falls for place, rise in rises.items()}
        )
        if not falls or verdict.status is Status.NOT_TESTABLE:
            return verdict
        return Verdict(verdict.status, f"{verdict.found}; a step goes down: {', '.join(falls)}")

    return check


def learns(
    metric: str,
    by: Sequence[str] = ("clicks",),
    where: Labels | None = None,
    at_least: float = 0.0,
    need: Need = "all",
) -> Check:
    """Check that the curve ends above its start by more than ``at_least``."""

    def check(results: Results) -> Verdict:
        rises = {place: _rise(there, metric) for place, there in _each(results, by, where)}
        return _verdict(
            rises,
            need=need,
            held={
                place: Difference(found.mean - at_least, found.standard_error, found.n).above
                for place, found in rises.items()
            },
        )

    return check


def learns_nothing(metric: str, margin: float, by: Sequence[str] = ("clicks",), where: Labels | None = None) -> Check:
    """Check that no mean curve ends above its start by more than ``margin``."""

    def check(results: Results) -> Verdict:
        rises = {place: _rise(there, metric) for place, there in _each(results, by, where)}
        return _verdict(rises, need="all", held={place: found.mean <= margin for place, found in rises.items()})

    return check


def declines(
    metric: str,
    by: Sequence[str] = ("clicks",),
    where: Labels | None = None,
    need: Need = "all",
) -> Check:
    """Check that the mean curve ends below its best value by more than chance: a paired test between both rounds."""

    def check(results: Results) -> Verdict:
        drops = {}
        for place, there in _each(results, by, where):
            best = int(there.curve(metric).mean.argmax())
            curves = [METRICS[metric].curve(one.result)[:, 1] for one in there]
            drops[place] = difference_of(np.array([curve[-1] - curve[best] for curve in curves], np.float64))
        return _verdict(drops, need=need, held={place: found.below for place, found in drops.items()})

    return check


def relative_loss(
    metric: str, ideal: Labels, actual: Labels, at_least: float, by: Sequence[str] = ("clicks",)
) -> Check:
    """Check that ``actual`` is below ``ideal`` by at least this share of it (in the means), everywhere."""

    def check(results: Results) -> Verdict:
        losses = {
            place: 1.0
            - results.select({**labels, **actual}).mean(metric) / results.select({**labels, **ideal}).mean(metric)
            for place, labels in _places(results.select(ideal), by)
        }
        if not losses or np.isnan(list(losses.values())).any():
            return Verdict(Status.NOT_TESTABLE, "no runs to compare")
        held = all(loss >= at_least for loss in losses.values())
        return Verdict(
            Status.CONFIRMED if held else Status.NOT_CONFIRMED,
            "loss: " + _listed({place: f"{loss:.0%}" for place, loss in losses.items()}),
        )

    return check


def not_testable(reason: str) -> Check:
    """A claim that cannot be tested with the data or the scale."""
    return lambda _: Verdict(Status.NOT_TESTABLE, reason)


def only_on(n_grades: int, reason: str, check: Check) -> Check:
    """Restrict a check to one kind of data (3 grades: MQ2007/2008; 5 grades: MSLR-WEB10K and Yahoo!)."""

    def checked(results: Results) -> Verdict:
        return check(results) if results.data.n_grades == n_grades else Verdict(Status.NOT_TESTABLE, reason)

    return checked


def both(*checks: Check) -> Check:
    """Confirmed if all checks are; not testable if none is."""

    def checked(results: Results) -> Verdict:
        verdicts = [check(results) for check in checks]
        testable = [verdict for verdict in verdicts if verdict.status is not Status.NOT_TESTABLE]
        if not testable:
            return verdicts[0]
        held = all(verdict.status is Status.CONFIRMED for verdict in testable)
        return Verdict(
            Status.CONFIRMED if held else Status.NOT_CONFIRMED, "; ".join(verdict.found for verdict in verdicts)
        )

    return checked


def _rise(results: Results, metric: str) -> Difference:
    curves = [METRICS[metric].curve(one.result)[:, 1] for one in results]
    return difference_of(np.array([curve[-1] - curve[0] for curve in curves], np.float64))


def _places(results: Results, by: Sequence[str]) -> list[tuple[str, dict[str, str]]]:
    """Return the occurring combinations of ``by``, each with a name. One without a name if ``by`` is empty."""
    return [(", ".join(labels.values()), labels) for labels in results.combinations(by)]


def _each(results: Results, by: Sequence[str], where: Labels | None) -> list[tuple[str, Results]]:
    chosen = results.select(where or {})
    return [(place, chosen.select(labels)) for place, labels in _places(chosen, by)]


def _verdict(differences: dict[str, Difference], held: dict[str, bool], need: Need) -> Verdict:
    """Make a verdict from the differences by place, and the places that satisfy the claim."""
    if not differences or any(found.n == 0 for found in differences.values()):
        return Verdict(Status.NOT_TESTABLE, "no runs to compare")
    if any(found.n == 1 for found in differences.values()):
        return Verdict(Status.NOT_TESTABLE, "one seed has no standard error; run with more seeds")
    n_held = sum(held.values())
    enough = {"all": len(differences), "most": len(differences) // 2 + 1, "any": 1}[need]
    found = _listed({place: str(value) for place, value in differences.items()})
    if len(differences) > 1:
        found = f"{n_held} of {len(differences)}: {found}"
    return Verdict(Status.CONFIRMED if n_held >= enough else Status.NOT_CONFIRMED, found)


def _listed(values: dict[str, str]) -> str:
    return "; ".join(f"{place} {value}" if place else value for place, value in values.items())
