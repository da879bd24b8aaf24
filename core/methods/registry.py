"""All methods, how to make a method's parts from its settings, and which settings fit together."""

from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from foltr.core.aggregation.rule_spec import MEAN, RuleSpec
from foltr.core.errors import SettingsError
from foltr.core.learning.neural import init_neural
from foltr.core.methods.aggregations import is_plain_mean
from foltr.core.methods.base import Aggregation, DeviceContext, MethodDevice
from foltr.core.methods.bodies import BodySpec
from foltr.core.methods.fedips import FEDAVG, FEDIPS
from foltr.core.methods.fedper import FEDPER
from foltr.core.methods.fedprox import FEDPROX
from foltr.core.methods.foltr_es import FOLTR_ES
from foltr.core.methods.fpdgd import FPDGD
from foltr.core.methods.fpdgd_paper import FPDGD_PAPER
from foltr.core.methods.personal import PERSONAL
from foltr.core.methods.spec import Lists, MethodSpec, RoundSetup
from foltr.core.protocol.explorations import SAFE, Exploration, SamplingExploration
from foltr.core.protocol.fields import MAX_DIM, MAX_MESSAGE_BYTES
from foltr.core.protocol.trainings import Activation, LinearRankerSpec, NeuralRankerSpec, Training
from foltr.core.secure.encoding import clip_norm_for

Ranker = LinearRankerSpec | NeuralRankerSpec

METHODS: dict[str, MethodSpec[Any, Any]] = {
    spec.name: spec for spec in (FPDGD, FPDGD_PAPER, FEDPROX, FEDPER, PERSONAL, FOLTR_ES, FEDIPS, FEDAVG)
}
"""The methods by name, in the order in which they are listed."""
_BY_SETTINGS: dict[type[Training], MethodSpec[Any, Any]] = {spec.training: spec for spec in METHODS.values()}

_BOUNDED_LEARNING_RATE: Final = 3.0
_BOUNDED_CLIP_FACTOR: Final = 0.2

# Besides the weights, an announcement has names, numbers, settings and a signature.
_OVERHEAD_BYTES = 4096


def method_spec(method: str) -> MethodSpec[Any, Any]:
    """Return the method of a name; SettingsError with the known names for an unknown one."""
    if method not in METHODS:
        from foltr.core.installed_plugins import also_installed  # a device names no plug-in

        raise SettingsError(
            f"method: unknown {method!r}; known are {', '.join(METHODS)}{also_installed('foltr.methods', METHODS)}"
        )
    return METHODS[method]


def spec_of(training: Training) -> MethodSpec[Any, Any]:
    """Return the method whose settings these are."""
    settings = type(training)
    # Search for one that was added after the module was loaded.
    return _BY_SETTINGS.get(settings) or next(spec for spec in METHODS.values() if spec.training is settings)


def methods_with(lists: Lists) -> list[str]:
    """Return the names of the methods that show such lists."""
    return [spec.name for spec in METHODS.values() if spec.lists is lists]


def draws_lists(method: str) -> bool:
    """Return whether devices draw a method's lists by score, so that their exploration can be chosen."""
    return method_spec(method).lists is Lists.DRAWN


def parameters_of(method: str) -> dict[str, str]:
    """Return the parameters of a method by name, with their defaults as text, but not those of every method."""
    common = {"kind", "min_interactions", "max_interactions", "exploration"}
    fields = method_spec(method).training.model_fields
    return {
        name: "required" if field.is_required() else str(field.default)
        for name, field in fields.items()
        if name not in common
    }


def training_for(
    method: str, parameters: Mapping[str, object], interactions: int, exploration: Exploration | None = None
) -> Training:
    """Return the settings of a method.

    Args:
        parameters: those that differ from their default; numbers may be given as text.
        interactions: in one update.
        exploration: how devices draw their lists; None for the safe one.

    Raises:
        SettingsError: an unknown method or parameter, or a value is not allowed, or the method draws no lists.
    """
    known = parameters_of(method)
    if exploration is not None and not draws_lists(method):
        raise SettingsError(
            f"exploration: {method} shows other lists and draws none by score; leave it unset, or choose one of "
            f"{', '.join(methods_with(Lists.DRAWN))}"
        )
    for name in parameters:
        if name not in known:
            raise SettingsError(f"{name}: {method} has no such parameter; it has {', '.join(known)}")
    # Otherwise the letters themselves would be read as the bytes of weights.
    if not isinstance(parameters.get("logging_policy", b""), bytes):
        raise SettingsError(
            "logging_policy: give a file of float32 weights, with the setting logging_policy; "
            "weights cannot be given as text"
        )
    values = {
        "min_interactions": interactions,
        "max_interactions": interactions,
        "exploration": SAFE if exploration is None else exploration,
        **parameters,
    }
    try:
        training: Training = method_spec(method).training.model_validate(values, strict=False)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in problem["loc"]) or method
        raise SettingsError(f"{method}: {name}: {problem['msg']}") from error
    return training


def activation_for(method: str, ranker: str, asked: Activation | None) -> Activation:
    """Return the activation of a neural ranker's hidden units: the requested one, or the method's.

    Args:
        method: the service's, or any other, which learns by PDGD with sigmoid units.

    Raises:
        SettingsError: one is requested for a linear ranker.
    """
    if asked is not None and ranker == "linear":
        raise SettingsError("activation: a linear ranker has no hidden units; choose ranker = neural, or leave it out")
    return asked or (METHODS[method].activations[0] if method in METHODS else "sigmoid")


def ranker_for(kind: str, n_features: int, hidden: int, activation: Activation = "sigmoid") -> Ranker:
    """Return the ranker of a federation; SettingsError for another kind than linear and neural, or one too large.

    Args:
        hidden, activation: of a neural ranker's hidden units; a linear one has none.
    """
    if kind == "linear":
        return LinearRankerSpec(n_features=n_features)
    if kind != "neural":
        raise SettingsError(f"ranker: {kind!r} is neither linear nor neural")
    if hidden < 1 or hidden * (n_features + 2) > MAX_DIM:
        raise SettingsError(
            f"hidden: {hidden} units for {n_features} features; from 1 to {MAX_DIM // (n_features + 2)} can be sent"
        )
    return NeuralRankerSpec(n_features=n_features, hidden=hidden, activation=activation)


def ranker_of_method(method: str, kind: str, n_features: int, hidden: int, asked: Activation | None = None) -> Ranker:
    """Return the ranker that a method should learn; SettingsError as `activation_for` and `ranker_for`."""
    return ranker_for(kind, n_features, hidden, activation_for(method, kind, asked))


def check_method(training: Training, ranker: Ranker) -> None:
    """Raise SettingsError, with an explanation, if a method does not fit the ranker or its own settings."""
    spec = spec_of(training)
    if spec.only_ranker is not None and ranker.kind != spec.only_ranker.kind:
        raise SettingsError(f"{spec.name}: {spec.only_ranker.cause}")
    if isinstance(ranker, NeuralRankerSpec) and ranker.activation not in spec.activations:
        raise SettingsError(
            f"activation: {spec.name} learns neural rankers of {' and '.join(spec.activations)} units, not of "
            f"{ranker.activation} ones"
        )
    spec.check(training, ranker)


def check_rule(training: Training, rule: RuleSpec) -> None:
    """Raise SettingsError, with an explanation, if an aggregation rule does not fit the method."""
    if is_plain_mean(rule):
        return
    spec = spec_of(training)
    if spec.not_weights is not None:
        raise SettingsError(
            f"aggregation: {spec.name} sends {spec.not_weights}, and {rule.text} compares differences of weights; "
            "choose aggregation = mean, or another method"
        )
    spec.check_rule(rule)


def n_auxiliary(training: Training, ranker: Ranker) -> int:
    """Return how many values the model has beside the ranker's."""
    return spec_of(training).n_auxiliary(training, ranker)


def body_spec(training: Training, ranker: Ranker) -> BodySpec:
    """Return the form of this federation's updates."""
    return spec_of(training).body(training, ranker, ranker.n_weights + n_auxiliary(training, ranker))


def usual_learning_rate(method: str, ranker: str, exploration: Exploration | None) -> float | None:
    """Return the devices' learning rate if none is requested; None: the method's own default.

    The papers' rate suits their lists, which are samples, most of them informative. With bounded exploration few lists
    are, and with a rate from 1 to 10 a linear ranker learns about as much from as many lists (docs/decisions.md).
    """
    bounded = exploration != SamplingExploration()
    return _BOUNDED_LEARNING_RATE if method == FPDGD.name and ranker == "linear" and bounded else None


def usual_clip_norm(training: Training, n_interactions: int) -> float:
    """Return the norm to which updates of so many interactions are clipped in secure sums, if none is requested.

    With little exploration updates are shorter: 2.0 is above 95 in 100 of them at a learning rate of 3, on MQ2008 and a
    desktop search, with 5 informational interactions.
    """
    sampled = not draws_lists(spec_of(training).name) or training.exploration == SamplingExploration()
    factor = 1.0 if sampled else _BOUNDED_CLIP_FACTOR
    return factor * clip_norm_for(n_interactions, getattr(training, "learning_rate", 0.1))


def learns_from_kept_lists(training: Training, ranker: Ranker) -> bool:
    """Return whether clients can be unlearned by others learning again from kept lists, in steps of one message each.

    If not, the last model from before the client takes over, and learning goes on from there.
    """
    n_values = ranker.n_weights + n_auxiliary(training, ranker)
    return spec_of(training).learns_again and 4 * n_values + _OVERHEAD_BYTES <= MAX_MESSAGE_BYTES


def initial_weights(training: Training, ranker: Ranker, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return (n_weights + n_auxiliary,) the first model: zeros, or small random weights for sigmoid units.

    The gradient of PDGD is zero at a neural ranker of zeros. Perturbations need no gradient, and FOLtR-ES' ranker of
    ReLU units begins with zeros as published.
    """
    extra = np.zeros(n_auxiliary(training, ranker), np.float32)
    if isinstance(ranker, LinearRankerSpec) or ranker.activation == "relu":
        return np.concatenate([np.zeros(ranker.n_weights, np.float32), extra])
    return np.concatenate([init_neural(ranker.n_features, ranker.hidden, rng), extra])


def make_device(
    training: Training, ranker: Ranker, weights: NDArray[np.float32], version: int, context: DeviceContext
) -> MethodDevice:
    """Return the device part for one global model.

    Args:
        weights: (n_weights + n_auxiliary,) of the global model.
        version: of the global model.

    Raises:
        SettingsError: as `check_method`.
    """
    check_method(training, ranker)
    return spec_of(training).device(training, ranker, weights, version, context)


def make_aggregation(
    training: Training,
    ranker: Ranker,
    rule: RuleSpec = MEAN,
    *,
    n_expected: int | None = None,
    rng: np.random.Generator | None = None,
) -> Aggregation:
    """Return the federator part for one round.

    Args:
        rule: how updates become one.
        n_expected: how many updates will come, so that a rule that keeps them allocates once.
        rng: for the pre-step bucketing; no other rule draws.

    Raises:
        SettingsError: as `check_rule`.
    """
    check_rule(training, rule)
    return spec_of(training).aggregation(training, body_spec(training, ranker), RoundSetup(rule, n_expected, rng))
