"""Builds the chosen method and ranker, and reads the files that a federator starts with."""

from pathlib import Path
from typing import Any

import numpy as np

from foltr.cli.setting_groups import Defence, Learning
from foltr.core.aggregation.rule_spec import RuleSpec, read_rule
from foltr.core.errors import SettingsError
from foltr.core.methods.initial_models import InitialModel
from foltr.core.methods.registry import (
    Ranker,
    check_method,
    methods_with,
    parameters_of,
    ranker_of_method,
    training_for,
    usual_learning_rate,
)
from foltr.core.methods.spec import Lists
from foltr.core.numerics.array_files import read_array_file
from foltr.core.protocol.explorations import read_exploration
from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.schemas import FeatureSchema
from foltr.core.protocol.trainings import Training
from foltr.core.user_files import FileKind


def read_logging_policy(learning: Learning) -> dict[str, bytes]:
    """Return the method's parameters from the file of `Learning.logging_policy`. Empty if none is set.

    Raises:
        SettingsError: the method has no logging policy, or the file does not hold one weight for each feature.
    """
    if learning.logging_policy is None:
        return {}
    if "logging_policy" not in parameters_of(learning.method):
        raise SettingsError(
            f"logging_policy: {learning.method} shows the lists of the model it learns, so leave it out; "
            f"{' and '.join(methods_with(Lists.LOGGED))} use another ranker's lists"
        )
    path = Path(learning.logging_policy)
    try:
        weights = read_array_file(path, FileKind.DECLARATION)
    except OSError as error:
        raise SettingsError(f"logging_policy: cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise SettingsError(
            f"logging_policy: {path} is not a .npy file, as `foltr models export` writes them"
        ) from error
    if weights.dtype != np.float32 or weights.shape != (learning.n_features,):
        raise SettingsError(
            f"logging_policy: {path} holds {weights.dtype} values of shape {weights.shape}; "
            f"expected one float32 weight for each of the {learning.n_features} features"
        )
    return {"logging_policy": pack_vector(weights)}


def choose_rule(defence: Defence, n_sums: int = 1) -> "RuleSpec":
    """Return the aggregation rule. Raises SettingsError if it does not exist or can never be used.

    Args:
        n_sums: secure sums of a round. Several are made for a rule that compares them, so the default is then the
            median: one hostile device spoils one sum, and not the model.
    """
    by_default = n_sums > 1 and "aggregation" not in defence.model_fields_set
    return read_rule(
        "median" if by_default else defence.aggregation,
        byzantine=defence.byzantine,
        parameters=defence.aggregation_parameters,
        fallback=defence.aggregation_fallback,
    )


def choose_method(learning: Learning, n_features: int, n_clients: int, **extra: Any) -> "tuple[Training, Ranker]":
    """Return the method's announced settings and the ranker. Raises SettingsError if they contradict each other.

    Args:
        n_clients: number that shares the noise of fpdgd-paper, unless a parameter sets it.
        extra: parameters that cannot be given as text: a logging policy. As text it is refused.
    """
    known = parameters_of(learning.method)
    parameters: dict[str, object] = {**extra, **learning.method_parameters}
    if "n_clients" in known:
        parameters.setdefault("n_clients", n_clients)
    asked = None if learning.exploration is None else read_exploration(learning.exploration)
    usual = usual_learning_rate(learning.method, learning.ranker, asked)
    if usual is not None:
        parameters.setdefault("learning_rate", usual)
    training = training_for(learning.method, parameters, learning.interactions, asked)
    ranker = ranker_of_method(learning.method, learning.ranker, n_features, learning.hidden)
    check_method(training, ranker)
    return training, ranker


def read_schema_setting(learning: Learning) -> "tuple[Learning, FeatureSchema | None]":
    """Read the schema, if one is set, and set the number of features from it.

    Raises:
        SettingsError: it cannot be read, or a different number of features is set.
    """
    if learning.feature_schema is None:
        return learning, None
    schema = FeatureSchema.read(learning.feature_schema)
    if "n_features" in learning.model_fields_set and learning.n_features != schema.n_features:
        raise SettingsError(
            f"n_features: {learning.n_features}, but {learning.feature_schema} has {schema.n_features}; "
            "leave n_features out, the schema says how many"
        )
    return learning.model_copy(update={"n_features": schema.n_features}), schema


def read_initial_model(learning: Learning, ranker: "Ranker", schema: "FeatureSchema | None") -> bytes | None:
    """Return the stored form of the initial weights. None if no file is set.

    Raises:
        SettingsError: the file is malformed, or for another ranker or schema.
    """
    if learning.initial_model is None:
        return None
    return pack_vector(InitialModel.read(learning.initial_model).weights_of(ranker, schema))
