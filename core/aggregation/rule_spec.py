"""The rules of aggregation, their settings, and how many updates they need.

A rule is written ``krum``, or with a step before it ``nnm+krum``. ``byzantine`` is how many hostile clients it must
tolerate, m in the papers: a number of clients, or a share of those whose updates arrived.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from foltr.core.errors import SettingsError

ABANDON = "abandon"
"""As a fallback: make no model in a round that has too few updates."""

# More than any federation has; ends the search for the least number of clients.
_MOST_CLIENTS = 100_000


@dataclass(frozen=True, slots=True)
class _Parameter:
    """One parameter: its default, what the default means, and the least and the largest value."""

    default: float
    meaning: str
    least: float
    largest: float = math.inf
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Need:
    """A condition on the number of updates: n >= slope * m + offset.

    Attributes:
        formula: the right side, as in the paper.
    """

    slope: int
    offset: int
    formula: str


@dataclass(frozen=True, slots=True)
class RuleTerms:
    """A rule or a step before it: its meaning, needs and parameters.

    Attributes:
        meaning: for people, with its source.
        need: for the tolerance that the paper promises; None: any number of updates.
        computable: the least that can be computed, the limit with `beyond_bounds`; None: any number.
        parameters: by name.
        function: makes (d,) from (n, d) updates, (n,) weights, m and the parameters by name; None for rules of
            `foltr.core.aggregation.rules`.
    """

    meaning: str
    need: Need | None = None
    computable: Need | None = None
    parameters: Mapping[str, _Parameter] = field(default_factory=dict)
    function: Callable[..., Any] | None = None


_MAJORITY = Need(2, 1, "2m + 1")
_KRUM, _KRUM_COMPUTABLE = Need(2, 3, "2m + 3"), Need(1, 3, "m + 3")
_TRIMMED = Need(2, 1, "2 * beta + 1")

RULES: dict[str, RuleTerms] = {
    "mean": RuleTerms("every update counts by its interactions; one hostile client is enough to ruin it"),
    "krum": RuleTerms("the one update nearest to its neighbours (Blanchard et al. 2017)", _KRUM, _KRUM_COMPUTABLE),
    "multi-krum": RuleTerms("the mean of the n - m updates that Krum likes best", _KRUM, _KRUM_COMPUTABLE),
    "trimmed-mean": RuleTerms(
        "of each weight the mean without the m largest and m smallest (Yin et al. 2018)",
        _TRIMMED,
        _TRIMMED,
        {"beta": _Parameter(-1, "as byzantine: the smallest and the largest m of each coordinate", 0)},
    ),
    "median": RuleTerms("of each weight the median (Yin et al. 2018)", _MAJORITY),
    "bulyan": RuleTerms(
        "near the median of the updates that Krum chose one by one (El Mhamdi et al. 2018)",
        Need(4, 3, "4m + 3"),
        Need(4, 1, "4m + 1"),
    ),
    "geometric-median": RuleTerms(
        "the point with the least sum of distances to all updates (Pillutla et al. 2022)",
        _MAJORITY,
        parameters={
            "n_iterations": _Parameter(32, "at most 32", 1, 10_000, whole=True),
            "tolerance": _Parameter(1e-4, "0.0001 of the median distance", 0, 1),
        },
    ),
    "centred-clipping": RuleTerms(
        "the mean after shortening what is far from the centre (Karimireddy et al. 2021)",
        _MAJORITY,
        parameters={
            "clip_norm": _Parameter(0, "0: the median distance to the start", 0),
            "n_iterations": _Parameter(3, "3", 1, 10_000, whole=True),
        },
    ),
    "norm-bounding": RuleTerms(
        "the mean after shortening long updates (Sun et al. 2019)",
        parameters={
            "clip_norm": _Parameter(0, "0: clip_factor times the median norm of the round", 0),
            "clip_factor": _Parameter(1, "1", 1e-6),
        },
    ),
    "adaptive": RuleTerms(
        "the mean without clients that evidence from many rounds incriminates, and with bounds for the others",
        parameters={
            "patience": _Parameter(
                20, "20 updates under suspicion in a row propose a quarantine; from 1", 1, whole=True
            ),
            "differing": _Parameter(
                0, "0; 1 if honest clients differ: who pulls with the others is bounded, not left out", 0, 1, whole=True
            ),
        },
    ),
}
PRE_STEPS: Mapping[str, RuleTerms] = {
    "nnm": RuleTerms(
        "before a rule, nnm+RULE: each update becomes the mean of its n - m nearest (Allouah et al. 2023)",
        _MAJORITY,
        Need(1, 1, "m + 1"),
    ),
    "bucketing": RuleTerms(
        "before a rule, bucketing+RULE: random groups become their means (Karimireddy et al. 2022)",
        parameters={"bucket_size": _Parameter(2, "2", 1, _MOST_CLIENTS, whole=True)},
    ),
}


def rule_terms(function: Callable[..., Any], meaning: str, defaults: Mapping[str, float]) -> RuleTerms:
    """Return the terms of a rule from outside: any number of updates, and parameters of any finite value."""
    parameters = {name: _Parameter(value, f"{value:g}", -math.inf) for name, value in defaults.items()}
    return RuleTerms(meaning, parameters=parameters, function=function)


_BEYOND_BOUNDS = "beyond_bounds"
_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")


@dataclass(frozen=True, slots=True)
class RuleSpec:
    """A rule with its settings; `read_rule` makes it from text and checks it.

    Attributes:
        byzantine: hostile clients to tolerate: below 0.5 a share of the updates, else a whole number of clients.
        parameters: explicitly set ones, by name; others have their default.
        fallback: the rule for a round with too few updates, or "abandon".
        beyond_bounds: use the rule although it promises nothing with so few updates (the thesis, section 5.5, runs Krum
            with m = 4 of n = 10), if it can be computed.
    """

    rule: str = "mean"
    pre_step: str | None = None
    byzantine: float = 0.2
    parameters: tuple[tuple[str, float], ...] = ()
    fallback: str = "median"
    beyond_bounds: bool = False

    @property
    def text(self) -> str:
        """The rule in its written form, e.g. ``nnm+krum``."""
        return self.rule if self.pre_step is None else f"{self.pre_step}+{self.rule}"

    def parameter(self, name: str) -> float:
        """The set value, or the default; KeyError for a name that neither the rule nor its pre-step has."""
        return self.all_parameters()[name]

    def all_parameters(self) -> dict[str, float]:
        """Return the parameters of the rule and of its pre-step, as set or by default."""
        defaults = {name: parameter.default for name, parameter in _allowed(self.rule, self.pre_step).items()}
        return defaults | dict(self.parameters)


MEAN = RuleSpec()


def read_rule(
    text: str,
    *,
    byzantine: float = 0.2,
    parameters: Mapping[str, object] | None = None,
    fallback: str = "median",
) -> RuleSpec:
    """Read a rule from its text and settings.

    Args:
        byzantine: see `RuleSpec`.
        parameters: by name, as numbers or as text; see `parameters_of_rule`.
        fallback: a rule, or "abandon".

    Raises:
        SettingsError: an unknown name or value, or a rule that no number of clients makes possible.
    """
    pre_step, rule = _split(text, "aggregation")
    check_byzantine(byzantine)
    if fallback != ABANDON and _split(fallback, "aggregation_fallback")[1] == "adaptive":
        raise SettingsError("aggregation_fallback: adaptive cannot be a fallback; name a rule such as median")
    values = dict(parameters or {})
    beyond_bounds = _truth(values.pop(_BEYOND_BOUNDS, False))
    allowed = _allowed(rule, pre_step)
    numbers = tuple(sorted((name, _number(text, name, value, allowed)) for name, value in values.items()))
    spec = RuleSpec(rule, pre_step, float(byzantine), numbers, fallback, beyond_bounds)
    least_clients(spec)
    return spec


def parameters_of_rule(text: str) -> dict[str, str]:
    """Return a rule's parameters with descriptions of their defaults; SettingsError for an unknown rule."""
    pre_step, rule = _split(text, "aggregation")
    names = {name: parameter.meaning for name, parameter in _allowed(rule, pre_step).items()}
    if RULES[rule].need is not None or pre_step is not None:
        names[_BEYOND_BOUNDS] = "false: a round with too few updates follows the fallback"
    return names


def n_byzantine(spec: RuleSpec, n: int) -> int:
    """Return m, how many hostile ones among n updates the rule must tolerate."""
    # A share of 0.2 of 10 must be 2 although 0.2 is inexact in binary.
    return math.ceil(spec.byzantine * n - 1e-9) if spec.byzantine < 0.5 else int(spec.byzantine)


def n_trimmed(spec: RuleSpec, n: int) -> int:
    """Return how many of n values of a coordinate the trimmed mean drops at either end."""
    beta = spec.parameter("beta")
    return n_byzantine(spec, n) if beta < 0 else math.ceil(beta * n - 1e-9) if beta < 0.5 else int(beta)


def shortfall(spec: RuleSpec, n: int) -> str | None:
    """Say why n updates are too few for the rule; None if they are enough."""
    for name, seen, least, formula in _requirements(spec, n):
        if seen < least:
            to_tolerate = f" to tolerate m = {n_byzantine(spec, n)} hostile ones" if "m" in formula else ""
            here = f"{seen} buckets of {n} updates" if seen != n else str(seen)
            return f"{name} needs at least {formula} = {least} updates{to_tolerate}, and there are {here}"
    return None


def least_clients(spec: RuleSpec) -> int:
    """Return the smallest number of updates without a shortfall; SettingsError if no number has none."""
    for n in range(1, _MOST_CLIENTS):
        if all(seen >= least for _, seen, least, _ in _requirements(spec, n)):
            return n
        if n == 5_000 and spec.byzantine < 0.5 and shortfall(spec, _MOST_CLIENTS) is not None:
            break  # a share that is too large stays so for any number
    raise SettingsError(
        f"byzantine: {spec.text} cannot tolerate {spec.byzantine:g} of any number of updates; lower it, or choose "
        "another aggregation"
    )


def check_byzantine(byzantine: float) -> None:
    """Raise SettingsError unless it is a share below a half, or a whole number of clients."""
    if not (0 <= byzantine < 0.5 or (math.isfinite(byzantine) and byzantine >= 1 and byzantine == int(byzantine))):
        raise SettingsError(
            f"byzantine: {byzantine!r} is neither a share of at least 0 and below 0.5 nor a whole number of clients"
        )


def _requirements(spec: RuleSpec, n: int) -> list[tuple[str, int, int, str]]:
    """Return (name, the number it sees, the number it needs, its formula) for the pre-step and the rule."""
    seen = math.ceil(n / spec.parameter("bucket_size")) if spec.pre_step == "bucketing" else n
    terms = {} if spec.pre_step is None else {spec.pre_step: PRE_STEPS[spec.pre_step]}
    requirements = []
    for name, one in {**terms, spec.rule: RULES[spec.rule]}.items():
        need = one.computable if spec.beyond_bounds else one.need
        if need is not None:
            # A bucket with one hostile update in it is hostile: m does not shrink with the number of buckets.
            tolerated = n_trimmed(spec, n) if name == "trimmed-mean" else n_byzantine(spec, n)
            requirements.append((name, seen, need.slope * tolerated + need.offset, need.formula))
    return requirements


def _split(text: str, setting: str) -> tuple[str | None, str]:
    pre_step, plus, rule = text.strip().rpartition("+")
    if rule not in RULES or (plus and pre_step not in PRE_STEPS):
        also = f', or "{ABANDON}"' if setting == "aggregation_fallback" else ""
        from foltr.core.installed_plugins import also_installed  # a device names no plug-in

        raise SettingsError(
            f"{setting}: unknown rule {text!r}; known are {', '.join(RULES)}{also}; before it may stand "
            + " or ".join(f"{name}+" for name in PRE_STEPS)
            + also_installed("foltr.rules", RULES)
        )
    if plus and rule == "adaptive":
        raise SettingsError(f"{setting}: adaptive chooses its own steps; write it without {pre_step}+")
    return pre_step or None, rule


def _allowed(rule: str, pre_step: str | None) -> dict[str, _Parameter]:
    return {**RULES[rule].parameters, **(PRE_STEPS[pre_step].parameters if pre_step else {})}


def _number(text: str, name: str, value: object, allowed: Mapping[str, _Parameter]) -> float:
    if name not in allowed:
        known = ", ".join([*allowed, _BEYOND_BOUNDS])
        raise SettingsError(f"aggregation_parameters: {text} has no parameter {name!r}; it has {known}")
    limits = allowed[name]
    try:
        number = float(value)  # type: ignore[arg-type]  # invalid input is refused below
    except (TypeError, ValueError):
        number = math.nan
    if not limits.least <= number <= limits.largest or (limits.whole and number != int(number)):
        kind = "a whole number" if limits.whole else "a number"
        raise SettingsError(
            f"aggregation_parameters: {name}={value} must be {kind} from {limits.least:g} to {limits.largest:g}"
        )
    if not math.isfinite(number) or (name == "beta" and number >= 0.5 and number != int(number)):
        raise SettingsError(
            f"aggregation_parameters: {name}={value} must be finite, and beta a share below 0.5 or a whole number"
        )
    return number


def _truth(value: object) -> bool:
    word = str(value).strip().lower()
    if word not in _TRUE + _FALSE:
        raise SettingsError(f"aggregation_parameters: {_BEYOND_BOUNDS}={value} must be true or false")
    return word in _TRUE
