"""Devices test each model before they take it, as RankGuard's do: beside `adaptive` and the votes, under its attacks.

The setting is that of `attacks_by_rule`. Under the mean nobody is left out, so that what is kept is the test's doing
alone. What is measured of runs with the test is the ranker that each device uses, which is what its user sees.
"""

from collections.abc import Mapping

from foltr.core.learning.acceptance import FEWEST_LISTS, LEVEL, MOST_LISTS
from foltr_research.reproductions.claims import Claim
from foltr_research.reproductions.experiment import Experiment, Scale, Section, Variant
from foltr_research.reproductions.outcomes import DataProfile
from foltr_research.reproductions.robustness.acceptance_measures import (
    ALONE,
    LENIENT,
    TEST,
    acceptances,
    adaptive_keeps_more,
    better_than_alone,
    costs_at_most_with_test,
    keeps_more_with_test,
)
from foltr_research.reproductions.robustness.attacks_by_rule import LIE_IS_NOTHING, RELATIVE, SHARES, federation
from foltr_research.reproductions.robustness.aware_attacks import chosen_by
from foltr_research.reproductions.robustness.measures import ADAPTIVE, HONEST, NOBODY
from foltr_research.reproductions.robustness.vote_measures import decisions, kept_with_votes
from foltr_research.simulation.config import SimulationConfig

CLICKS = "informational"
# RankGuard's Flip, LIE and IPM, our guess at its adaptive attack, and two by who has read `adaptive`.
ATTACKS = ("sign-flip", "lie", "inner-product", "acceptable", "launder", "creep")
VOTING = f"{ADAPTIVE}, votes"
_COST, _RUINED = 0.005, 0.9


def _grid(scale: Scale, data: DataProfile) -> list[Variant]:  # noqa: ARG001
    honest = federation(scale, HONEST, CLICKS)
    found = _side_by_side(NOBODY, "0 %", honest)
    found.append(_variant(NOBODY, "0 %", ALONE, honest.changed(method="local")))
    for share in ("20 %", "40 %"):
        for attack in ATTACKS:
            attacked = federation(scale, HONEST, CLICKS, attack, SHARES[share])
            found += _side_by_side(attack, share, attacked, fewer=share == "20 %")
    return found


def _side_by_side(attack: str, share: str, config: SimulationConfig, *, fewer: bool = False) -> list[Variant]:
    adaptive = config.changed(aggregation=ADAPTIVE)
    rules: Mapping[str, SimulationConfig] = {
        HONEST: config,
        TEST: config.changed(acceptance_level=LEVEL),
        LENIENT: config.changed(acceptance_level=0.5),
        ADAPTIVE: adaptive,
        VOTING: adaptive.changed(take_back=True),
    }
    left_out = {LENIENT, VOTING} if fewer else set()
    return [_variant(attack, share, rule, of_rule) for rule, of_rule in rules.items() if rule not in left_out]


def _variant(attack: str, share: str, rule: str, config: SimulationConfig) -> Variant:
    return Variant({"attack": attack, "share": share, "rule": rule, "clicks": CLICKS}, config)


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        name="robustness-acceptance",
        title="devices test each model by their own clicks before they take it",
        source="no single figure; the test is our reading of RankGuard's (Gregoriadis et al. 2026, arXiv:2606.12246)",
        setting=(
            "In RankGuard nodes without a server send each other their models, and each takes those that explain its "
            "own past clicks better than its own does, position bias corrected; Flip, LIE, IPM and an attack made for "
            "the test. Details we could not read: levels, sizes and what it is to explain are chosen here."
        ),
        grid=_grid,
        seeds={"quick": 2, "full": 5},
        sections=(
            Section("Per cent of the honest ranker's nDCG@10 that is kept", kept_with_votes),
            Section("How often honest clients took the newest model", acceptances),
            Section("What the votes decided", decisions),
        ),
        claims=(
            Claim(
                "The test costs nothing when nobody attacks",
                "ours",
                f"nDCG@10 over the last quarter of the rounds is below the mean's by at most {100 * _COST:g} % (mean "
                "of the paired differences)",
                costs_at_most_with_test(_COST),
            ),
            Claim(
                "Where the mean is ruined devices with the test keep more of the ranker",
                "Gregoriadis et al. 2026, abstract, of nodes that exchange models",
                "nDCG@10 over the last quarter of the rounds is above that of the mean, for each attack and share in "
                f"which the mean keeps less than {100 * _RUINED:.0f} % (means over seeds)",
                keeps_more_with_test(_RUINED),
            ),
            Claim(
                "Under attack devices with the test rank better than they would alone",
                "ours",
                "nDCG@10 over the last quarter of the rounds is not below that of clients who take nothing from "
                "anybody, for each attack and share (mean of the paired differences)",
                better_than_alone,
            ),
            Claim(
                "Under attack adaptive keeps more than the test",
                "ours",
                "nDCG@10 over the last quarter of the rounds is not below, for each attack and share (mean of the "
                "paired differences)",
                adaptive_keeps_more,
            ),
        ),
        differences=(
            (
                "RankGuard has no federator: a node judges the model of each peer, and what it refuses touches nobody "
                "else. Here devices judge the one model that the mean makes of everybody's updates, so a refusal "
                "leaves what is hostile in it, and whoever always refuses learns alone. `alone` is that: no model is "
                "taken and nothing sent."
            ),
            (
                f"The test is Student's, one-sided and paired list by list, at the level {LEVEL:g}, on the newest "
                f"{MOST_LISTS} lists with a click, not before there are {FEWEST_LISTS}; `{LENIENT}` has the level 0.5. "
                "It compares the gains that two models give to clicked documents (`foltr.core.learning.acceptance`), "
                "with the true probabilities of examination, which no device would know."
            ),
            (
                "Who refuses the newest model ranks with its own and learns on from it; what it learned in a round is "
                "sent as ever. Attackers learn so, too, before they replace what they send."
            ),
            (
                "`acceptable` is our guess at RankGuard's adaptive attack; Flip, LIE and IPM are `sign-flip`, `lie` "
                "and `inner-product`."
            ),
            LIE_IS_NOTHING,
            chosen_by(),
            RELATIVE,
        ),
    ),
)
