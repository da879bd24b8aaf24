"""Which method and ranker a command was asked for."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foltr.cli.settings import Settings
from foltr.errors import SettingsError
from foltr.numerics.array_files import read_array_file
from foltr.protocol.fields import pack_vector
from foltr.user_files import FileKind

if TYPE_CHECKING:
    from foltr.aggregation.rule_spec import RuleSpec
    from foltr.methods.registry import Ranker
    from foltr.protocol.trainings import Training


def read_logging_policy(settings: Settings) -> dict[str, bytes]:
    """What the file of `Settings.logging_policy` adds to the method's parameters; nothing where none is set.

    Raises:
        SettingsError: the method has no logging policy, or the file does not hold one weight for each feature.
    """
    from foltr.methods.registry import methods_with, parameters_of
    from foltr.methods.spec import Lists

    if settings.logging_policy is None:
        return {}
    if "logging_policy" not in parameters_of(settings.method):
        raise SettingsError(
            f"logging_policy: {settings.method} shows the lists of the model it learns; "
            f"another ranker's are for the methods {' and '.join(methods_with(Lists.LOGGED))}"
        )
    path = Path(settings.logging_policy)
    try:
        weights = read_array_file(path, FileKind.DECLARATION)
    except OSError as error:
        raise SettingsError(f"logging_policy: cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise SettingsError(
            f"logging_policy: {path} is not a .npy file, as `foltr models export` writes them"
        ) from error
    if weights.dtype != np.float32 or weights.shape != (settings.n_features,):
        raise SettingsError(
            f"logging_policy: {path} holds {weights.dtype} values of shape {weights.shape}; "
            f"expected one float32 weight for each of the {settings.n_features} features"
        )
    return {"logging_policy": pack_vector(weights)}


def choose_rule(settings: Settings, n_sums: int = 1) -> "RuleSpec":
    """The rule by which updates become one; SettingsError for one that does not exist or can never be used.

    Args:
        n_sums: of a round with secure sums. Several are made for a rule that compares them, so the median is the
            default: one hostile device then spoils one of them, and not the model.
    """
    from foltr.aggregation.rule_spec import read_rule

    by_default = n_sums > 1 and "aggregation" not in settings.model_fields_set
    return read_rule(
        "median" if by_default else settings.aggregation,
        byzantine=settings.byzantine,
        parameters=settings.aggregation_parameters,
        fallback=settings.aggregation_fallback,
    )


def choose_method(settings: Settings, n_features: int, n_clients: int, **extra: Any) -> "tuple[Training, Ranker]":
    """The announced settings of the method, and the ranker; SettingsError where they make no sense together.

    Args:
        n_clients: who shares the noise of fpdgd-paper, unless its parameters say.
        extra: parameters that no text can give, i.e. a logging policy; one given as text is refused all the same.
    """
    from foltr.methods.registry import (
        check_method,
        parameters_of,
        ranker_of_method,
        training_for,
        usual_learning_rate,
    )
    from foltr.protocol.explorations import read_exploration

    known = parameters_of(settings.method)
    parameters: dict[str, object] = {**extra, **settings.method_parameters}
    if "n_clients" in known:
        parameters.setdefault("n_clients", n_clients)
    if settings.learning_rate is not None:
        if "learning_rate" not in known:
            raise SettingsError(f"learning_rate: {settings.method} has none on the devices; it has {', '.join(known)}")
        parameters.setdefault("learning_rate", settings.learning_rate)
    asked = None if settings.exploration is None else read_exploration(settings.exploration)
    usual = usual_learning_rate(settings.method, settings.ranker, asked)
    if usual is not None:
        parameters.setdefault("learning_rate", usual)
    training = training_for(settings.method, parameters, settings.interactions, asked)
    ranker = ranker_of_method(settings.method, settings.ranker, n_features, settings.hidden, settings.activation)
    check_method(training, ranker)
    return training, ranker
