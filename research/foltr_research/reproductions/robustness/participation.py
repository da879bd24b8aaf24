"""Attacks with partial participation, so that attackers may be the majority of a round.

Fixed rules promise nothing in such a round, however few attackers there are in total. A defence that remembers clients
may know them by then.
"""

from foltr_research.reproductions.experiment import CLICKS, Experiment, Scale, Variant
from foltr_research.reproductions.outcomes import DataProfile
from foltr_research.reproductions.robustness.attacks_by_rule import (
    RELATIVE,
    SECTIONS,
    as_good_as_the_best,
    costs_nothing,
    federation,
    leaves_out_nobody,
)
from foltr_research.reproductions.robustness.measures import ADAPTIVE, HONEST, NOBODY

CLIENTS, PARTICIPANTS, ATTACKERS = 20, 6, 8
SHARE = "40 %"
# Of six updates: the most that all of these rules withstand.
TOLERATED = 2
RULES = (HONEST, "trimmed-mean", "median", "geometric-median", "nnm+trimmed-mean", ADAPTIVE)
ATTACKS = ("clicks", "sign-flip", "scaled", "min-max (noisy)", "huge")


def _grid(scale: Scale, data: DataProfile) -> list[Variant]:  # noqa: ARG001
    found = []
    for clicks in CLICKS:
        for attack, share, attackers in ((NOBODY, "0 %", 0), *((attack, SHARE, ATTACKERS) for attack in ATTACKS)):
            for rule in RULES:
                labels = {"attack": attack, "share": share, "rule": rule, "clicks": clicks}
                config = federation(scale, rule, clicks, attack, attackers, tolerates=TOLERATED)
                found.append(Variant(labels, config.changed(clients=CLIENTS, participants=PARTICIPANTS)))
    return found


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        name="robustness-participation",
        title=f"attacks when {PARTICIPANTS} of {CLIENTS} clients take part in a round",
        source="no single figure; attacks and ranker are those of the thesis' chapter 5",
        setting=(
            "In the thesis all of ten clients take part in each of 10,000 rounds, with 5 interactions, FPDGD with a "
            "linear ranker, learning rate 0.1."
        ),
        grid=_grid,
        seeds={"quick": 3, "full": 5},
        sections=SECTIONS,
        claims=(
            costs_nothing("ours", {"attack": NOBODY}),
            as_good_as_the_best("ours", "attack and click model"),
            leaves_out_nobody(
                "Adaptive leaves out no honest client, though in many rounds half of the updates are hostile"
            ),
        ),
        differences=(
            (
                f"{CLIENTS} clients of whom {PARTICIPANTS}, drawn in each round, take part; {ATTACKERS} of them are "
                "hostile, so that half of a round's updates or more are hostile in about 45 % of the rounds."
            ),
            (
                f"Fixed rules expect {TOLERATED} attackers among {PARTICIPANTS}, the most they withstand; `adaptive` "
                "expects no number."
            ),
            "A round's attackers know of each other. Parameters of attacks and rules have their defaults.",
            RELATIVE,
        ),
    ),
)
