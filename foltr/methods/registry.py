"""From a method's settings to its parts; and what may be chosen together."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from foltr.aggregation.rule_spec import MEAN, RuleSpec
from foltr.errors import SettingsError
from foltr.learning.ips import position_propensities
from foltr.learning.laplace_shares import largest_delta
from foltr.learning.neural import init_neural
from foltr.learning.regression_em import LOWEST_PROPENSITY
from foltr.methods.aggregations import DeltaAggregation, is_plain_mean
from foltr.methods.base import Aggregation, Device, DeviceContext
from foltr.methods.bodies import BodySpec
from foltr.methods.fedips import FedIpsDevice, first_counts
from foltr.methods.fedper import FedPerDevice
from foltr.methods.foltr_es import EvolutionAggregation, EvolutionDevice
from foltr.methods.fpdgd import FpdgdDevice
from foltr.methods.fpdgd_paper import FpdgdPaperDevice
from foltr.methods.personal import PersonalDevice
from foltr.protocol.fields import MAX_ABS_DELTA, MAX_DIM, unpack_vector
from foltr.protocol.trainings import (
    EvolutionTraining,
    FedAvgTraining,
    FedIpsTraining,
    FedPerTraining,
    FedProxTraining,
    FpdgdPaperTraining,
    LinearRankerSpec,
    NeuralRankerSpec,
    PdgdTraining,
    PersonalTraining,
)

Ranker = LinearRankerSpec | NeuralRankerSpec
AnyTraining = (
    PdgdTraining
    | FpdgdPaperTraining
    | FedProxTraining
    | FedPerTraining
    | PersonalTraining
    | EvolutionTraining
    | FedIpsTraining
    | FedAvgTraining
)

_TRAININGS: dict[str, type[AnyTraining]] = {
    "fpdgd": PdgdTraining,
    "fpdgd-paper": FpdgdPaperTraining,
    "fedprox": FedProxTraining,
    "fedper": FedPerTraining,
    "fpdgd-personal": PersonalTraining,
    "foltr-es": EvolutionTraining,
    "fedips": FedIpsTraining,
    "fedavg": FedAvgTraining,
}
METHOD_NAMES = tuple(_TRAININGS)

# A click moves a weight by learning_rate / propensity times at most the number of candidates, features being in
# [0, 1]; of this many an update is to hold it.
_CANDIDATES = 1000
# Room for the rounding of a product such as 0.1 * 10, which is meant to be exactly 1.
_ROUNDING = 1e-9


def method_of(training: AnyTraining) -> str:
    """The method's name, as settings and tables spell it."""
    return next(name for name, kind in _TRAININGS.items() if isinstance(training, kind))


def training_type(method: str) -> type[AnyTraining]:
    """The settings class of a method; SettingsError with the names there are, if there is no such method."""
    if method not in _TRAININGS:
        raise SettingsError(f"method: there is no {method!r}; known are {', '.join(METHOD_NAMES)}")
    return _TRAININGS[method]


def parameters_of(method: str) -> dict[str, str]:
    """The parameters of a method by name, with their defaults as text; those of every method are not among them."""
    common = {"kind", "min_interactions", "max_interactions"}
    fields = training_type(method).model_fields
    return {
        name: "required" if field.is_required() else str(field.default)
        for name, field in fields.items()
        if name not in common
    }


def training_for(method: str, parameters: Mapping[str, object], interactions: int) -> AnyTraining:
    """The settings of a method.

    Args:
        parameters: those that are not to have their default; numbers may be given as text.
        interactions: in one update.

    Raises:
        SettingsError: there is no such method or parameter, or a value is not allowed.
    """
    known = parameters_of(method)
    for name in parameters:
        if name not in known:
            raise SettingsError(f"{name}: {method} has no such parameter; it has {', '.join(known)}")
    # Else the letters themselves would be read as the bytes of weights.
    if not isinstance(parameters.get("logging_policy", b""), bytes):
        raise SettingsError(
            "logging_policy: give a file of float32 weights, with `foltr federator run --logging-policy FILE`; "
            "weights cannot be given as text"
        )
    values = {"min_interactions": interactions, "max_interactions": interactions, **parameters}
    try:
        training: AnyTraining = training_type(method).model_validate(values, strict=False)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in problem["loc"]) or method
        raise SettingsError(f"{method}: {name}: {problem['msg']}") from error
    return training


def ranker_for(kind: str, n_features: int, hidden: int) -> Ranker:
    """The ranker of a federation; SettingsError for another kind than linear and neural, or one too large."""
    if kind == "linear":
        return LinearRankerSpec(n_features=n_features)
    if kind != "neural":
        raise SettingsError(f"ranker: {kind!r} is neither linear nor neural")
    if hidden < 1 or hidden * (n_features + 2) > MAX_DIM:
        raise SettingsError(
            f"hidden: {hidden} units for {n_features} features; from 1 to {MAX_DIM // (n_features + 2)} can be sent"
        )
    return NeuralRankerSpec(n_features=n_features, hidden=hidden)


def check_method(training: AnyTraining, ranker: Ranker) -> None:
    """SettingsError, in words, where a method makes no sense with the ranker or with its own settings."""
    method = method_of(training)
    linear = isinstance(ranker, LinearRankerSpec)
    if isinstance(training, FedPerTraining) and linear:
        raise SettingsError(
            "fedper: a linear ranker has no hidden layer to share; choose ranker = neural, or method fpdgd-personal"
        )
    if isinstance(training, PersonalTraining | FedIpsTraining | FedAvgTraining) and not linear:
        raise SettingsError(f"{method}: it is a method for linear rankers; choose ranker = linear")
    if isinstance(training, EvolutionTraining):
        n_values = training.serp_length + 1
        if training.antithetic and training.min_interactions < 2:
            raise SettingsError("foltr-es: antithetic perturbations need at least 2 interactions in an update")
        if training.keep_probability <= 1 / n_values:
            raise SettingsError(
                f"foltr-es: keep_probability: {training.keep_probability:g} says nothing of the metric; "
                f"it must be above 1/{n_values}"
            )
    if isinstance(training, FedProxTraining) and training.learning_rate * training.mu > 1.0 + _ROUNDING:
        raise SettingsError(
            f"fedprox: mu: learning_rate * mu is {training.learning_rate * training.mu:g}, and the pull would "
            f"overshoot the global model; with this learning_rate mu is at most {1.0 / training.learning_rate:g}"
        )
    if isinstance(training, FpdgdPaperTraining):
        largest = largest_delta(training.sensitivity, training.epsilon)
        if largest > MAX_ABS_DELTA:
            raise SettingsError(
                f"fpdgd-paper: sensitivity, epsilon: their noise could make a weight of an update {largest:.3g}, and "
                f"one holds {MAX_ABS_DELTA:g}; sensitivity * (1 + 80 / epsilon) is at most that"
            )
    if isinstance(training, FedIpsTraining):
        _check_propensities(training)
    if isinstance(training, FedIpsTraining | FedAvgTraining) and training.logging_policy:
        _check_logging_policy(method, training.logging_policy, ranker.n_features)


def _check_propensities(training: FedIpsTraining) -> None:
    if training.propensities == "estimated":
        if not training.position_bias:
            raise SettingsError("fedips: position_bias must be above 0 to estimate propensities, which start from it")
        try:
            first_counts(training)
        except SettingsError as error:
            raise SettingsError(
                f"fedips: position_bias: {training.position_bias:g} is too near 0 to estimate propensities, which "
                "start from it; from 1e-9 to 10"
            ) from error
        smallest = LOWEST_PROPENSITY
    else:
        smallest = float(position_propensities(training.position_bias, training.serp_length)[-1])
    most = MAX_ABS_DELTA / _CANDIDATES
    if training.learning_rate / smallest > most:
        raise SettingsError(
            f"fedips: learning_rate: {training.learning_rate:g} divided by the smallest propensity of a position, "
            f"{smallest:.3g}, is above {most:g}, and a click there would be more than an update holds; with this "
            f"position_bias and serp_length it is at most {most * smallest:.3g}"
        )


def _check_logging_policy(method: str, policy: bytes, n_features: int) -> None:
    if len(policy) != 4 * n_features:
        raise SettingsError(f"{method}: logging_policy: {len(policy) / 4:g} weights; the ranker has {n_features}")
    # The largest score of features in [0, 1]; NaN, too, is not below the bound.
    if not np.abs(unpack_vector(policy).astype(np.float64)).sum() <= np.finfo(np.float32).max:
        raise SettingsError(
            f"{method}: logging_policy: its weights must be finite numbers, and small enough for finite float32 scores"
        )


def n_auxiliary(training: AnyTraining, ranker: Ranker) -> int:
    """How many values the model has beside the ranker's: the relevance function of estimated propensities."""
    estimated = isinstance(training, FedIpsTraining) and training.propensities == "estimated"
    return ranker.n_features + 1 if estimated else 0


def initial_weights(training: AnyTraining, ranker: Ranker, rng: np.random.Generator) -> NDArray[np.float32]:
    """(n_weights + n_auxiliary,) the first model: zeros for a linear ranker, small random weights for a neural one."""
    extra = np.zeros(n_auxiliary(training, ranker), np.float32)
    if isinstance(ranker, LinearRankerSpec):
        return np.concatenate([np.zeros(ranker.n_weights, np.float32), extra])
    return np.concatenate([init_neural(ranker.n_features, ranker.hidden, rng), extra])


def make_device(
    training: AnyTraining, ranker: Ranker, weights: NDArray[np.float32], version: int, context: DeviceContext
) -> Device:
    """The device part for one global model.

    Args:
        weights: (n_weights + n_auxiliary,) of the global model.
        version: of the global model.

    Raises:
        SettingsError: as `check_method`.
    """
    check_method(training, ranker)
    match training:
        case PdgdTraining():
            return FpdgdDevice(ranker, weights, training.learning_rate)
        case FedProxTraining():
            return FpdgdDevice(ranker, weights, training.learning_rate, training.mu)
        case FpdgdPaperTraining():
            return FpdgdPaperDevice(ranker, weights, training)
        case EvolutionTraining():
            return EvolutionDevice(ranker, weights, version, training, context.device_seed)
    if isinstance(ranker, NeuralRankerSpec):
        if isinstance(training, FedPerTraining):
            return FedPerDevice(ranker, weights, training.learning_rate, context.local_state)
    elif isinstance(training, PersonalTraining):
        return PersonalDevice(ranker, weights, training, context.local_state)
    elif isinstance(training, FedIpsTraining | FedAvgTraining):
        return FedIpsDevice(ranker, weights, training, context)
    raise RuntimeError(f"{method_of(training)} on a {ranker.kind} ranker passed the check")


def make_aggregation(
    training: AnyTraining,
    ranker: Ranker,
    rule: RuleSpec = MEAN,
    *,
    n_expected: int | None = None,
    rng: np.random.Generator | None = None,
) -> Aggregation:
    """The federator part for one round.

    Args:
        rule: how updates become one.
        n_expected: how many updates will come, so that a rule that keeps them makes room for them once.
        rng: what the pre-step bucketing draws from; no other rule draws.

    Raises:
        SettingsError: as `check_rule`.
    """
    check_rule(training, ranker, rule)
    dim = ranker.n_weights + n_auxiliary(training, ranker)
    if isinstance(training, EvolutionTraining):
        return EvolutionAggregation(dim, training)
    spec = body_spec(training, ranker)
    step = training.server_learning_rate if isinstance(training, FedIpsTraining | FedAvgTraining) else None
    return DeltaAggregation(
        dim,
        start=spec.start,
        n_values=spec.n_values,
        by_interactions=step is None,
        step=1.0 if step is None else step,
        rule=rule,
        n_expected=n_expected,
        rng=rng,
    )


def check_rule(training: AnyTraining, ranker: Ranker, rule: RuleSpec) -> None:  # noqa: ARG001 (as `check_method`)
    """SettingsError, in words, where an aggregation rule makes no sense with the method or its ranker."""
    if is_plain_mean(rule):
        return
    if isinstance(training, EvolutionTraining):
        raise SettingsError(
            f"aggregation: foltr-es sends seeds and metrics, and {rule.text} compares differences of weights; "
            "choose aggregation = mean, or another method"
        )
    if isinstance(training, FpdgdPaperTraining):
        raise SettingsError(
            f"aggregation: the noise of fpdgd-paper protects clients only in the sum of all of them, and {rule.text} "
            "would take single updates; choose aggregation = mean, or method fpdgd"
        )


def body_spec(training: AnyTraining, ranker: Ranker) -> BodySpec:
    """What an update of this federation looks like."""
    dim = ranker.n_weights + n_auxiliary(training, ranker)
    if isinstance(training, EvolutionTraining):
        return BodySpec("evolution", dim, antithetic=training.antithetic)
    if isinstance(training, FedPerTraining) and isinstance(ranker, NeuralRankerSpec):
        return BodySpec("part", dim, 0, ranker.n_base_weights)
    return BodySpec("dense", dim, 0, dim)
