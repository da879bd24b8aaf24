"""Users of a broker are let in and shut out: devices, the services, and holders of one-time tokens.

Each has a password in the broker's file, or a certificate of the authority. A running broker reads new passwords at
`reload_broker`; certificates work without. A token's password is removed once the token is useless; its certificate
expires with the token, or is revoked.
"""

import math
from collections.abc import Collection
from datetime import timedelta
from pathlib import Path

from foltr.broker import passwords
from foltr.broker.authorities import issuing_authority, trusted_ca_certificates
from foltr.broker.broker_records import (
    CA_NAME,
    PASSWORDS_NAME,
    BrokerRecord,
    Mode,
    read_access,
    read_record,
    to_json,
    writing,
)
from foltr.broker.certificates import CERTIFICATE_DAYS, is_still_valid, issue_client, serial_of
from foltr.broker.files import replace_file
from foltr.broker.revocations import record_issued, revoke_all_of, revoke_all_of_each, write_revocations
from foltr.core.errors import SettingsError, UnavailableError
from foltr.core.operator.credentials import DESK_USER, FEDERATOR_USER, OPERATOR_USER, BrokerAccess
from foltr.core.protocol.topics import TOKEN_USERS, check_name, token_user
from foltr.core.user_files import resolve

SERVICES = {"federator": FEDERATOR_USER, "operator": OPERATOR_USER, "desk": DESK_USER}


def provision_users(operator_dir: Path, names: Collection[str]) -> dict[str, BrokerAccess]:
    """Let devices in. A known device gets a new password, or its certificate is revoked for a new one.

    Raises:
        SettingsError: no broker record or authority in ``operator_dir``, or a name is invalid.
        UnavailableError: a file cannot be written.
    """
    for name in names:
        check_name("name", name)
    return admit(resolve(operator_dir), read_record(operator_dir), names)


def withdraw_user(operator_dir: Path, name: str) -> bool:
    """Shut a device out; return and raise as `withdraw`, and SettingsError as `provision_users`."""
    check_name("name", name)
    return withdraw(operator_dir, read_record(operator_dir), name)


def provision_service(operator_dir: Path, service: str) -> BrokerAccess:
    """Let one of `SERVICES` in: ``SERVICE.broker.json`` in the operator's folder, kept while the broker accepts it.

    Raises:
        SettingsError: no broker record or authority in ``operator_dir``.
        UnavailableError: the password file cannot be written.
    """
    operator_dir = resolve(operator_dir)
    record, path = read_record(operator_dir), operator_dir / f"{service}.broker.json"
    kept = read_access(path) if path.exists() else None
    if kept is None or not _still_admits(operator_dir, record, SERVICES[service], kept):
        access = admit(operator_dir, record, [SERVICES[service]])[SERVICES[service]]
    else:
        access = kept.model_copy(update={"broker_url": record.broker_url, "ca": _ca(operator_dir)})
    if access != kept:
        replace_file(path, to_json(access))
    return access


def provision_tokens(operator_dir: Path, tokens: Collection[str], lasts: timedelta) -> dict[str, BrokerAccess]:
    """Let in the users of these tokens, who ask to be enrolled; by token. Raises as `provision_service`."""
    operator_dir, days = resolve(operator_dir), max(1, math.ceil(lasts / timedelta(days=1)))
    admitted = admit(operator_dir, read_record(operator_dir), [token_user(token) for token in tokens], days)
    return {token: admitted[token_user(token)] for token in tokens}


def withdraw_tokens(operator_dir: Path, revoked: Collection[str], open_tokens: Collection[str]) -> bool:
    """Shut out the users of useless tokens; return whether the broker has something to read.

    Args:
        revoked: tokens whose certificates are put on the list.
        open_tokens: tokens still let in by password; all others are not.

    Raises:
        UnavailableError: a file cannot be written.
    """
    operator_dir = resolve(operator_dir)
    record = read_record(operator_dir)
    file = Path(record.broker_dir, PASSWORDS_NAME)
    kept = {token_user(token) for token in open_tokens}
    with writing(file):
        if record.mode is Mode.PASSWORDS:
            return passwords.keep_users(file, TOKEN_USERS, kept)
        return revoke_all_of_each(operator_dir, file.parent, map(token_user, revoked))


def readmit_user(operator_dir: Path, user: str, former_certificate: str | None) -> BrokerAccess:
    """Give a user a new password or certificate; the former one stops working once the broker is reloaded.

    For credentials that others may have. The user's keys stay. If interrupted, repeat it: the last access counts.

    Args:
        user: its name at the broker.
        former_certificate: PEM text of the certificate it had, with client certificates.

    Raises:
        UnavailableError: the broker's folder is not on this machine, or cannot be written.
    """
    record = read_record(operator_dir)
    folder = folder_of(record)
    admitted = admit(operator_dir, record, [user])[user]
    with writing(folder):
        if record.mode is Mode.MTLS and former_certificate is not None:
            write_revocations(operator_dir, folder, [serial_of(former_certificate)])
        for service, name in SERVICES.items():
            if name == user:
                replace_file(operator_dir / f"{service}.broker.json", to_json(admitted))
    return admitted


def admit(
    operator_dir: Path, record: BrokerRecord, users: Collection[str], days: int = CERTIFICATE_DAYS
) -> dict[str, BrokerAccess]:
    """Let in users of any kind; their certificates last ``days``. Raises as `provision_service`."""
    url, ca = record.broker_url, _ca(operator_dir)
    if record.mode is Mode.PASSWORDS:
        chosen = {user: passwords.generate_password() for user in users}
        file = Path(record.broker_dir, PASSWORDS_NAME)
        with writing(file):
            passwords.set_users(file, chosen)
        return {
            user: BrokerAccess(broker_url=url, username=user, password=password, ca=ca)
            for user, password in chosen.items()
        }
    authority = issuing_authority(operator_dir)
    pairs = {user: issue_client(authority, user, days) for user in users}
    devices = {user: pair for user, pair in pairs.items() if user not in SERVICES.values()}
    with writing(operator_dir):
        record_issued(operator_dir, Path(record.broker_dir), devices)
    return {
        user: BrokerAccess(broker_url=url, username=user, ca=ca, certificate=pair.certificate_pem, key=pair.key_pem)
        for user, pair in pairs.items()
    }


def withdraw(operator_dir: Path, record: BrokerRecord, user: str) -> bool:
    """Shut out a user of any kind.

    Returns:
        whether the broker refuses it after its next reload. False if the broker's folder is not on this machine, or no
        certificate of the user is known.

    Raises:
        UnavailableError: a file cannot be written.
    """
    file = Path(record.broker_dir, PASSWORDS_NAME)
    with writing(file):
        if record.mode is Mode.MTLS:
            return revoke_all_of(operator_dir, file.parent, user)
        passwords.remove_user(file, user)
        return True


def folder_of(record: BrokerRecord) -> Path:
    """Return the broker's folder; UnavailableError if it is not on this machine."""
    folder = Path(record.broker_dir)
    if not folder.is_dir():
        raise UnavailableError(
            f"{folder} is not on this machine. Run this on the broker's machine, with the operator's folder."
        )
    return folder


def _still_admits(operator_dir: Path, record: BrokerRecord, user: str, kept: BrokerAccess) -> bool:
    if kept.username != user:
        return False
    if record.mode is Mode.PASSWORDS:
        file = Path(record.broker_dir, PASSWORDS_NAME)
        return kept.password is not None and passwords.accepts(file, user, kept.password)
    issuer = issuing_authority(operator_dir).certificate_pem
    return kept.certificate is not None and is_still_valid(kept.certificate, issuer)


def _ca(operator_dir: Path) -> str:
    try:
        return trusted_ca_certificates(operator_dir)
    except OSError as error:
        path = operator_dir / CA_NAME
        raise SettingsError(f"operator: {path}: {error.strerror}; `foltr broker config --tls` writes it") from error
