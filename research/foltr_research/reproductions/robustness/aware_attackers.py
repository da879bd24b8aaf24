"""Attacks made with knowledge of the adaptive rule, beside those without.

The setting is that of `attacks_by_rule`, whose results hold for attackers who do not know the rule. Here attackers know
it.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from foltr_research.reproductions.claims import Check, Claim, Status, Verdict, difference_of, judged
from foltr_research.reproductions.experiment import Experiment, Scale, Section, Variant
from foltr_research.reproductions.outcomes import DataProfile, Results
from foltr_research.reproductions.robustness.attacks_by_rule import (
    ATTACKS,
    RELATIVE,
    SHARES,
    costs_nothing,
    federation,
    leaves_out_nobody,
)
from foltr_research.reproductions.robustness.aware_attacks import AWARE, chosen_by, with_feature
from foltr_research.reproductions.robustness.aware_tables import by_sight, kept_in_the_worst_seed, settings
from foltr_research.reproductions.robustness.measures import ADAPTIVE, HONEST, NOBODY, kept, within_budgets
from foltr_research.reproductions.robustness.tables import detections

CLICKS = ("navigational", "informational")
# `robustness` has other rules under these attacks.
UNAWARE = tuple(ATTACKS)
# The loss without any defence is shown only for this largest share of attackers.
UNDEFENDED = "40 %"
# Shares of the honest nDCG@10 to be kept in the worst place, by share of attackers.
KEPT: Mapping[str, float] = {"20 %": 0.95, "40 %": 0.85}
_BARS = " and ".join(f"{100 * least:.0f} % with {share} attackers" for share, least in KEPT.items())


def _grid(scale: Scale, data: DataProfile) -> list[Variant]:
    found = []
    attacks = [(NOBODY, "0 %", 0)]
    attacks += [(attack, share, m) for attack in (*UNAWARE, *AWARE) for share, m in SHARES.items()]
    for clicks in CLICKS:
        for attack, share, attackers in attacks:
            for rule in (HONEST, ADAPTIVE) if share in {"0 %", UNDEFENDED} else (ADAPTIVE,):
                labels = {"attack": attack, "share": share, "rule": rule, "clicks": clicks}
                config = federation(scale, rule, clicks, attack, attackers)
                parameters = with_feature(config.attack_parameters, data.n_features)
                found.append(Variant(labels, config.changed(attack_parameters=parameters)))
    return found


def _keeps(least: Mapping[str, float]) -> Check:
    """``adaptive`` keeps this much at every place with this share of attackers."""

    def check(results: Results) -> Verdict:
        found = {
            place: rules[ADAPTIVE]
            for place, rules in kept(results).items()
            if place.share in least and ADAPTIVE in rules
        }
        beyond = {str(place): difference_of(values - least[place.share]) for place, values in found.items()}
        verdict = judged(beyond, lambda one, level: one.at_least(0.0, level))
        if verdict.status is Status.NOT_TESTABLE:
            return verdict
        short = [place for place in found if not beyond[str(place)].at_least(0.0)]
        worst = min(found, key=lambda place: float(found[place].mean()))
        numbers = f"at {len(found) - len(short)} of {len(found)} places; the least is {_kept(found[worst])} ({worst})"
        if short:
            numbers += "; not at " + "; ".join(f"{place} {_kept(found[place])}" for place in short)
        return Verdict(verdict.status, numbers)

    return check


def _kept(values: NDArray[np.float64]) -> str:
    found = difference_of(values)
    return f"{100 * found.mean:.1f} ± {100 * found.standard_error:.1f} %"


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        name="robustness-aware",
        title="attackers who have read the adaptive rule",
        source="no single figure; the ranker is that of the thesis' chapter 5, the attacks are ours",
        setting=(
            "In the thesis ten clients take part in each of 10,000 rounds, with 5 interactions, FPDGD with a linear "
            "ranker, learning rate 0.1, and no attack is made for a rule that remembers."
        ),
        grid=_grid,
        seeds={"quick": 5, "full": 5},
        sections=(
            Section("By what attackers know", by_sight),
            Section("Per cent of the honest ranker's nDCG@10 that is kept", kept_in_the_worst_seed),
            Section("What adaptive did", detections),
            Section("How each attack was set", settings),
        ),
        claims=(
            Claim(
                f"Adaptive keeps {_BARS}, also if they have read it",
                "ours",
                "nDCG@10 kept over the last quarter of the rounds for each attack and click model: the 90 % interval "
                f"is above {_BARS}",
                _keeps(KEPT),
            ),
            Claim(
                "Nobody goes beyond its budget",
                "ours",
                "in each round the sum of each client's used deviations is no farther from the median client's, and "
                "that of strangers together from what known clients do, than its budget, or than it was before if the "
                "median client has moved",
                within_budgets,
            ),
            costs_nothing("ours", {"attack": NOBODY}),
            leaves_out_nobody("Adaptive leaves out no honest client"),
        ),
        differences=(
            "`adaptive` does not know the number of attackers, and has its defaults everywhere.",
            (
                "Attackers with own data know their own updates and the model; those with sight also see the honest "
                "updates of the round. All have read the rule."
            ),
            chosen_by(),
            (
                "`demotion` lowers the weight of one feature that rankers like, BM25 of the whole document, so that "
                "documents with much of it are ranked lower. The table shows its cost in nDCG@10."
            ),
            "Attackers are the first clients by name.",
            RELATIVE,
        ),
    ),
)
