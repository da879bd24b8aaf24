"""The tables of the experiment `robustness`, as Markdown."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from math import isinf
from statistics import median

import numpy as np
from numpy.typing import NDArray

from foltr_research.reproductions.outcomes import Labels, Results
from foltr_research.reproductions.report import markdown
from foltr_research.reproductions.robustness.measures import (
    NOBODY,
    Comparison,
    Detection,
    Kept,
    Place,
    comparisons,
    detection,
    kept,
    percent,
    recorded,
)

TOLERANCE = 0.01
_BEYOND = "†"


def summary(results: Results) -> str:
    """Mean and worst case of each rule over attacks and click models, by share of attackers."""
    table = kept(results)
    shares = _shares_of_all(table)
    header = ["rule", "nobody attacks"]
    header += [f"{share} attackers, {what}" for share in shares for what in ("mean", "worst")]
    rows = []
    for rule in results.labels("rule"):
        cells = [rule, _over(table, rule, (NOBODY,), "0 %")[0]]
        for share in shares:
            cells += _over(table, rule, _attacks(table), share)
        rows.append(cells)
    return (
        "Per cent of the honest ranker's nDCG@10 that is kept, over all attacks and click models; the worst is that of "
        "one attack and click model, a mean over seeds. A dash: not run with all of the attacks.\n\n"
        + markdown(header, rows, 1)
    )


def kept_table(results: Results) -> str:
    """A table for each click model and share, and one of click poisoning by share."""
    table, rules, beyond = kept(results), results.labels("rule"), _beyond_bounds(results)
    parts = [
        (
            f"Mean over seeds ± standard error; the highest of a row in bold. {_BEYOND}: the rule promises nothing "
            "for that many attackers of ten. A dash: not run.\n"
        )
    ]
    for clicks in results.labels("clicks"):
        for share in _shares_of_all(table):
            rows = [
                [place.attack, *_cells(table[place], place, rules, beyond)]
                for attack, at in ((NOBODY, "0 %"), *((attack, share) for attack in _attacks(table)))
                if (place := Place(attack, at, clicks)) in table
            ]
            parts.append(f"**{clicks} clicks, {share} attackers**\n\n" + markdown(["attack", *rules], rows, 1))
    if "clicks" in _attacks(table):
        places = [
            Place("clicks", share, clicks)
            for clicks in results.labels("clicks")
            for share in results.labels("share")
            if Place("clicks", share, clicks) in table
        ]
        rows = [[place.clicks, place.share, *_cells(table[place], place, rules, beyond)] for place in places]
        parts.append("**Click poisoning, by share**\n\n" + markdown(["clicks", "attackers", *rules], rows, 2))
    return "\n".join(parts)


def exceptions(results: Results) -> str:
    """Every place at which the adaptive defence is below the best fixed rule by more than the tolerance."""
    found = comparisons(kept(results))
    below = sorted((one for one in found if one.difference.mean < -TOLERANCE), key=lambda one: one.difference.mean)
    numbers = (
        f"{len(below)} of {len(found)} places. Differences are relative to the best rule, with the same seeds, mean ± "
        "standard error; beyond chance: below by more than 1 % by Student's t test, one-sided, 5 %. The best of many "
        "noisy rules is partly luck, the more so the fewer the seeds; in the last column each seed's rule "
        "is the one that was best on the other seeds.\n"
    )
    if not below:
        return numbers
    header = ["attack", "attackers", "clicks", "best fixed rule", "it keeps", "adaptive keeps", "difference"]
    return (
        numbers
        + "\n"
        + markdown([*header, "beyond chance", "rule chosen elsewhere"], [_exception(one) for one in below], 4)
    )


def detections(results: Results) -> str:
    """Return when the adaptive defence had excluded every attacker, and which others it excluded."""
    runs = recorded(results)
    if not runs:
        return "No run has a record of it.\n"
    clicks = tuple(dict.fromkeys(one.labels["clicks"] for one in runs))
    order = {labels: i for i, labels in enumerate(dict.fromkeys(_attack_of(one.labels) for one in runs))}
    runs.sort(key=lambda one: order[_attack_of(one.labels)])
    rows = []
    for (attack, share), group in groupby(runs, key=lambda one: _attack_of(one.labels)):
        pairs = [(one.labels["clicks"], detection(one)) for one in group]
        all_of_them = [found for _, found in pairs]
        rounds = [_rounds([found for name, found in pairs if name == click]) for click in clicks]
        hostile = float(np.mean([found.hostile_left_out for found in all_of_them]))
        attacked = attack != NOBODY
        rows.append(
            [
                attack,
                share,
                *(rounds if attacked else ["-"] * len(clicks)),
                f"{sum(not isinf(found.rounds) for found in all_of_them)} of {len(pairs)}" if attacked else "-",
                f"{100 * hostile:.0f} %" if attacked else "-",
                f"{sum(found.honest_clients for found in all_of_them)}",
                f"{100 * np.mean([found.honest_left_out for found in all_of_them]):.2f} %",
                f"{100 * np.mean([found.honest_shortened for found in all_of_them]):.2f} %",
            ]
        )
    header = ["attack", "attackers", *(f"rounds, {click}" for click in clicks), "runs with all found"]
    header += ["attackers' updates left out", "honest clients left out", "honest updates left out"]
    header += ["honest updates shortened"]
    return (
        "Rounds until every attacker had been left out at least once, median over seeds. Honest clients are counted in "
        "each run in which one was left out at any time; the shares of updates are means over runs.\n\n"
        + markdown(header, rows, 2)
    )


def _exception(one: Comparison) -> list[str]:
    place = one.place
    return [
        *(place.attack, place.share, place.clicks, one.rule),
        f"{100 * one.best:.1f} %",
        f"{100 * one.adaptive:.1f} %",
        percent(one.difference),
        "yes" if one.below_by_more_than(TOLERANCE) else "no",
        percent(one.chosen_elsewhere),
    ]


def _attack_of(labels: Labels) -> tuple[str, str]:
    return labels["attack"], labels["share"]


def _rounds(found: Sequence[Detection]) -> str:
    middle = median(one.rounds for one in found) if found else float("inf")
    return "never" if isinf(middle) else f"{middle:.0f}"


def _attacks(table: Kept) -> tuple[str, ...]:
    return tuple(dict.fromkeys(place.attack for place in table if place.attack != NOBODY))


def _shares_of_all(table: Kept) -> tuple[str, ...]:
    """The shares at which every attack was run."""
    by_share: dict[str, set[str]] = {}
    for place in table:
        if place.attack != NOBODY:
            by_share.setdefault(place.share, set()).add(place.attack)
    return tuple(share for share, attacks in by_share.items() if attacks == set(_attacks(table)))


def _over(table: Kept, rule: str, attacks: Sequence[str], share: str) -> list[str]:
    """Mean and worst over the attacks at a share and the click models."""
    places = [place for place in table if place.attack in attacks and place.share == share]
    if not places or any(rule not in table[place] for place in places):
        return ["-", "-"]
    means = [float(table[place][rule].mean()) for place in places]
    return [f"{100 * np.mean(means):.1f}", f"{100 * min(means):.1f}"]


def _cells(
    there: Mapping[str, NDArray[np.float64]], place: Place, rules: Sequence[str], beyond: set[tuple[Place, str]]
) -> list[str]:
    highest = max((float(values.mean()) for values in there.values()), default=float("nan"))
    cells = []
    for rule in rules:
        values = there.get(rule)
        if values is None:
            cells.append("-")
            continue
        number = f"{100 * values.mean():.1f}"
        if float(values.mean()) == highest:
            number = f"**{number}**"
        if len(values) > 1:
            number += f" ± {100 * values.std(ddof=1) / np.sqrt(len(values)):.1f}"
        cells.append(number + (_BEYOND if (place, rule) in beyond else ""))
    return cells


def _beyond_bounds(results: Results) -> set[tuple[Place, str]]:
    return {
        (Place(one.labels["attack"], one.labels["share"], one.labels["clicks"]), one.labels["rule"])
        for one in results
        if one.config.aggregation_parameters.get("beyond_bounds")
    }
