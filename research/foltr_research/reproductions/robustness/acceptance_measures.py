"""How often devices accepted a model, what their test keeps and costs: a table, and verdicts for claims.

The labels are those of the experiment `robustness-acceptance`: attack, share, rule, clicks.
"""

from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from foltr_research.reproductions.claims import Check, Difference, Status, Verdict, difference_of
from foltr_research.reproductions.outcomes import Outcome, Results
from foltr_research.reproductions.robustness.measures import ADAPTIVE, HONEST, NOBODY, Place, kept, percent
from foltr_research.reproductions.robustness.tables import markdown

TEST = "mean, test"
"""The rule of runs whose devices take what is significantly better."""
LENIENT = "mean, better on average"
"""Of runs whose devices take what is better on average."""
ALONE = "alone"
"""Of runs whose clients take nothing and send nothing."""
_PARTS = 4


def acceptances(results: Results) -> str:
    """Return which share of their rounds honest clients took the newest model in, by quarters of the run."""
    runs = [one for one in results if one.config.acceptance_level is not None]
    if not runs:
        return "No run has a test.\n"
    rows = []
    for key, group in groupby(runs, key=_key):
        shares = np.mean([_by_part(one) for one in group], axis=0)
        rows.append([*key, *(f"{100 * share:.1f}" for share in (shares.mean(), *shares))])
    header = ["attack", "attackers", "clicks", "rule", "whole run", *(f"{i + 1}. quarter" for i in range(_PARTS))]
    return "Per cent of the rounds of honest clients; means over seeds.\n\n" + markdown(header, rows, 4)


def costs_at_most_with_test(tolerance: float) -> Check:
    """Where nobody attacks devices with the test rank at most that much worse than the mean's."""

    def check(results: Results) -> Verdict:
        return _held(
            {
                place: difference_of(rules[TEST] - rules[HONEST])
                for place, rules in kept(results).items()
                if place.attack == NOBODY and TEST in rules
            },
            tolerance,
        )

    return check


def keeps_more_with_test(ruined_below: float) -> Check:
    """Wherever the mean keeps less than that, devices with the test keep more."""

    def check(results: Results) -> Verdict:
        found = {
            place: (float(rules[HONEST].mean()), float(rules[TEST].mean()))
            for place, rules in kept(results).items()
            if HONEST in rules and TEST in rules and rules[HONEST].mean() < ruined_below
        }
        if not found:
            return Verdict(Status.NOT_TESTABLE, f"the mean keeps {100 * ruined_below:.0f} % everywhere")
        n_more = sum(tested > plain for plain, tested in found.values())
        numbers = "; ".join(
            f"{place}: {100 * plain:.1f} % without, {100 * tested:.1f} % with"
            for place, (plain, tested) in found.items()
        )
        held = n_more == len(found)
        return Verdict(
            Status.CONFIRMED if held else Status.NOT_CONFIRMED, f"at {n_more} of {len(found)} places; {numbers}"
        )

    return check


def better_than_alone(results: Results) -> Verdict:
    """Under every attack devices with the test rank better than those who learn alone."""
    table = kept(results)
    alone = {place.clicks: rules[ALONE] for place, rules in table.items() if ALONE in rules}
    return _held(
        {
            place: difference_of(rules[TEST] - alone[place.clicks])
            for place, rules in table.items()
            if place.attack != NOBODY and TEST in rules and place.clicks in alone
        }
    )


def adaptive_keeps_more(results: Results) -> Verdict:
    """Under every attack the ranker of `adaptive` is better than those of devices with the test."""
    return _held(
        {
            place: difference_of(rules[ADAPTIVE] - rules[TEST])
            for place, rules in kept(results).items()
            if place.attack != NOBODY and ADAPTIVE in rules and TEST in rules
        }
    )


def _held(found: dict[Place, Difference], tolerance: float = 0.0) -> Verdict:
    """Whether no mean difference is more than ``tolerance`` below 0."""
    if not found:
        return Verdict(Status.NOT_TESTABLE, "no runs to compare")
    numbers = "; ".join(f"{place} {_of_seeds(one)}" for place, one in found.items())
    good = [one.mean >= -tolerance for one in found.values()]
    return Verdict(
        Status.CONFIRMED if all(good) else Status.NOT_CONFIRMED, f"at {sum(good)} of {len(good)} places; {numbers}"
    )


def _of_seeds(found: Difference) -> str:
    """Return a mean in per cent, with its standard error where there is more than one seed."""
    return percent(found) if found.n > 1 else f"{100 * found.mean:+.1f} %"


def _by_part(one: Outcome) -> NDArray[np.float64]:
    shares = np.array(one.result["accepted_per_round"], np.float64)
    return np.array([part.mean() for part in np.array_split(shares, _PARTS)])


def _key(one: Outcome) -> tuple[str, str, str, str]:
    return one.labels["attack"], one.labels["share"], one.labels["clicks"], one.labels["rule"]
