"""Measures of quality kept under attack, relative to the same seed without, and verdicts on the adaptive defence.

The labels are those of the experiment `robustness`: attack, share, rule, clicks.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from foltr_research.attacks.presence import n_rounds_there
from foltr_research.reproductions.claims import (
    NOTHING,
    Check,
    Difference,
    Status,
    Verdict,
    decided,
    difference_of,
    judged,
)
from foltr_research.reproductions.outcomes import Labels, Outcome, Results
from foltr_research.simulation.config import attack_of

METRIC = "late"
NOBODY, HONEST, ADAPTIVE = "nobody", "mean", "adaptive"
# Rounding tolerance of float32 sums at a bound.
_LAST_DIGITS = 1e-6


@dataclass(frozen=True)
class Place:
    """An attack by a share of the clients, with one click model."""

    attack: str
    share: str
    clicks: str

    def __str__(self) -> str:
        return f"{self.attack}, {self.share}, {self.clicks}"


Kept = Mapping[Place, Mapping[str, NDArray[np.float64]]]
"""By place and rule: (seeds,) nDCG@10 relative to the mean without attackers, in order of seed."""


def kept(results: Results) -> Kept:
    """Return the kept share of every run that has an honest counterpart."""
    found: dict[Place, dict[str, dict[int, float]]] = {}
    for one in results:
        place = Place(one.labels["attack"], one.labels["share"], one.labels["clicks"])
        found.setdefault(place, {}).setdefault(one.labels["rule"], {})[one.seed] = one.value(METRIC)
    honest = {place.clicks: rules.get(HONEST, {}) for place, rules in found.items() if place.attack == NOBODY}
    return {
        place: {
            rule: np.array([values[seed] / honest[place.clicks][seed] for seed in sorted(values)])
            for rule, values in rules.items()
            if values.keys() <= honest.get(place.clicks, {}).keys()
        }
        for place, rules in found.items()
    }


@dataclass(frozen=True)
class Comparison:
    """The adaptive defence and the best fixed rule at one place.

    Attributes:
        rule: the one with the highest mean over seeds, a choice that favours luck, more so with more rules.
        adaptive, best: what they keep.
        difference: adaptive minus best with the same seed, relative to the mean of the best.
        chosen_elsewhere: likewise, but each seed is compared with the rule that was best on the other seeds, which
            removes the luck.
    """

    place: Place
    rule: str
    adaptive: float
    best: float
    difference: Difference
    chosen_elsewhere: Difference

    def below_by_more_than(self, tolerance: float) -> bool:
        """Whether adaptive is below the best by more than the tolerance, beyond chance."""
        found = self.difference
        return found.at_most(-tolerance)


def comparisons(table: Kept) -> list[Comparison]:
    """Compare at every place with attackers that has the adaptive defence and others."""
    found = []
    for place, rules in table.items():
        fixed = {rule: values for rule, values in rules.items() if rule != ADAPTIVE}
        if place.attack == NOBODY or ADAPTIVE not in rules or not fixed:
            continue
        own = rules[ADAPTIVE]
        name = max(fixed, key=lambda rule: float(fixed[rule].mean()))
        best = float(fixed[name].mean())
        found.append(
            Comparison(
                place,
                name,
                float(own.mean()),
                best,
                difference_of((own - fixed[name]) / best),
                difference_of((own - _chosen_elsewhere(fixed)) / best),
            )
        )
    return found


def worst_cases(table: Kept) -> dict[str, tuple[float, Place]]:
    """Return the least that each rule keeps (mean over seeds), and the place, of rules run at all places with
    attackers."""
    attacked = {place: rules for place, rules in table.items() if place.attack != NOBODY}
    names = dict.fromkeys(rule for rules in attacked.values() for rule in rules)
    return {
        name: min(((float(rules[name].mean()), place) for place, rules in attacked.items()), key=lambda pair: pair[0])
        for name in names
        if all(name in rules for rules in attacked.values())
    }


@dataclass(frozen=True)
class Detection:
    """What the adaptive defence did in one run.

    Attributes:
        rounds: until every attacker had been excluded at least once; infinite if never.
        hostile_left_out: excluded share of the attackers' updates; NaN without attackers.
        honest_clients: honest clients that were excluded at some time.
        honest_left_out: excluded share of the honest clients' updates.
        honest_shortened: clipped share of the honest clients' updates.
    """

    rounds: float
    hostile_left_out: float
    honest_clients: int
    honest_left_out: float
    honest_shortened: float


def detection(one: Outcome) -> Detection:
    """Read a detection from the run's record."""
    record = one.result["robustness"]
    hostile, dropped = set(record["attackers"]), record["dropped"]
    first: dict[str, int] = {}
    for finding in record["findings"]:
        if finding["kind"] == "defence_raised" and finding["client"] in hostile:
            first.setdefault(finding["client"], finding["round"])
    config, attack = one.config, attack_of(one.config)
    # Expected updates of a client that is drawn for rounds. An attacker may join late.
    drawn = (config.participants or config.clients) / config.clients
    of_attackers = drawn * config.attackers * (0 if attack is None else n_rounds_there(attack, config.rounds))
    of_honest = drawn * (config.clients - config.attackers) * config.rounds
    honest = {name: count for name, count in dropped.items() if name not in hostile}
    shortened = sum(count for name, count in record["clipped"].items() if name not in hostile)
    return Detection(
        float(max(first.values(), default=0)) if first.keys() == hostile else inf,
        sum(dropped.get(name, 0) for name in hostile) / of_attackers if of_attackers else float("nan"),
        len(honest),
        sum(honest.values()) / of_honest,
        shortened / of_honest,
    )


def recorded(results: Iterable[Outcome]) -> list[Outcome]:
    """Return the runs of the adaptive defence that have a record."""
    return [one for one in results if one.labels["rule"] == ADAPTIVE and one.result.get("robustness") is not None]


def costs_at_most(tolerance: float, where: Labels) -> Check:
    """``adaptive`` is below the mean by at most ``tolerance`` of it. Also counts runs that are exactly equal."""

    def check(results: Results) -> Verdict:
        chosen = results.select(where)
        parts, costs = [], {}
        for labels in chosen.combinations(("clicks",)):
            first, second = (
                {one.seed: one for one in chosen.select({**labels, "rule": rule})} for rule in (ADAPTIVE, HONEST)
            )
            seeds = sorted(first.keys() & second.keys())
            if not seeds:
                continue
            pairs = [(first[seed], second[seed]) for seed in seeds]
            found = difference_of(np.array([one.value(METRIC) / other.value(METRIC) - 1 for one, other in pairs]))
            equal = sum(_same_course(one, other) for one, other in pairs)
            parts.append(f"{labels['clicks']} {percent(found)}, {equal} of {len(pairs)} runs equal to the last digit")
            costs[labels["clicks"]] = found
        verdict = judged(costs, lambda one, level: one.at_least(-tolerance, level))
        return Verdict(verdict.status, "; ".join(parts)) if parts else verdict

    return check


def near_best(tolerance: float) -> Check:
    """``adaptive`` is nowhere more than ``tolerance`` below the best fixed rule. Also counts exceptions and chance."""

    def check(results: Results) -> Verdict:
        found = comparisons(kept(results))
        if not found or found[0].difference.n < 2:
            return Verdict(Status.NOT_TESTABLE, "no runs to compare" if not found else "one seed has no standard error")
        below = [one for one in found if one.difference.mean < -tolerance]
        fairly = sum(one.chosen_elsewhere.mean < -tolerance for one in found)
        numbers = f"within {100 * tolerance:.0f} % at {len(found) - len(below)} of {len(found)} places"
        if below:
            worst = min(below, key=lambda one: one.difference.mean)
            beyond = sum(one.below_by_more_than(tolerance) for one in below)
            numbers += (
                f", beyond chance below at {beyond}; the largest lag is {percent(worst.difference)} ({worst.place}, "
                f"against {worst.rule})"
            )
        numbers += f"; against the rule that the other seeds would choose it is below at {fairly}"
        return decided(not below, numbers)

    return check


def best_worst_case(results: Results) -> Verdict:
    """What ``adaptive`` keeps in its worst place is above what each other rule keeps in its own."""
    table = kept(results)
    found = worst_cases(table)
    if ADAPTIVE not in found or len(found) < 2:
        return NOTHING
    least = {rule: table[place][rule] for rule, (_, place) in found.items()}
    leads = {rule: difference_of(least[ADAPTIVE] - values) for rule, values in least.items() if rule != ADAPTIVE}
    verdict = judged(leads, Difference.above)
    if verdict.status is Status.NOT_TESTABLE:
        return verdict
    order = sorted(found, key=lambda rule: -found[rule][0])
    numbers = "; ".join(f"{rule} {100 * found[rule][0]:.1f} % ({found[rule][1]})" for rule in order)
    return Verdict(verdict.status, numbers)


def nobody_left_out(results: Results) -> Verdict:
    """``adaptive`` never excluded an honest client."""
    runs = recorded(results)
    if not runs:
        return Verdict(Status.NOT_TESTABLE, "no runs to look at")
    found = [detection(one) for one in runs]
    wrong = [one for one in found if one.honest_clients]
    share = float(np.mean([one.honest_left_out for one in found]))
    numbers = f"in {len(wrong)} of {len(found)} runs one or more were left out at some time"
    numbers += f"; {100 * share:.2f} % of all honest updates"
    return decided(not wrong, numbers)


def within_budgets(results: Results) -> Verdict:
    """In no round of ``adaptive`` was any client farther from the median client than a budget."""
    runs = recorded(results)
    found = [one.result["robustness"].get("farthest") for one in runs]
    if not runs or None in found:
        return Verdict(Status.NOT_TESTABLE, "not every run has a record of it")
    most, rounds = max(found), sum(one.config.rounds for one in runs)
    numbers = f"{len(runs):,} runs, {rounds:,} rounds in all; the farthest is {most:.9f} of a budget"
    return decided(most <= 1.0 + _LAST_DIGITS, numbers)


def percent(found: Difference) -> str:
    return f"{100 * found.mean:+.1f} ± {100 * found.standard_error:.1f} %"


def _same_course(one: Outcome, other: Outcome) -> bool:
    """Whether two runs had the same lists and rankers, as far as the results show."""
    return all(one.result[key] == other.result[key] for key in ("ndcg_at_10", "online_per_round"))


def _chosen_elsewhere(fixed: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    """(seeds,) what the rule with the highest mean over the other seeds keeps; NaN for a single seed."""
    values = np.stack(list(fixed.values()))
    n = values.shape[1]
    if n == 1:
        return np.full(1, np.nan)
    others = (values.sum(axis=1, keepdims=True) - values) / (n - 1)
    chosen: NDArray[np.float64] = values[others.argmax(axis=0), np.arange(n)]
    return chosen
