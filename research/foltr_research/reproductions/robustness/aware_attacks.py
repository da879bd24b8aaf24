"""Attacks by who has read the defence, as experiments run them: by name, with what they see and how they are set.

Their parameters, in ``chosen_parameters.json``, are those that did the most harm of ten tried for each attack, by four
of ten clients against the rule ``adaptive``, on seeds that no experiment reports. It was a small search: no bound of
what an attacker can do.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

CHOSEN = Path(__file__).with_name("chosen_parameters.json")


class Sight(StrEnum):
    """Who attacks, by what it knows."""

    UNAWARE = "unaware"
    """It does not know which defence there is."""
    OWN_DATA = "own data"
    """It has read the defence, and knows the model and what its own clients have learned."""
    SIGHT = "sight"
    """It sees the honest updates of the round besides."""


@dataclass(frozen=True)
class AwareAttack:
    """An attack on a defence that it knows.

    Attributes:
        attack: of `foltr_research.attacks.registry.ATTACKS`.
        settings: what makes it this one of several by the same attack; no search changes it.
    """

    attack: str
    sight: Sight
    settings: Mapping[str, Any] = field(default_factory=dict)


_FULL = {"knowledge": "full"}
# By the name in tables.
AWARE: Mapping[str, AwareAttack] = {
    # As it was when the rule counted a long step as two usual lengths: 40 % ruined the ranker with it.
    "launder (of old)": AwareAttack(
        "launder",
        Sight.OWN_DATA,
        {"towards": "orthogonal", "period": 4.0, "burst": 5.0, "counted": 2.0, "noise": 0.5, "start": 30.0},
    ),
    "launder": AwareAttack("launder", Sight.OWN_DATA, {"towards": "orthogonal"}),
    "launder (reverse)": AwareAttack("launder", Sight.OWN_DATA, {"towards": "reverse"}),
    "creep": AwareAttack("creep", Sight.OWN_DATA, {"towards": "orthogonal"}),
    "creep (reverse)": AwareAttack("creep", Sight.OWN_DATA, {"towards": "reverse"}),
    "demotion": AwareAttack("creep", Sight.OWN_DATA, {"towards": "feature"}),
    "acceptable": AwareAttack("acceptable", Sight.OWN_DATA),
    "alternate": AwareAttack("alternate", Sight.OWN_DATA),
    "turncoat": AwareAttack("turncoat", Sight.OWN_DATA),
    "sybils": AwareAttack("sybils", Sight.OWN_DATA),
    "late-joiners": AwareAttack("late-joiners", Sight.OWN_DATA),
    "framing (full)": AwareAttack("framing", Sight.SIGHT, _FULL),
    "framing-then-hostile (full)": AwareAttack("turncoat", Sight.SIGHT, {"before": "copies", **_FULL}),
    "creep (full)": AwareAttack("creep", Sight.SIGHT, {"towards": "orthogonal", **_FULL}),
    "turncoat (full)": AwareAttack("turncoat", Sight.SIGHT, _FULL),
    "acceptable (full)": AwareAttack("acceptable", Sight.SIGHT, _FULL),
}
# BM25 of the whole document, by how many features a set has: LETOR 4.0, MSLR-WEB10K and WEB30K.
_LIKED_FEATURE = {46: 25, 136: 110}


def parameters_of(name: str) -> dict[str, Any]:
    """Return the parameters that an attack of `AWARE` is run with; without ``feature``, which depends on the data."""
    return {**chosen_parameters().get(name, {}), **AWARE[name].settings}


def with_feature(parameters: Mapping[str, Any], n_features: int) -> dict[str, Any]:
    """Return parameters with the feature that is demoted, where one is: one that rankers like; of other data the
    first."""
    if parameters.get("towards") != "feature":
        return dict(parameters)
    return {**parameters, "feature": _LIKED_FEATURE.get(n_features, 1)}


def chosen_by() -> str:
    """Return in a sentence how the parameters were found."""
    found = _found()
    seeds = " and ".join(map(str, found["seeds"]))
    return (
        f"Parameters of attackers who have read the rule are the most harmful of a small search on other seeds "
        f"({seeds}), which is no bound of what a longer one would find. The others have their defaults."
    )


def chosen_parameters() -> Mapping[str, Mapping[str, Any]]:
    """Return what the search found, by name of the attack."""
    chosen: Mapping[str, Mapping[str, Any]] = {name: found["parameters"] for name, found in _found()["attacks"].items()}
    return chosen


@lru_cache(maxsize=1)
def _found() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(CHOSEN.read_text(encoding="utf-8"))
    return found
