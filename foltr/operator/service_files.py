"""The services' credentials in an operator's folder, ``federator.json`` and ``operator.json``, are kept up to date.

``federator.json`` is passed over where it was moved to the federator's machine.
"""

import base64
from pathlib import Path

from foltr.operator.credentials import BrokerAccess, Credentials, read_credentials, write_credentials
from foltr.protocol.signed_policies import SignedPolicy


def carry_policy(folder: Path, operator: Credentials, newest: SignedPolicy | None) -> Credentials:
    """Let the credentials of the services in an operator's folder carry the newest policy.

    A federator whose credentials were moved away hears of it from the broker.

    Returns:
        the operator's, as they are now.
    """
    policy = None if newest is None else base64.b64encode(newest.signed).decode()
    if operator.policy == policy:
        return operator
    path = folder / "federator.json"
    if path.exists():
        federator = read_credentials(path, "federator")
        write_credentials(path, federator.model_copy(update={"policy": policy}))
    operator = operator.model_copy(update={"policy": policy})
    # Last, as it tells that the rest is done.
    write_credentials(folder / "operator.json", operator)
    return operator


def refresh_access(
    folder: Path, current: Credentials, *, federator: BrokerAccess, operator: BrokerAccess
) -> tuple[Credentials, list[Path]]:
    """Replace how the services reach the broker.

    Args:
        current: the operator's credentials.

    Returns:
        the operator's, as they are now, and the files that changed.
    """
    changed = []
    path = folder / "federator.json"
    if path.exists():
        credentials = read_credentials(path, "federator")
        if credentials.broker != federator:
            write_credentials(path, credentials.model_copy(update={"broker": federator}))
            changed.append(path)
    if current.broker != operator:
        current = current.model_copy(update={"broker": operator})
        write_credentials(folder / "operator.json", current)
        changed.append(folder / "operator.json")
    return current, changed
