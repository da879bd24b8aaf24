"""The attacks by name with their parameters. `foltr_research.attacks.attacked_round` makes their updates.

The threat model is that of Wang's thesis, Section 5.2.1: attackers control fewer than half of the clients, share all
that those clients know, and aim to make the ranker worse for everybody. With partial knowledge they have their own
honest updates and the global model. With full knowledge they have everybody's updates, which only the simulator or a
process that runs all devices can provide.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from foltr.core.aggregation.rule_spec import RuleSpec
from foltr.core.errors import SettingsError
from foltr.core.installed_plugins import also_installed
from foltr.core.methods.registry import spec_of
from foltr.core.protocol.fields import MAX_ABS_DELTA
from foltr.core.protocol.trainings import Training
from foltr_research.attacks.directions import TOWARDS

Knowledge = Literal["partial", "full"]
Setting = float | str

CLICKS = "clicks"
ATTACKS: dict[str, str] = {
    CLICKS: "the attackers' users click as the click model poison: irrelevant documents first",
    "lie": "a little is enough: z standard deviations from the mean, too near to notice",
    "fang-krum": "the farthest update against the learning direction that Krum still chooses",
    "fang-trimmed-mean": "values just beyond the honest ones, which trimmed mean and median let pass",
    "sign-flip": "the honest update, negated",
    "scaled": "the honest update times -z",
    "inner-product": "the mean update times -epsilon",
    "bounded": "as long as is set, against the mean update, the model or all features alike",
    "min-max": "as far against the mean as the two honest updates farthest apart are from each other",
    "min-sum": "as far against the mean as the summed distances of an honest update allow",
    "launder": "long steps that evidence may count as short ones, paid back by short ones",
    "framing": "copies of what honest clients of the round send, so that those look like the copies",
    "creep": "the honest update with a constant bias, too small to distinguish from chance",
    "acceptable": "as far along a direction as still explains clicks better than the model, to first order",
    "alternate": "hostile in some rounds of each period, and honest in the others until evidence has faded",
    "turncoat": "honest, or framing others, until a round, and hostile from then on",
    "sybils": "hostile under a new name every few rounds, so that there is never any evidence",
    "late-joiners": "absent until a round, and hostile from then on",
    "not-finite": "values that are no numbers",
    "huge": "the largest values that a message may hold",
}
MODEL_ATTACKS = tuple(name for name in ATTACKS if name != CLICKS)
# They need the model of the round or its number, or change names.
_OF_THE_SIMULATOR = frozenset({"launder", "creep", "acceptable", "alternate", "turncoat", "sybils", "late-joiners"})


@dataclass(frozen=True)
class AttackSpec:
    """An attack with its settings, made and checked by `read_attack`.

    Attributes:
        parameters: all parameters by name, with defaults filled in, without ``knowledge``.
    """

    name: str
    parameters: tuple[tuple[str, Setting], ...] = ()
    knowledge: Knowledge = "partial"

    def number(self, name: str) -> float:
        return float(dict(self.parameters)[name])

    def text(self, name: str) -> str:
        return str(dict(self.parameters)[name])


@dataclass(frozen=True, eq=False)
class AttackedRound:
    """What attackers know in a round.

    Attributes:
        own: (m, d) float64, their honest updates.
        others: (n - m, d) float64, everybody else's; None with partial knowledge.
        model: (d,) float64, that the round trains from.
        n: number of updates in the round.
        rule: the aggregation rule that they assume; None if they assume none.
        rng: shared by all attackers of the round.
        number: of the round, from 1.
    """

    own: NDArray[np.float64]
    others: NDArray[np.float64] | None
    model: NDArray[np.float64]
    n: int
    rule: RuleSpec | None
    rng: np.random.Generator
    number: int


@dataclass(frozen=True)
class _Parameter:
    """A parameter: one of several words, or a number in a range."""

    default: Setting
    words: tuple[str, ...] = ()
    least: float = 0.0
    largest: float = 0.0


_KNOWLEDGE = {"knowledge": _Parameter("partial", ("partial", "full"))}
# Colluders with identical updates are easily detected by that. The papers do not hide it.
_JITTER = {"jitter": _Parameter(0.0, (), 0.0, 1000.0)}
_PERTURBATION = {"perturbation": _Parameter("unit", ("unit", "std", "sign"))}
_START = {"start": _Parameter(30.0, (), 1.0, 1e6)}
# The weight that `feature` lowers; other directions ignore it.
_FEATURE = {"feature": _Parameter(1.0, (), 1.0, 1e6)}
_TOWARDS = {"towards": _Parameter("orthogonal", TOWARDS), **_FEATURE}
# `update` is against what each attacker has learned.
_HOSTILE = {
    "towards": _Parameter("orthogonal", ("update", *TOWARDS)),
    **_FEATURE,
}
# With full knowledge: how much of the honest updates' spread an imitation has.
_SPREAD = {"spread": _Parameter(1.0, (), 0.0, 1000.0), **_KNOWLEDGE}
_PARAMETERS: dict[str, Mapping[str, _Parameter]] = {
    "lie": {"z": _Parameter("auto", ("auto",), -100.0, 100.0), **_JITTER, **_KNOWLEDGE},
    "fang-krum": {**_JITTER, **_KNOWLEDGE},
    # Fang et al., Section 5.1.3, found that b matters little and took 2.
    "fang-trimmed-mean": {"b": _Parameter(2.0, (), 1.0, 1e6), **_KNOWLEDGE},
    "scaled": {"z": _Parameter(2.0, (), 0.0, 1e6)},
    # Xie et al. show that small ones defeat Krum and the median. The mean only reverses above (n - m) / m.
    "inner-product": {"epsilon": _Parameter(0.1, (), 0.0, 1e6), **_JITTER, **_KNOWLEDGE},
    # The default is the clip norm of secure sums for 5 interactions at the usual learning rate.
    "bounded": {
        "against": _Parameter("update", ("update", "model", "features")),
        "length": _Parameter(0.3354, (), 0.0, 1e6),
        **_KNOWLEDGE,
    },
    "min-max": {**_PERTURBATION, **_JITTER, **_KNOWLEDGE},
    "min-sum": {**_PERTURBATION, **_JITTER, **_KNOWLEDGE},
    # Longer or more bursts or more noise were too long on average, and the rule clipped them.
    "launder": {
        **_TOWARDS,
        "period": _Parameter(4.0, (), 2.0, 1000.0),
        "burst": _Parameter(5.0, (), 0.0, 1e6),
        "counted": _Parameter(2.0, (), 0.0, 1e6),
        "noise": _Parameter(0.5, (), 0.0, 1e6),
        **_START,
    },
    "framing": {"knowledge": _Parameter("full", ("full",))},
    "creep": {
        **_TOWARDS,
        "step": _Parameter(0.25, (), 0.0, 1e6),
        "honest": _Parameter(1.0, (), 0.0, 1.0),
        "longest": _Parameter(2.0, (), 0.0, 1e6),
        **_START,
        **_SPREAD,
    },
    "acceptable": {
        **_TOWARDS,
        "least": _Parameter(0.1, (), 0.0, 1e6),
        "longest": _Parameter(0.3, (), 0.0, 1e6),
        **_START,
        **_KNOWLEDGE,
    },
    "alternate": {
        **_HOSTILE,
        "z": _Parameter(5.0, (), 0.0, 1e6),
        "period": _Parameter(10.0, (), 1.0, 1e6),
        "hostile": _Parameter(2.0, (), 0.0, 1e6),
        **_START,
    },
    "turncoat": {
        **_HOSTILE,
        "z": _Parameter(5.0, (), 0.0, 1e6),
        "before": _Parameter("honest", ("honest", "copies")),
        "start": _Parameter(300.0, (), 1.0, 1e6),
        **_SPREAD,
    },
    # A client is judged after at least six updates, and a stranger's are clipped at twice the usual length.
    "sybils": {**_HOSTILE, "z": _Parameter(1.7, (), 0.0, 1e6), "life": _Parameter(5.0, (), 1.0, 1e6)},
    "late-joiners": {
        **_HOSTILE,
        "z": _Parameter(1.7, (), 0.0, 1e6),
        "start": _Parameter(300.0, (), 1.0, 1e6),
    },
    "not-finite": {"value": _Parameter("nan", ("nan", "inf", "-inf"))},
    "huge": {"size": _Parameter(MAX_ABS_DELTA, (), 0.0, 3e38)},
}


CRAFTING = dict[str, Callable[..., Any]]()
"""The functions of attacks from outside, by name: an `AttackedRound` and parameters to updates (m, d), or (d,)."""


def add_attack(name: str, function: Callable[..., Any], meaning: str, defaults: Mapping[str, float]) -> None:
    """Add an attack from outside. Its parameters may have any finite value."""
    ATTACKS[name] = meaning
    _PARAMETERS[name] = {key: _Parameter(value, (), -1e300, 1e300) for key, value in defaults.items()} | _KNOWLEDGE
    CRAFTING[name] = function


def attack_parameters_of(name: str) -> dict[str, str]:
    """Return the parameters with their defaults. Raises SettingsError for an unknown attack."""
    if name not in ATTACKS:
        raise SettingsError(
            f"attack: unknown {name!r}; known are {', '.join(ATTACKS)}{also_installed('foltr.attacks', ATTACKS)}"
        )
    return {key: _shown(parameter.default) for key, parameter in _PARAMETERS.get(name, {}).items()}


def read_attack(name: str, parameters: Mapping[str, object] | None = None) -> AttackSpec:
    """Build an attack from its name and settings.

    Args:
        parameters: those that differ from the default; numbers may be text.

    Raises:
        SettingsError: unknown attack or parameter, or a value that is not allowed.
    """
    defaults = attack_parameters_of(name)
    known = _PARAMETERS.get(name, {})
    for key in parameters or {}:
        if key not in known:
            has = f"it has {', '.join(defaults)}" if defaults else "it has none"
            raise SettingsError(f"attack_parameters: {key}: {name} has no such parameter; {has}")
    values = {
        key: _value(name, key, (parameters or {}).get(key, parameter.default), parameter)
        for key, parameter in known.items()
    }
    knowledge = cast("Knowledge", values.pop("knowledge", "partial"))
    if values.get("before") == "copies" and knowledge != "full":
        raise SettingsError("attack_parameters: before: copies need the honest updates; set knowledge=full too")
    return AttackSpec(name, tuple(values.items()), knowledge)


def has_parameter(name: str, parameter: str) -> bool:
    return parameter in _PARAMETERS.get(name, {})


def check_attack(spec: AttackSpec, training: Training) -> None:
    """Raise SettingsError if the attack does not apply to the method."""
    method = spec_of(training)
    if spec.name != CLICKS and method.not_weights is not None:
        raise SettingsError(
            f"attack: {method.name} sends {method.not_weights}, and {spec.name} changes differences of weights; "
            f"choose attack = {CLICKS}, or another method"
        )


def check_without_model(spec: AttackSpec) -> None:
    """Raise SettingsError if the attack needs what only the simulator provides: the model, or arbitrary names."""
    if spec.name == "bounded" and spec.text("against") == "model":
        raise SettingsError(
            "attack_parameters: against: bounded against the model is for the simulator; choose update or features"
        )
    if spec.name in _OF_THE_SIMULATOR:
        raise SettingsError(
            f"attack: {spec.name} is for the simulator; choose one that needs neither the model nor other names"
        )


def _value(attack: str, name: str, value: object, parameter: _Parameter) -> Setting:
    text = str(value)
    if text in parameter.words:
        return text
    if parameter.largest > parameter.least:
        try:
            number = float(text)
        except ValueError:
            number = float("nan")
        if parameter.least <= number <= parameter.largest:
            return number
    allowed = list(parameter.words)
    if parameter.largest > parameter.least:
        allowed.append(f"a number from {parameter.least:g} to {parameter.largest:g}")
    raise SettingsError(f"attack_parameters: {attack}: {name}: {text!r:.60} is not allowed; {' or '.join(allowed)}")


def _shown(value: Setting) -> str:
    return value if isinstance(value, str) else f"{value:g}"
