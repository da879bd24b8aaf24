"""Decisions, cost and benefit of clients' votes in runs: a table, and verdicts for claims.

The labels are those of the experiment `robustness-votes`: attack, share, rule, clicks.
"""

from itertools import groupby
from statistics import median

import numpy as np
from numpy.typing import NDArray

from foltr_research.reproductions.claims import Check, Difference, Status, Verdict, decided, difference_of, judged
from foltr_research.reproductions.outcomes import Outcome, Results
from foltr_research.reproductions.report import markdown
from foltr_research.reproductions.robustness.measures import HONEST, NOBODY, Kept, Place, kept, percent

VOTES = "mean, votes"
"""The rule of runs whose clients vote."""
ALONE = "lie: "
"""Prefix of attacks that consist only of lies in votes."""
_TAKEN, _MOVED = "take_back", "move_anchor"


def rounds_of(one: Outcome, verdict: str) -> list[int]:
    """Return the rounds in which the votes led to this verdict."""
    return [made["round"] for made in one.result["robustness"]["decisions"] if made["verdict"] == verdict]


def kept_with_votes(results: Results) -> str:
    """Return what is kept with votes and without, by attack, share and clicks."""
    table, rules = kept(results), results.labels("rule")
    rows = [
        [place.attack, place.share, place.clicks, *(_mean_and_error(there.get(rule)) for rule in rules)]
        for place, there in table.items()
    ]
    return "Mean over seeds ± standard error. A dash: not run.\n\n" + markdown(
        ["attack", "attackers", "clicks", *rules], rows, 3
    )


def decisions(results: Results) -> str:
    """Return how often models were taken back and the anchor moved, by attack, share, rule and clicks."""
    runs = [one for one in results if one.config.take_back]
    if not runs:
        return "No run has votes.\n"
    rows = []
    for key, group in groupby(runs, key=_key):
        alike = list(group)
        taken, moved = ([rounds_of(one, verdict) for one in alike] for verdict in (_TAKEN, _MOVED))
        firsts = [rounds[0] for rounds in taken if rounds]
        rows.append(
            [
                *key,
                f"{len(firsts)} of {len(alike)}",
                f"{np.mean([len(rounds) for rounds in taken]):.1f}",
                f"{median(firsts):.0f}" if firsts else "-",
                f"{np.mean([len(rounds) for rounds in moved]):.1f}",
                f"{median([rounds[0] for rounds in moved if rounds]):.0f}" if any(moved) else "-",
            ]
        )
    header = ["attack", "attackers", "rule", "clicks", "runs with a model taken back", "taken back in a run"]
    header += ["first in round", "moves of the anchor in a run", "first move in round"]
    return "Means over seeds; of first rounds the median of the runs that have one.\n\n" + markdown(header, rows, 4)


def nothing_taken_back(results: Results) -> Verdict:
    """No model was taken back in runs of honest clients."""
    runs = [one for one in results.select({"attack": NOBODY}) if one.config.take_back]
    if not runs:
        return Verdict(Status.NOT_TESTABLE, "no runs to look at")
    wrong = [one for one in runs if rounds_of(one, _TAKEN)]
    numbers = f"in {len(wrong)} of {len(runs)} runs"
    if wrong:
        numbers += ": " + ", ".join(sorted({one.labels["clicks"] for one in wrong}))
    return decided(not wrong, numbers)


def costs_at_most_with_votes(tolerance: float, attacks: str) -> Check:
    """With votes nDCG@10 is at most ``tolerance`` below the mean's without, under attacks whose name starts so."""

    def check(results: Results) -> Verdict:
        found = {
            place: difference_of(rules[VOTES] - 1.0)
            for place, rules in kept(results).items()
            if place.attack.startswith(attacks) and VOTES in rules
        }
        costs = {_named(place, attacks): cost for place, cost in found.items()}
        verdict = judged(costs, lambda one, level: one.at_least(-tolerance, level))
        if verdict.status is Status.NOT_TESTABLE:
            return verdict
        return Verdict(verdict.status, "; ".join(f"{name} {percent(cost)}" for name, cost in costs.items()))

    return check


def keeps_more_with_votes(ruined_below: float) -> Check:
    """The mean keeps more with votes at all places at which it keeps less than this share without (means)."""

    def check(results: Results) -> Verdict:
        found = _ruined(kept(results), ruined_below)
        if not found:
            return Verdict(Status.NOT_TESTABLE, f"the mean keeps {100 * ruined_below:.0f} % everywhere")
        gains = {str(place): difference_of(with_votes - without) for place, (without, with_votes) in found.items()}
        verdict = judged(gains, Difference.above)
        if verdict.status is Status.NOT_TESTABLE:
            return verdict
        n_more = sum(one.above() for one in gains.values())
        numbers = "; ".join(
            f"{place}: {100 * without.mean():.1f} % without, {100 * with_votes.mean():.1f} % with "
            f"({percent(gains[str(place)])})"
            for place, (without, with_votes) in found.items()
        )
        return Verdict(verdict.status, f"at {n_more} of {len(found)} places; {numbers}")

    return check


def _ruined(table: Kept, ruined_below: float) -> dict[Place, tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Return (seeds,) the shares kept without and with votes, at places at which the mean is ruined."""
    return {
        place: (rules[HONEST], rules[VOTES])
        for place, rules in table.items()
        if HONEST in rules and VOTES in rules and float(rules[HONEST].mean()) < ruined_below
    }


def _mean_and_error(values: NDArray[np.float64] | None) -> str:
    if values is None:
        return "-"
    spread = f" ± {100 * values.std(ddof=1) / np.sqrt(len(values)):.1f}" if len(values) > 1 else ""
    return f"{100 * values.mean():.1f}{spread}"


def _named(place: Place, attacks: str) -> str:
    return place.clicks if attacks == NOBODY else f"{place.attack}, {place.clicks}"


def _key(one: Outcome) -> tuple[str, str, str, str]:
    return one.labels["attack"], one.labels["share"], one.labels["rule"], one.labels["clicks"]
