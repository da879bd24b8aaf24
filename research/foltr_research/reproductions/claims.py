"""Claims of papers, and the rules that make a verdict of differences. `checks` has what compares settings.

Two settings are compared by the differences of runs with the same seed (so the same fold, users and clicks, as far as
the methods allow), with the papers' test: Student's t, paired, two-sided. One is above the other if their difference is
positive and differs from zero at 5 %. Two are similar if the 90 % interval of their difference is within a tolerance,
which is two one-sided tests at 5 %. With one seed the standard error is unknown and no verdict is possible.

A claim about several cells needs all of them, each at 5 %: chance alone confirms it at most as often as one cell. If a
claim needs only some, the level is divided by one plus the number of cells that may fail (Bonferroni). If it is a
mark of significance in a paper's table, the level is divided by the number of comparisons of that table.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr, stdtrit

from foltr_research.reproductions.outcomes import Results

LEVEL = 0.05
HIGHER = "the paired difference over seeds is above 0 (Student's t, two-sided, 5 %)"
HIGHER_IN_MOST = f"{HIGHER[:-1]} divided by one plus the number of cells that may fail)"
LOWER = "the paired difference over seeds is below 0 (Student's t, two-sided, 5 %)"
RANGE = "the 90 % interval of the paired difference"
SIGNIFICANT = "Student's t, paired, two-sided, 5 % divided by the number of comparisons"


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

NOTHING = Verdict(Status.NOT_TESTABLE, "no runs to compare")
ONE_SEED = Verdict(Status.NOT_TESTABLE, "one seed has no standard error; run with more seeds")


def decided(held: bool, found: str) -> Verdict:
    """Return the verdict of a claim that can be tested."""
    return Verdict(Status.CONFIRMED if held else Status.NOT_CONFIRMED, found)


@dataclass(frozen=True)
class Claim:
    """A statement of a paper in our words, its source, and the check that would confirm it."""

    text: str
    source: str
    criterion: str
    check: Check

    def judge(self, results: Results) -> Verdict:
        """Return the verdict. One seed gives none with any check."""
        return ONE_SEED if len({one.seed for one in results}) == 1 else self.check(results)


@dataclass(frozen=True)
class Difference:
    """A difference of two settings over common seeds: mean, standard error (NaN for one seed), number of seeds."""

    mean: float
    standard_error: float
    n: int

    @property
    def p(self) -> float:
        """Return the probability of a mean at least as far from 0, if there is no difference; NaN for one seed."""
        if self.n < 2:
            return float("nan")
        if self.standard_error == 0.0:
            return float(self.mean == 0.0)
        return 2.0 * float(stdtr(self.n - 1, -abs(self.mean) / self.standard_error))

    def above(self, level: float = LEVEL) -> bool:
        return self.mean > 0.0 and self.p <= level

    def below(self, level: float = LEVEL) -> bool:
        return self.mean < 0.0 and self.p <= level

    def at_most(self, bound: float, level: float = LEVEL) -> bool:
        """Return whether the mean is at most the bound beyond chance: a one-sided test."""
        return self.mean + self.margin(2.0 * level) <= bound

    def at_least(self, bound: float, level: float = LEVEL) -> bool:
        return self.mean - self.margin(2.0 * level) >= bound

    def within(self, tolerance: float, level: float = LEVEL) -> bool:
        return self.at_most(tolerance, level) and self.at_least(-tolerance, level)

    def margin(self, level: float = LEVEL) -> float:
        """Return the half-width of the mean's interval, at 5 % that of 95 %; NaN for one seed."""
        return float(stdtrit(self.n - 1, 1.0 - level / 2.0)) * self.standard_error if self.n > 1 else float("nan")

    def __str__(self) -> str:
        return f"{self.mean:+.3f} ± {self.standard_error:.3f}"


Differences = Mapping[str, Difference]


def difference_of(values: NDArray[np.float64]) -> Difference:
    """Summarise (seeds,) paired differences."""
    n = len(values)
    error = float(values.std(ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
    return Difference(float(values.mean()) if n else float("nan"), error, n)


def difference(first: Results, second: Results, metric: str) -> Difference:
    """Return first minus second, over the seeds that both have."""
    return minus(first.by_seed(metric), second.by_seed(metric))


def minus(first: Mapping[int, float], second: Mapping[int, float]) -> Difference:
    """Summarise the differences of two values by seed."""
    return difference_of(np.array([first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())]))


def judged(
    differences: Differences,
    holds: Callable[[Difference, float], bool],
    need: Need = "all",
    failed: Collection[str] = (),
) -> Verdict:
    """Make a verdict from the differences by cell.

    Args:
        holds: whether a difference satisfies the claim at this level.
        need: of the cells: all, most (more than half) or any.
        failed: cells that fail for another reason.
    """
    if (untestable := _untestable(differences)) is not None:
        return untestable
    enough = {"all": len(differences), "most": len(differences) // 2 + 1, "any": 1}[need]
    level = LEVEL / (1 + len(differences) - enough)
    n_held = sum(holds(found, level) and place not in failed for place, found in differences.items())
    numbers = listed(differences)
    if len(differences) > 1:
        numbers = f"{n_held} of {len(differences)}: {numbers}"
    return decided(n_held >= enough, numbers)


def none_significant(differences: Differences, differs: Callable[[Difference, float], bool], visible: float) -> Verdict:
    """Make the verdict of a claim that nothing differs significantly.

    The level is divided by the number of differences, as in the papers. Few seeds make nothing significant, so the
    claim is not testable unless a difference of ``visible`` would be significant everywhere.
    """
    if (untestable := _untestable(differences)) is not None:
        return untestable
    level = LEVEL / len(differences)
    significant = {place: found for place, found in differences.items() if differs(found, level)}
    if significant:
        return decided(False, f"significant at {len(significant)} of {len(differences)}: {listed(significant)}")
    coarsest = max(found.margin(level) for found in differences.values())
    numbers = f"none of {len(differences)} differences is significant; one of {coarsest:.3f} would be everywhere"
    if coarsest > visible:
        return Verdict(Status.NOT_TESTABLE, f"{numbers}, but not one of {visible:g}: more seeds are needed")
    return decided(True, numbers)


def listed(differences: Differences) -> str:
    return "; ".join(f"{place} {value}" if place else str(value) for place, value in differences.items())


def _untestable(differences: Differences) -> Verdict | None:
    if not differences or any(found.n == 0 or np.isnan(found.mean) for found in differences.values()):
        return NOTHING
    return ONE_SEED if any(found.n == 1 for found in differences.values()) else None
