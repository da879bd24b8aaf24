"""Attacks with knowledge of the defence, as experiments run them: by name, with the attackers' knowledge and settings.

The parameters in ``chosen_parameters.json`` did the most harm of ten tried for each attack, by four of ten clients
against the rule ``adaptive``, on seeds that no experiment reports. This small search does not bound what an attacker
can do.
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
    """The attackers' knowledge."""

    UNAWARE = "unaware"
    """They do not know the defence."""
    OWN_DATA = "own data"
    """They have read the defence, and know the model and what their own clients have learned."""
    SIGHT = "sight"
    """They also see the honest updates of the round."""


@dataclass(frozen=True)
class AwareAttack:
    """An attack with knowledge of the defence.

    Attributes:
        attack: of `foltr_research.attacks.registry.ATTACKS`.
        settings: fixed settings that distinguish this variant; the search leaves them.
    """

    attack: str
    sight: Sight
    settings: Mapping[str, Any] = field(default_factory=dict)


_FULL = {"knowledge": "full"}
# By name in tables.
AWARE: Mapping[str, AwareAttack] = {
    # Made when the rule counted a long step as two usual lengths: at 40 % it then ruined the ranker.
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
# BM25 of the whole document, by number of features: LETOR 4.0, MSLR-WEB10K and WEB30K.
_LIKED_FEATURE = {46: 25, 136: 110}


def parameters_of(name: str) -> dict[str, Any]:
    """Return the parameters of an attack of `AWARE`, except ``feature``, which depends on the data."""
    return {**chosen_parameters().get(name, {}), **AWARE[name].settings}


def with_feature(parameters: Mapping[str, Any], n_features: int) -> dict[str, Any]:
    """Return parameters with the demoted feature, if any: one that rankers weight highly; for other data the first."""
    if parameters.get("towards") != "feature":
        return dict(parameters)
    return {**parameters, "feature": _LIKED_FEATURE.get(n_features, 1)}


def chosen_by() -> str:
    """Describe in a sentence how the parameters were found."""
    found = _found()
    seeds = " and ".join(map(str, found["seeds"]))
    return (
        "Parameters of attackers who have read the rule are the most harmful of a small search on other seeds "
        f"({seeds}); a longer one might find worse. The others have their defaults."
    )


def chosen_parameters() -> Mapping[str, Mapping[str, Any]]:
    """Return the parameters found by the search, by name of the attack."""
    chosen: Mapping[str, Mapping[str, Any]] = {name: found["parameters"] for name, found in _found()["attacks"].items()}
    return chosen


@lru_cache(maxsize=1)
def _found() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(CHOSEN.read_text(encoding="utf-8"))
    return found
