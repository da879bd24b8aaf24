"""Which method and ranker a command was asked for."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from foltr.errors import SettingsError
from foltr.settings import Settings, read_assignments

if TYPE_CHECKING:
    from foltr.methods.registry import AnyTraining, Ranker


def read_parameters(assignments: Sequence[str] | None) -> dict[str, str] | None:
    """What ``--set name=value`` options say; None where there are none."""
    try:
        return read_assignments(assignments) if assignments else None
    except ValueError as error:
        raise SettingsError(f"--set: {error}") from error


def chosen_method(settings: Settings, n_features: int, n_clients: int, **extra: Any) -> "tuple[AnyTraining, Ranker]":
    """The announced settings of the method, and the ranker; SettingsError where they make no sense together.

    Args:
        n_clients: who shares the noise of fpdgd-paper, unless its parameters say.
        extra: parameters that no text can give, e.g. a logging policy.
    """
    from foltr.methods.registry import check_method, parameters_of, ranker_for, training_for

    known = parameters_of(settings.method)
    parameters: dict[str, object] = {**settings.method_parameters, **extra}
    if "n_clients" in known:
        parameters.setdefault("n_clients", n_clients)
    if settings.learning_rate is not None:
        if "learning_rate" not in known:
            raise SettingsError(f"learning_rate: {settings.method} has none on the devices; it has {', '.join(known)}")
        parameters.setdefault("learning_rate", settings.learning_rate)
    training = training_for(settings.method, parameters, settings.interactions)
    ranker = ranker_for(settings.ranker, n_features, settings.hidden)
    check_method(training, ranker)
    return training, ranker
