"""Everything that a setting of a simulation can name: foltr's own, what this program has registered, and what installed
packages add by entry points.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from foltr.core.aggregation.rule_spec import PRE_STEPS, RULES, parameters_of_rule
from foltr.core.data.sources import MSLR_SAMPLE, SYNTHETIC, SYNTHETIC_LARGE, SYNTHETIC_NONLINEAR
from foltr.core.evaluation.click_models import CLICK_MODEL_NAMES
from foltr.core.evaluation.named_metrics import MAX_RR, METRIC_FUNCTIONS
from foltr.core.installed_plugins import first_line, installed_plugins
from foltr.core.methods.registry import METHODS
from foltr_research.attacks.registry import ATTACKS, attack_parameters_of
from foltr_research.simulation.config import SYNTHETIC_INTENTS
from foltr_research.simulation.method_names import SIMULATOR_METHODS, simulated_parameters_of
from foltr_research.simulation.plugins import GROUPS, KINDS, Kind, held, plug_in, registered

OURS = "foltr"

_CLICK_MODELS = (*CLICK_MODEL_NAMES, "pbm-<eta>", "fedips-<gamma>")
_DATA = {
    SYNTHETIC: "generated; relevance is a noisy reading of a hidden linear score",
    SYNTHETIC_NONLINEAR: "generated; half of the score comes from products of two features",
    SYNTHETIC_LARGE: "generated; 1,000 training queries",
    SYNTHETIC_INTENTS: "generated; users differ in what they find relevant, for populations of type1",
    MSLR_SAMPLE: "rows of MSLR-WEB10K",
}


@dataclass(frozen=True)
class Available:
    """A name that a setting can have.

    Attributes:
        kind: the setting.
        source: ``foltr``, the package whose entry point it is, or the module that was handed over.
        parameters: with their defaults as text.
        meaning: the first line of its description; may be empty.
        error: why it cannot be used; None if it can.
    """

    kind: Kind
    name: str
    source: str
    parameters: Mapping[str, str]
    meaning: str
    error: str | None = None


def available(kinds: Iterable[Kind] = KINDS) -> list[Available]:
    """Return all names by kind: foltr's own first, then what was handed over, then what packages add.

    What packages add is imported and registered. An entry point that fails is returned with its error.
    """
    return [one for kind in kinds for one in (*_own(kind), *_handed_over(kind), *_installed(kind))]


def _own(kind: Kind) -> list[Available]:
    names: Iterable[str]
    match kind:
        case "method":
            names = (*METHODS, *SIMULATOR_METHODS)
        case "aggregation":
            names = (*RULES, *(f"{step}+" for step in PRE_STEPS))
        case "attack":
            names = ATTACKS
        case "clicks":
            names = _CLICK_MODELS
        case "metrics":
            names = (*METRIC_FUNCTIONS, MAX_RR)
        case "data":
            names = _DATA
    return [_described(kind, name, OURS) for name in names if held(kind, name) is None]


def _handed_over(kind: Kind) -> list[Available]:
    installed = {one.name for one in installed_plugins(GROUPS[kind])}
    return [_described(kind, name, _module_of(held(kind, name))) for name in registered(kind) if name not in installed]


def _installed(kind: Kind) -> list[Available]:
    own = {one.name for one in _own(kind)}
    rows = []
    for one in installed_plugins(GROUPS[kind], own):
        error = one.error
        if error is None and held(kind, one.name) is None:
            try:
                plug_in(kind, one.thing, one.name)
            except Exception as refused:  # noqa: BLE001 (a package's own code may raise anything)
                error = str(refused)
        rows.append(
            _described(kind, one.name, one.package)
            if error is None
            else Available(kind, one.name, one.package, {}, "", error)
        )
    return rows


def _described(kind: Kind, name: str, source: str) -> Available:
    parameters: Mapping[str, str] = {}
    match kind:
        case "method":
            parameters = simulated_parameters_of(name)
            meaning = SIMULATOR_METHODS.get(name) or first_line(METHODS[name].training)
        case "aggregation":
            step = name.removesuffix("+")
            parameters = parameters_of_rule(name if step == name else f"{name}mean")
            meaning = {**RULES, **PRE_STEPS}[step].meaning
        case "attack":
            parameters, meaning = attack_parameters_of(name), ATTACKS[name]
        case _:
            meaning = _DATA.get(name) or first_line(held(kind, name))
    return Available(kind, name, source, parameters, meaning.removesuffix("."))


def _module_of(thing: Any) -> str:
    return str(getattr(thing, "__module__", "this program"))
