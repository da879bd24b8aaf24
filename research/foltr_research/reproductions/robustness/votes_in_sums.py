"""Clients vote in secure sums, which hide whose vote it is: are ruined models taken back, and honest ones kept?

In `votes` the federator sees every vote. Here helpers add noise to the tallies, and norm proofs limit each hostile
client to the length of others.
"""

from collections.abc import Mapping
from typing import Any

from foltr_research.reproductions.claims import HIGHER, RANGE, Claim
from foltr_research.reproductions.experiment import Experiment, Scale, Section, Variant
from foltr_research.reproductions.outcomes import DataProfile
from foltr_research.reproductions.robustness.attacks_by_rule import RELATIVE
from foltr_research.reproductions.robustness.measures import HONEST, NOBODY
from foltr_research.reproductions.robustness.vote_measures import (
    ALONE,
    VOTES,
    costs_at_most_with_votes,
    decisions,
    keeps_more_with_votes,
    kept_with_votes,
    nothing_taken_back,
)
from foltr_research.simulation.config import SimulationConfig

SIZES = (100, 500)
"""Clients of a round; the federation has twice as many."""
ROUNDS: Mapping[Scale, int] = {"quick": 60, "full": 400}
PERIOD, INTERACTIONS, CLICKS = 2, 10, "navigational"
ATTACK: Mapping[str, Any] = {"towards": "orthogonal", "z": 1.5}
"""In usual lengths; longer updates fail their norm proofs. Attacks begin after a third of the rounds."""
_COST = 0.01
# Below this share of nDCG@10 the mean is ruined.
_RUINED = 0.95


def _grid(scale: Scale, data: DataProfile) -> list[Variant]:  # noqa: ARG001
    found = []
    for n in SIZES:
        honest, clients = _federation(scale, n), n * PERIOD
        found += _with_and_without(NOBODY, "0 %", n, honest)
        for lie in ("worse", "better"):
            alone = honest.changed(attackers=4 * clients // 10, take_back=True, liars_vote=lie)
            found.append(_variant(ALONE + lie, "40 %", VOTES, n, alone))
        for tenths in (3, 4):
            attacked = honest.changed(
                attack="turncoat",
                attackers=tenths * clients // 10,
                attack_parameters={**ATTACK, "start": ROUNDS[scale] // 3},
            )
            found += _with_and_without("turncoat", f"{tenths}0 %", n, attacked)
        shown = attacked.changed(take_back=True, liars_vote="honest")
        found.append(_variant("turncoat, nobody lies", "40 %", VOTES, n, shown))
    return found


def _federation(scale: Scale, n: int) -> SimulationConfig:
    rounds = ROUNDS[scale]
    return SimulationConfig.read(
        {
            "clients": n * PERIOD,
            "participations": rounds // PERIOD,
            "interactions": INTERACTIONS,
            "rounds": rounds,
            "eval_every": max(1, rounds // 50),
            "clicks": CLICKS,
            "privacy": "secure",
        }
    )


def _with_and_without(attack: str, share: str, n: int, config: SimulationConfig) -> list[Variant]:
    with_votes = _variant(attack, share, VOTES, n, config.changed(take_back=True))
    return [_variant(attack, share, HONEST, n, config), with_votes]


def _variant(attack: str, share: str, rule: str, n: int, config: SimulationConfig) -> Variant:
    return Variant({"attack": attack, "share": share, "rule": rule, "clicks": f"{CLICKS}, {n} a round"}, config)


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        name="robustness-votes-secure",
        title="clients vote in secure sums, and a majority takes a model back",
        source="no figure; votes and their tallies are ours",
        setting=(
            f"{SIZES[0]} and {SIZES[1]} clients a round, each in one of two; {INTERACTIONS} interactions an update, "
            "FPDGD with a linear ranker, Gaussian noise of two helpers for epsilon 8 in all rounds together, norm "
            "proofs."
        ),
        grid=_grid,
        seeds={"quick": 2, "full": 5},
        sections=(
            Section("Per cent of the honest ranker's nDCG@10 that is kept", kept_with_votes),
            Section("What the votes decided", decisions),
        ),
        claims=(
            Claim(
                "If nobody attacks or lies, no model is taken back, despite the noise",
                "ours",
                "no model was taken back in any run in which nobody attacks or lies",
                nothing_taken_back,
            ),
            Claim(
                f"Votes and their noise cost at most {100 * _COST:g} % when nobody attacks",
                "ours",
                f"nDCG@10 over the last quarter of the rounds, relative to that without votes: {RANGE} is above "
                f"-{100 * _COST:g} % for each size",
                costs_at_most_with_votes(_COST, NOBODY),
            ),
            Claim(
                f"Four of ten clients who learn honestly and lie in their votes cost at most {100 * _COST:g} %",
                "ours",
                f"nDCG@10 over the last quarter of the rounds, relative to that of honest clients without votes: "
                f"{RANGE} is above -{100 * _COST:g} % for each lie and size",
                costs_at_most_with_votes(_COST, ALONE),
            ),
            Claim(
                f"Where attackers cost the mean more than {100 - 100 * _RUINED:g} %, votes keep more of the ranker",
                "ours",
                f"nDCG@10 kept over the last quarter of the rounds with votes against without: {HIGHER}, for each "
                f"share and size at which less than {100 * _RUINED:g} % is kept without (mean over seeds)",
                keeps_more_with_votes(_RUINED),
            ),
        ),
        differences=(
            (
                "Turncoats learn honestly for a third of the rounds and then send 1.5 times the usual length at a "
                "right angle to what the model has learned; all vote `better`, except in the row without lies. An "
                "update longer than its norm proof allows is left out, with its vote."
            ),
            RELATIVE,
        ),
    ),
)
