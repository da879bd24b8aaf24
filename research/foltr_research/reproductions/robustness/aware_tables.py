"""The tables of the experiment `robustness-aware`, as Markdown: means, and the worst seed of each place."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from foltr_research.reproductions.outcomes import Results
from foltr_research.reproductions.report import markdown
from foltr_research.reproductions.robustness.attacks_by_rule import SHARES
from foltr_research.reproductions.robustness.aware_attacks import AWARE, Sight
from foltr_research.reproductions.robustness.measures import ADAPTIVE, HONEST, NOBODY, Kept, Place, kept


def sight_of(attack: str) -> Sight:
    """Return the attackers' knowledge, by an attack's name in tables."""
    return AWARE[attack].sight if attack in AWARE else Sight.UNAWARE


def by_sight(results: Results) -> str:
    """Mean, worst place and worst seed under the adaptive rule, by what attackers know and their share."""
    table = kept(results)
    rows = []
    for sight in Sight:
        for share in SHARES:
            there = {
                place: rules[ADAPTIVE]
                for place, rules in table.items()
                if place.attack != NOBODY and place.share == share and sight_of(place.attack) is sight
                if ADAPTIVE in rules and len(rules[ADAPTIVE])
            }
            if there:
                rows.append([sight.value, share, *_summary(there)])
    return (
        "Per cent of the honest ranker's nDCG@10 that `adaptive` keeps, over the attacks and click models of each row. "
        "A place is one attack with one click model, and its value the mean over seeds.\n\n"
        + markdown(["attackers know", "share", "mean", "worst place", "which", "worst seed", "which "], rows, 2)
    )


def kept_in_the_worst_seed(results: Results) -> str:
    """A table for each click model: each attack by share, with mean and worst over seeds."""
    table = kept(results)
    parts = [
        (
            "Mean over seeds, in brackets the worst seed. The last column is the plain mean of all updates, without a "
            "defence. A dash: not run.\n"
        )
    ]
    shares = list(SHARES)
    for clicks in results.labels("clicks"):
        attacks = [attack for attack in results.labels("attack") if attack != NOBODY]
        honest = table.get(Place(NOBODY, "0 %", clicks), {}).get(ADAPTIVE)
        rows = [[NOBODY, "", *([_cell(honest)] * len(shares)), "100.0"]]
        rows += [
            [
                attack,
                sight_of(attack).value,
                *(_cell(_values(table, Place(attack, share, clicks), ADAPTIVE)) for share in shares),
                _cell(_values(table, Place(attack, shares[-1], clicks), HONEST)),
            ]
            for attack in attacks
        ]
        header = ["attack", "attackers know", *shares, f"no defence, {shares[-1]}"]
        parts.append(f"**{clicks} clicks**\n\n" + markdown(header, rows, 2))
    return "\n".join(parts)


def settings(results: Results) -> str:
    """Return the attack and parameters of each row, without defaults."""
    of = {one.labels["attack"]: one.config for one in results if one.labels["attack"] != NOBODY}
    rows = [
        [
            name,
            f"`{config.attack}`",
            ", ".join(f"{key}={value}" for key, value in config.attack_parameters.items()) or "defaults",
        ]
        for name, config in of.items()
    ]
    return markdown(["attack", "by", "parameters"], rows, 3)


def _summary(there: dict[Place, NDArray[np.float64]]) -> list[str]:
    means = {place: float(values.mean()) for place, values in there.items()}
    lows = {place: float(values.min()) for place, values in there.items()}
    worst, lowest = min(means, key=means.__getitem__), min(lows, key=lows.__getitem__)
    return [
        f"{100 * np.mean(list(means.values())):.1f}",
        f"{100 * means[worst]:.1f}",
        f"{worst.attack}, {worst.clicks}",
        f"{100 * lows[lowest]:.1f}",
        f"{lowest.attack}, {lowest.clicks}",
    ]


def _values(table: Kept, place: Place, rule: str) -> NDArray[np.float64] | None:
    return table.get(place, {}).get(rule)


def _cell(values: Sequence[float] | NDArray[np.float64] | None) -> str:
    if values is None or not len(values):
        return "-"
    return f"{100 * np.mean(values):.1f} ({100 * np.min(values):.1f})"
