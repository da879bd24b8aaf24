"""Says whether a federator's keys still count: the operator may give it another one, or have another one itself."""

from foltr.core.errors import SettingsError
from foltr.core.protocol.operator_keys import is_or_was
from foltr.core.protocol.signing import SigningKey
from foltr.federator.deciding.state import FederationState
from foltr.federator.plan import FederationPlan


def is_replaced(state: FederationState, plan: FederationPlan, key: SigningKey | None) -> bool:
    """Whether the operator has given the federator a key above this one's, or has one itself that is not known.

    A database that was restored names former ones, until it has the orders again that it lost.
    """
    operator = plan.enrolment_key
    if operator is not None and state.operator_key is not None and not is_or_was(operator, state.operator_key):
        return True
    if state.federator_key is None or key is None or state.key_sequence < plan.key_sequence:
        return False
    return state.federator_key != key.public


def key_replaced(federation: str) -> SettingsError:
    """Say that this federator's key, or the one that it believes the operator by, counts no more."""
    return SettingsError(
        f"credentials: the operator has given the federator of {federation!r} another key, or has another one itself, "
        "and devices believe no other. Start it with the newest federator.json of the operator's folder"
    )
