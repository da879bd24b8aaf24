"""Clients vote on each model, and a majority takes it back: the benefit, and the effect of liars.

The setting is that of `attacks_by_rule`. The mean excludes nobody, so only the votes protect it. `adaptive` is shown
for comparison, under an attack that knows it.
"""

from collections.abc import Mapping
from math import comb
from typing import Any

from foltr_research.reproductions.claims import HIGHER, RANGE, Claim
from foltr_research.reproductions.experiment import Experiment, Scale, Section, Variant
from foltr_research.reproductions.outcomes import DataProfile
from foltr_research.reproductions.robustness.attacks_by_rule import CLIENTS, RELATIVE, ROUNDS, SHARES, federation
from foltr_research.reproductions.robustness.measures import ADAPTIVE, HONEST, NOBODY
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

CLICKS = ("navigational", "informational")
# Attacks that ruin the mean: from the first round, or once the model has learned.
FROM_THE_START = "scaled"
LATER: Mapping[str, dict[str, Any]] = {"turncoat": {"towards": "orthogonal", "z": 5.0}, "launder": {}}
# Share of nDCG@10 that votes may cost without attackers, and that liars may cost with votes alone.
_COST, _COST_OF_LIARS = 0.005, 0.01
# Below this share of nDCG@10 the mean is ruined.
_RUINED = 0.9
_SKEWED = "type 2"
_MIXED = "a click model each"


def _grid(scale: Scale, data: DataProfile) -> list[Variant]:
    found = []
    for clicks in CLICKS:
        honest = federation(scale, HONEST, clicks)
        found += _with_and_without(NOBODY, "0 %", clicks, honest)
        for lie in ("worse", "better"):
            alone = honest.changed(attackers=SHARES["40 %"], take_back=True, liars_vote=lie)
            found.append(_variant(ALONE + lie, "40 %", VOTES, clicks, alone))
        found += _with_and_without(
            FROM_THE_START, "40 %", clicks, federation(scale, HONEST, clicks, FROM_THE_START, SHARES["40 %"])
        )
        for attack, parameters in LATER.items():
            for share in ("20 %", "40 %"):
                attacked = honest.changed(
                    attack=attack,
                    attackers=SHARES[share],
                    attack_parameters={**parameters, "start": ROUNDS[scale] // 2},
                )
                found += _with_and_without(attack, share, clicks, attacked)
        shown = attacked.changed(take_back=True, liars_vote="honest")
        found.append(_variant(f"{attack}, nobody lies", share, VOTES, clicks, shown))
        found += _with_and_without(attack, share, clicks, attacked.changed(aggregation=ADAPTIVE), ADAPTIVE)
        found += _with_and_without(NOBODY, "0 %", f"{clicks}, {_SKEWED}", _skewed(honest, data))
    each = ("perfect", *CLICKS)
    mixed = federation(scale, HONEST, CLICKS[0]).changed(
        population="type3", clicks=each, clients=CLIENTS // len(each) * len(each)
    )
    return found + _with_and_without(NOBODY, "0 %", _MIXED, mixed)


def _with_and_without(
    attack: str, share: str, clicks: str, config: SimulationConfig, rule: str = HONEST
) -> list[Variant]:
    with_votes = VOTES if rule == HONEST else f"{rule}, votes"
    return [
        _variant(attack, share, rule, clicks, config),
        _variant(attack, share, with_votes, clicks, config.changed(take_back=True)),
    ]


def _variant(attack: str, share: str, rule: str, clicks: str, config: SimulationConfig) -> Variant:
    return Variant({"attack": attack, "share": share, "rule": rule, "clicks": clicks}, config)


def _skewed(config: SimulationConfig, data: DataProfile) -> SimulationConfig:
    """Return the federation with documents of two grades on each device, and a multiple of all pairs as clients."""
    pairs = comb(data.n_grades, 2)
    return config.changed(population="type2", labels_per_client=2, clients=max(1, CLIENTS // pairs) * pairs)


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        name="robustness-votes",
        title="clients vote, and a majority takes a model back",
        source="no single figure; the ranker is that of the thesis' chapter 5, votes are ours",
        setting=(
            "In the thesis ten clients take part in each of 10,000 rounds, with 5 interactions, FPDGD with a linear "
            "ranker, learning rate 0.1, and clients do not vote on models."
        ),
        grid=_grid,
        seeds={"quick": 3, "full": 5},
        sections=(
            Section("Per cent of the honest ranker's nDCG@10 that is kept", kept_with_votes),
            Section("What the votes decided", decisions),
        ),
        claims=(
            Claim(
                "If nobody attacks or lies, no model is taken back",
                "ours",
                "no model was taken back in any run in which nobody attacks or lies, also if clients differ",
                nothing_taken_back,
            ),
            Claim(
                f"Votes cost at most {100 * _COST:g} % when nobody attacks",
                "ours",
                f"nDCG@10 over the last quarter of the rounds, relative to that without votes: {RANGE} is above "
                f"-{100 * _COST:g} % for each click model and population",
                costs_at_most_with_votes(_COST, NOBODY),
            ),
            Claim(
                f"Four of ten clients who learn honestly and lie in their votes cost at most "
                f"{100 * _COST_OF_LIARS:g} %",
                "ours",
                f"nDCG@10 over the last quarter of the rounds, relative to that of honest clients without votes: "
                f"{RANGE} is above -{100 * _COST_OF_LIARS:g} % for each lie and click model",
                costs_at_most_with_votes(_COST_OF_LIARS, ALONE),
            ),
            Claim(
                f"Where attackers cost the mean more than {100 - 100 * _RUINED:g} %, votes keep more of the ranker",
                "ours",
                f"nDCG@10 kept over the last quarter of the rounds with votes against without: {HIGHER}, for each "
                f"attack, share and click model at which less than {100 * _RUINED:g} % is kept without (mean over "
                "seeds)",
                keeps_more_with_votes(_RUINED),
            ),
        ),
        differences=(
            (
                "All attackers vote `better` to protect their attack, except in rows without lies. Those of `lie: "
                "worse` and `lie: better` send honest updates."
            ),
            (
                "`scaled` attacks from the first round on, so no model was ever good; `turncoat` and `launder` "
                "start after half of the rounds. Launderers have defaults, turncoats send five times the usual "
                "length."
            ),
            (
                f"{_SKEWED}: each client has documents of two grades. The number of clients is that of the pairs of "
                "grades or a multiple, at most ten. `a click model each`: nine clients, three of each."
            ),
            RELATIVE,
        ),
    ),
)
