"""The names of all methods that can be simulated: those of the service and simulator-only ones."""

from collections.abc import Mapping

from foltr.core.errors import SettingsError
from foltr.core.installed_plugins import also_installed
from foltr.core.methods.registry import METHODS, methods_with, parameters_of, spec_of
from foltr.core.methods.spec import Lists
from foltr.core.protocol.trainings import Training

# Not federations, so no service runs them. They learn by PDGD unless the text says otherwise.
SIMULATOR_METHODS: Mapping[str, str] = {
    "pdgd": "one learner sees the interactions of all clients, one after the other",
    "pdgd-batch": "one learner adds up the gradients of a round's interactions, all taken at the same weights",
    "lambdarank": "one learner sees the relevance grades; a round is an epoch",
    "local": "every client learns alone: the control of personal methods",
}
LAMBDARANK_LEARNING_RATE = 0.003


def all_methods() -> tuple[str, ...]:
    """Return the names of the service's methods and of simulator-only ones."""
    return (*METHODS, *SIMULATOR_METHODS)


def check_name_of_method(method: str) -> None:
    """Raise SettingsError with all known names for an unknown method."""
    if method not in all_methods():
        raise SettingsError(
            f"method: unknown {method!r}; known are {', '.join(all_methods())}"
            + also_installed("foltr.methods", all_methods())
        )


def has_personal_rankers(method: str) -> bool:
    """Return whether a client's ranker is not the shared one, so that it is evaluated client by client."""
    return METHODS[method].personal if method in METHODS else method == "local"


def check_votes(method: str, training: Training, mechanism: str | None, norm_proof: str) -> None:
    """Raise SettingsError unless devices with this method can vote, and their votes can be counted.

    Args:
        mechanism: of secure sums; None if the federator sees every vote.
    """
    if mechanism == "gamma":
        raise SettingsError("take_back: votes in secure sums go with gaussian noise; choose mechanism = gaussian")
    if mechanism is not None and norm_proof == "none":
        raise SettingsError("take_back: in a secure sum each vote needs a proof; choose norm_proof = l2")
    voting = ", ".join(name for name, spec in METHODS.items() if spec.no_votes_because is None)
    if method in SIMULATOR_METHODS:
        raise SettingsError(f"take_back: {method} has no devices that could vote; choose one of {voting}")
    cause = spec_of(training).no_votes_because
    if cause is not None:
        raise SettingsError(f"take_back: {cause}; choose one of {voting}")


def methods_by_pdgd() -> list[str]:
    """Return the names of the methods that learn by PDGD, and so from drawn lists."""
    return sorted({*methods_with(Lists.DRAWN), *SIMULATOR_METHODS} - {"lambdarank"})


def simulated_parameters_of(method: str) -> dict[str, str]:
    """Return `parameters_of` a method, also a simulator-only one, without those that the simulator sets."""
    if method == "lambdarank":
        return {"learning_rate": str(LAMBDARANK_LEARNING_RATE)}
    known = parameters_of("fpdgd" if method in SIMULATOR_METHODS else method)
    return {name: default for name, default in known.items() if name != "logging_policy"}
