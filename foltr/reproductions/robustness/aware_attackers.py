"""Attacks made against the adaptive rule by who has read it, beside the mean and the median.

The setting is that of `attacks_by_rule`. What holds there holds against who does not know the rule; here is what is
left of it against who does.
"""

from collections.abc import Mapping

from foltr.reproductions.claims import Check, Claim, Status, Verdict
from foltr.reproductions.experiment import Experiment, Scale, Variant
from foltr.reproductions.outcomes import DataProfile, Results
from foltr.reproductions.robustness.attacks_by_rule import (
    AWARE,
    RELATIVE,
    SECTIONS,
    SHARES,
    TOLD,
    as_good_as_the_best,
    federation,
    leaves_out_nobody,
)
from foltr.reproductions.robustness.measures import ADAPTIVE, HONEST, NOBODY, kept

RULES = (HONEST, "median", ADAPTIVE)
CLICKS = ("navigational", "informational")
# Shares of the honest nDCG@10 that are to be kept in the worst place, by share of attackers.
KEPT: Mapping[str, float] = {"20 %": 0.95, "40 %": 0.85}


def _grid(scale: Scale, data: DataProfile) -> list[Variant]:  # noqa: ARG001
    found = []
    attacks = [(NOBODY, "0 %", 0)]
    attacks += [(attack, share, m) for share, m in SHARES.items() if m > 1 for attack in AWARE]
    for clicks in CLICKS:
        for attack, share, attackers in attacks:
            for rule in RULES:
                labels = {"attack": attack, "share": share, "rule": rule, "clicks": clicks}
                found.append(Variant(labels, federation(scale, rule, clicks, attack, attackers)))
    return found


def _keeps(least: Mapping[str, float]) -> Check:
    """``adaptive`` keeps so much at every place with this share of attackers (means over seeds)."""

    def check(results: Results) -> Verdict:
        found = {
            place: float(rules[ADAPTIVE].mean())
            for place, rules in kept(results).items()
            if place.share in least and ADAPTIVE in rules
        }
        if not found:
            return Verdict(Status.NOT_TESTABLE, "no runs to look at")
        below = [place for place, value in found.items() if value < least[place.share]]
        worst = min(found, key=found.__getitem__)
        numbers = (
            f"at {len(found) - len(below)} of {len(found)} places; the least is {100 * found[worst]:.1f} % ({worst})"
        )
        return Verdict(Status.NOT_CONFIRMED if below else Status.CONFIRMED, numbers)

    return check


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
        sections=SECTIONS,
        claims=(
            Claim(
                "Adaptive withstands who has read it",
                "ours",
                "nDCG@10 kept over the last quarter of the rounds, for each attack and click model (means over "
                "seeds): " + ", ".join(f"{100 * x:.0f} % with {share} of attackers" for share, x in KEPT.items()),
                _keeps(KEPT),
            ),
            as_good_as_the_best("ours", "attack, share and click model"),
            leaves_out_nobody("Adaptive leaves out no honest client"),
        ),
        differences=(
            TOLD,
            "Launderers know their own updates and the model alone; framers see the honest updates of the round.",
            (
                "Parameters of attacks have their defaults (`foltr attacks`), found by hand with some of these seeds; "
                "nobody searched for the most harmful ones."
            ),
            "Attackers are the first clients by name, which decides who of equally old copies stays.",
            RELATIVE,
        ),
    ),
)
