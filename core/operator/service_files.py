"""Updates the services' credentials in an operator's folder, ``federator.json`` and ``operator.json``.

``federator.json`` is skipped if it was moved to the federator's machine. The federator's next key is in
``federator-N.json`` from before it is ordered until it is in force.
"""

import base64
from collections.abc import Iterable
from pathlib import Path

from foltr.core.operator.credentials import (
    FEDERATOR_USER,
    BrokerAccess,
    Credentials,
    read_credentials,
    write_credentials,
    write_secret,
)
from foltr.core.operator.enrolment_rotation import kept_enrolments_of
from foltr.core.protocol.enrolment import issue_federator_key
from foltr.core.protocol.policies import Policy
from foltr.core.protocol.roster import FederatorKey
from foltr.core.protocol.signed_policies import SignedPolicy
from foltr.core.protocol.signing import SigningKey, key_to_text
from foltr.core.secure.sealing import SealingKey


def update_service_policies(folder: Path, operator: Credentials, newest: SignedPolicy | None) -> Credentials:
    """Put the newest policy into the services' credentials in an operator's folder.

    A federator whose credentials were moved away gets it from the broker.

    Returns:
        the operator's changed credentials.
    """
    policy = None if newest is None else base64.b64encode(newest.signed).decode()
    if operator.policy == policy:
        return operator
    path = folder / "federator.json"
    if path.exists():
        federator = read_credentials(path, "federator")
        write_credentials(path, federator.model_copy(update={"policy": policy}))
    operator = operator.model_copy(update={"policy": policy})
    # Last: it shows that the rest is done.
    write_credentials(folder / "operator.json", operator)
    return operator


def refresh_access(
    folder: Path, current: Credentials, *, federator: BrokerAccess, operator: BrokerAccess
) -> tuple[Credentials, list[Path]]:
    """Replace the services' access to the broker.

    Args:
        current: the operator's credentials.

    Returns:
        the operator's changed credentials, and the files that changed.
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


def prepare_federator(
    folder: Path, operator: Credentials, access: BrokerAccess, policies: Iterable[Policy]
) -> Credentials:
    """Write the credentials of the federator's next key to a separate file, and return them.

    Args:
        operator: its credentials.
        access: how the federator reaches the broker, if its credentials were moved away.
        policies: those that may be in force. Former sealing keys that they are sealed to stay.
    """
    path, key, sealing_keys = folder / "federator.json", SigningKey.generate(), [SealingKey.generate()]
    if path.exists():
        former = read_credentials(path, "federator")
        access = former.broker
        needed = {policy.norm_proof.federator_key for policy in policies if policy.norm_proof is not None}
        sealing_keys += [each for each in former.opened_sealing_keys if each.public in needed]
    credentials = operator.model_copy(
        update={
            "role": "federator",
            "name": FEDERATOR_USER,
            "broker": access,
            "signing_key": key.to_text(),
            "federator_key": key_to_text(key.public),
            "federator_key_sequence": operator.federator_key_sequence + 1,
            "sealing_keys": tuple(key_to_text(each.private) for each in sealing_keys),
            "federator_sealing_key": None,
            "kept_enrolments": kept_enrolments_of(folder),
        }
    )
    write_credentials(_prepared(folder, credentials.federator_key_sequence), credentials)
    return credentials


def adopt_federator_key(
    folder: Path, operator: Credentials, statement: FederatorKey, enrolment_key: SigningKey
) -> Credentials:
    """Replace the federator's credentials by the prepared ones; return the operator's changed credentials."""
    write_secret(folder / "federator-key.bin", issue_federator_key(enrolment_key, statement), replace=True)
    path, prepared = folder / "federator.json", _prepared(folder, statement.sequence)
    if prepared.exists():
        prepared.replace(path)
    operator = operator.model_copy(
        update={
            "federator_key": key_to_text(statement.new_key),
            "federator_key_sequence": statement.sequence,
            "federator_sealing_key": _sealing_key_of(path, statement.sequence),
        }
    )
    # Last: it shows that the rest is done.
    write_credentials(folder / "operator.json", operator)
    return operator


def _prepared(folder: Path, sequence: int) -> Path:
    return folder / f"federator-{sequence}.json"


def _sealing_key_of(path: Path, sequence: int) -> str | None:
    """The public sealing key in the federator's credentials; None if those of this sequence are elsewhere."""
    federator = read_credentials(path, "federator") if path.exists() else None
    if federator is None or federator.federator_key_sequence != sequence or not federator.sealing_keys:
        return None
    return key_to_text(federator.opened_sealing_keys[0].public)
