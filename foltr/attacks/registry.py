"""The attacks by name: what each is called, what can be set, and `craft`, which makes its updates.

The threat model is that of Wang's thesis, Section 5.2.1: attackers control fewer than half of the clients, share all
that those clients know, and aim to make the ranker worse for everybody. With partial knowledge they have their own
honest updates and the global model; with full knowledge everybody's, which only the simulator and a process that runs
all devices can give them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from foltr.aggregation.rule_spec import RuleSpec, n_byzantine
from foltr.attacks.aware import framing, launder
from foltr.attacks.crafting import (
    Perturbation,
    bounded,
    fang_krum,
    fang_krum_partial,
    fang_trimmed_mean,
    inner_product,
    lie,
    lie_z,
    min_max,
    min_sum,
    reversed_direction,
)
from foltr.errors import SettingsError
from foltr.methods.registry import spec_of
from foltr.protocol.fields import MAX_ABS_DELTA
from foltr.protocol.trainings import Training

Knowledge = Literal["partial", "full"]
Setting = float | str

CLICKS = "clicks"
ATTACKS: Mapping[str, str] = {
    CLICKS: "the attackers' users click as the click model poison: irrelevant documents first",
    "lie": "a little is enough: z standard deviations from the mean, too near to be noticed",
    "fang-krum": "the farthest update against the learning direction that Krum still chooses",
    "fang-trimmed-mean": "values just beyond the honest ones, which trimmed mean and median let pass",
    "sign-flip": "the honest update, negated",
    "scaled": "the honest update times -z",
    "inner-product": "the mean update times -epsilon",
    "bounded": "as long as is set, against the mean update, the model or all features alike",
    "min-max": "as far against the mean as the two honest updates farthest apart are from each other",
    "min-sum": "as far against the mean as the summed distances of an honest update allow",
    "launder": "long steps that the defence adaptive counts as short ones, paid back by short ones",
    "framing": "copies of what honest clients of the round send, so that adaptive takes those for the copies",
    "not-finite": "values that are no numbers",
    "huge": "the largest values that a message may hold",
}
MODEL_ATTACKS = tuple(name for name in ATTACKS if name != CLICKS)


@dataclass(frozen=True)
class AttackSpec:
    """An attack with its settings; `read_attack` makes it and checks it.

    Attributes:
        parameters: all of the attack's by name, with their defaults where they were not set; without ``knowledge``.
    """

    name: str
    parameters: tuple[tuple[str, Setting], ...] = ()
    knowledge: Knowledge = "partial"

    def number(self, name: str) -> float:
        return float(dict(self.parameters)[name])

    def text(self, name: str) -> str:
        return str(dict(self.parameters)[name])


@dataclass(frozen=True)
class _Parameter:
    """A parameter that can be set: one of some words, or a number in a range."""

    default: Setting
    words: tuple[str, ...] = ()
    least: float = 0.0
    largest: float = 0.0


_KNOWLEDGE = {"knowledge": _Parameter("partial", ("partial", "full"))}
# Colluders who all send the same are easily told by just that; the papers do not hide it.
_JITTER = {"jitter": _Parameter(0.0, (), 0.0, 1000.0)}
_PERTURBATION = {"perturbation": _Parameter("unit", ("unit", "std", "sign"))}
_PARAMETERS: Mapping[str, Mapping[str, _Parameter]] = {
    "lie": {"z": _Parameter("auto", ("auto",), -100.0, 100.0), **_JITTER, **_KNOWLEDGE},
    "fang-krum": {**_JITTER, **_KNOWLEDGE},
    # Fang et al., Section 5.1.3, found that b matters little and took 2.
    "fang-trimmed-mean": {"b": _Parameter(2.0, (), 1.0, 1e6), **_KNOWLEDGE},
    "scaled": {"z": _Parameter(2.0, (), 0.0, 1e6)},
    # Xie et al. show that small ones defeat Krum and the median; the mean only turns round above (n - m) / m.
    "inner-product": {"epsilon": _Parameter(0.1, (), 0.0, 1e6), **_JITTER, **_KNOWLEDGE},
    # The default is what updates are clipped to under secure sums, of 5 interactions at the usual learning rate.
    "bounded": {
        "against": _Parameter("update", ("update", "model", "features")),
        "length": _Parameter(0.3354, (), 0.0, 1e6),
        **_KNOWLEDGE,
    },
    "min-max": {**_PERTURBATION, **_JITTER, **_KNOWLEDGE},
    "min-sum": {**_PERTURBATION, **_JITTER, **_KNOWLEDGE},
    # As `adaptive` is now: longer bursts, more of them or more noise are too long on average, and are shortened.
    "launder": {
        "period": _Parameter(4.0, (), 2.0, 1000.0),
        "burst": _Parameter(5.0, (), 2.0, 1e6),
        "start": _Parameter(30.0, (), 1.0, 1e6),
        "noise": _Parameter(0.5, (), 0.0, 1e6),
    },
    "framing": {"knowledge": _Parameter("full", ("full",))},
    "not-finite": {"value": _Parameter("nan", ("nan", "inf", "-inf"))},
    "huge": {"size": _Parameter(MAX_ABS_DELTA, (), 0.0, 3e38)},
}


def attack_parameters_of(name: str) -> dict[str, str]:
    """Return what can be set, with the defaults; SettingsError for an attack that does not exist."""
    if name not in ATTACKS:
        raise SettingsError(f"attack: there is no {name!r}; known are {', '.join(ATTACKS)}")
    return {key: _shown(parameter.default) for key, parameter in _PARAMETERS.get(name, {}).items()}


def read_attack(name: str, parameters: Mapping[str, object] | None = None) -> AttackSpec:
    """An attack from its name and settings.

    Args:
        parameters: those that are not to have their default; numbers may be given as text.

    Raises:
        SettingsError: there is no such attack or parameter, or a value is not allowed.
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
    return AttackSpec(name, tuple(values.items()), knowledge)


def check_attack(spec: AttackSpec, training: Training) -> None:
    """SettingsError, in words, where an attack makes no sense with the method."""
    method = spec_of(training)
    if spec.name != CLICKS and method.not_weights is not None:
        raise SettingsError(
            f"attack: {method.name} sends {method.not_weights}, and {spec.name} changes differences of weights; "
            f"choose attack = {CLICKS}, or another method"
        )


def check_without_model(spec: AttackSpec) -> None:
    """SettingsError, in words, where an attack needs the model that rounds train from, and it is not at hand."""
    if spec.name == "bounded" and spec.text("against") == "model":
        raise SettingsError(
            "attack_parameters: against: bounded against the model is for the simulator; choose update or features"
        )
    if spec.name == "launder":
        raise SettingsError("attack: launder is for the simulator; choose one that does not look at the model")


def craft(
    spec: AttackSpec,
    own: NDArray[np.float64],
    others: NDArray[np.float64] | None,
    n: int,
    rule: RuleSpec | None,
    rng: np.random.Generator,
    model: NDArray[np.float32] | None = None,
    round_number: int = 1,
) -> NDArray[np.float32]:
    """Craft what the attackers of a round send.

    With a ``jitter`` each of those that would send the same adds noise of so many standard deviations of what they
    know, coordinate by coordinate, and looks like a client of its own.

    Args:
        spec: any but ``clicks``, whose updates are what was learned.
        own: (m, d) their updates as honest clients would have made them, in order of client_id.
        others: (n - m, d) those of the honest clients, likewise; None where nobody knows them.
        n: how many updates the round will have.
        rule: which aggregation the attackers believe in; None where they know of none.
        rng: as `attack_rng`; the same for all attackers of a round.
        model: (d,) that the round trains from; None where it is not at hand.
        round_number: from 1, as for `attack_rng`.

    Returns:
        (m, d) float32, which need not be finite.

    Raises:
        SettingsError: full knowledge, and nobody knows the others' updates; or an attack against a model that is
            not at hand.
    """
    if spec.knowledge == "full" and others is None:
        raise SettingsError(
            f"attack_parameters: knowledge: {spec.name} with full knowledge needs everybody's updates, which are known "
            "only where all devices run in one process; leave it at partial"
        )
    if model is None:
        check_without_model(spec)
        model = np.zeros(own.shape[1], np.float32)
    hidden = others if spec.knowledge == "full" else None
    with np.errstate(over="ignore", invalid="ignore"):  # an attacker may send what is not finite
        rows = np.broadcast_to(
            _crafted(spec, own, hidden, n, rule, rng, model.astype(np.float64), round_number), own.shape
        )
        jitter = spec.number("jitter") if "jitter" in _PARAMETERS.get(spec.name, {}) else 0.0
        if jitter:
            known = own if hidden is None else np.concatenate([own, hidden])
            rows = rows + jitter * known.std(axis=0) * rng.normal(size=own.shape)
        return rows.astype(np.float32)


def attack_rng(seed: int, round_number: int) -> np.random.Generator:
    """Return the generator that attackers draw from in a round.

    Args:
        round_number: from 1; one more than the version of the global model they were given.
    """
    return np.random.default_rng(np.random.SeedSequence([seed, round_number, *b"attack"]))


def _crafted(
    spec: AttackSpec,
    own: NDArray[np.float64],
    others: NDArray[np.float64] | None,
    n: int,
    rule: RuleSpec | None,
    rng: np.random.Generator,
    model: NDArray[np.float64],
    round_number: int,
) -> NDArray[np.float64]:
    """(m, d), or (d,) where all attackers send the same."""
    m = len(own)
    known = own if others is None else np.concatenate([own, others])
    match spec.name:
        case "lie":
            return lie(known, lie_z(n, m) if spec.text("z") == "auto" else spec.number("z"))
        case "fang-krum":
            if others is None or not len(others):
                return fang_krum_partial(own)
            return fang_krum(others, reversed_direction(known), m, _tolerated(rule, n, m))[0]
        case "fang-trimmed-mean":
            return fang_trimmed_mean(known, m, spec.number("b"), rng)
        case "sign-flip":
            return -own
        case "scaled":
            return -spec.number("z") * own
        case "inner-product":
            return inner_product(known, spec.number("epsilon"))
        case "bounded":
            return bounded(known, _turned_against(spec, model), spec.number("length"))
        case "min-max":
            return min_max(known, cast("Perturbation", spec.text("perturbation")))
        case "min-sum":
            return min_sum(known, cast("Perturbation", spec.text("perturbation")))
        case "launder":
            return _laundered(spec, own, model, round_number, rng)
        case "framing":
            return framing(own, own[:0] if others is None else others)
        case "not-finite":
            return np.full_like(own, float(spec.text("value")))
        case "huge":
            return np.where(own > 0.0, -1.0, 1.0) * spec.number("size")
    raise RuntimeError(f"{spec.name} crafts no updates")


def _laundered(
    spec: AttackSpec, own: NDArray[np.float64], model: NDArray[np.float64], round_number: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """(m, d): honest until the attack begins."""
    turn = round_number - int(spec.number("start"))
    if turn < 0:
        return own
    return launder(own, model, turn, int(spec.number("period")), spec.number("burst"), spec.number("noise"), rng)


def _turned_against(spec: AttackSpec, model: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """(d,) the direction that is turned round; None for that of the updates."""
    match spec.text("against"):
        case "update":
            return None
        case "features":
            return np.ones_like(model)
    return model


def _tolerated(rule: RuleSpec | None, n: int, m: int) -> int:
    """The m of the Krum that is attacked: what the rule is set to; of another rule, how many attackers there are."""
    return n_byzantine(rule, n) if rule is not None and rule.rule in {"krum", "multi-krum"} else m


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
