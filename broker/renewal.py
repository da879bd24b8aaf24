"""Gives a broker a new key and certificate, e.g. when the key may have been copied.

The old key can impersonate the broker until the old certificate expires: devices do not check revocation. Only a new
authority (`foltr.broker.authorities`) or a short validity (``days``) ends that.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from foltr.broker.authorities import trusted_ca_certificates
from foltr.broker.broker_records import (
    CA_NAME,
    SERVER_CERTIFICATE_NAME,
    SERVER_KEY_NAME,
    Mode,
    read_record,
    writing,
)
from foltr.broker.certificates import CERTIFICATE_DAYS, KeyPair, expiry_of, hosts_of, issue_server
from foltr.broker.files import locked, owner_of, replace_file
from foltr.broker.revocations import write_revocations
from foltr.broker.users import SERVICES, folder_of, provision_service
from foltr.core.errors import SettingsError
from foltr.core.user_files import FileKind, read_text_file


@dataclass(frozen=True)
class Renewal:
    """A completed renewal: the new certificate's hosts and end, and when the old one would have ended."""

    hosts: tuple[str, ...]
    ends: datetime
    old_ends: datetime | None


def renew_server(
    operator_dir: Path, authority: KeyPair, *, hosts: Sequence[str] = (), days: int = CERTIFICATE_DAYS
) -> Renewal:
    """Write a new key and certificate into the broker's folder; a running broker takes them when it is reloaded.

    An interruption between the two files leaves a pair that does not match, which no broker takes: a running one keeps
    what it has loaded. Run it again to repair that.

    Args:
        authority: issues the certificate.
        hosts: what devices connect to; empty: those of the present certificate.
        days: how long it lasts, but never longer than the authority.

    Raises:
        SettingsError: a host is invalid, or no certificate exists to take the hosts from.
        UnavailableError: the broker's folder is not on this machine, or cannot be written.
    """
    folder = folder_of(read_record(operator_dir))
    key, certificate = folder / SERVER_KEY_NAME, folder / SERVER_CERTIFICATE_NAME
    with writing(folder), locked(folder):
        before = read_text_file(certificate, FileKind.CERTIFICATES) if certificate.exists() else None
        wanted = tuple(hosts) or _hosts_before(before, certificate)
        pair = issue_server(authority, wanted, days)
        replace_file(key, pair.key_pem, owner=owner_of(key))
        replace_file(certificate, pair.certificate_pem, mode=0o644, owner=owner_of(certificate))
    return Renewal(wanted, expiry_of(pair.certificate_pem), None if before is None else expiry_of(before))


def distribute_authorities(operator_dir: Path) -> None:
    """Give the broker and the two services' credentials the authorities that are trusted now.

    With client certificates, restart the broker: Mosquitto reads which authorities to trust when it starts.

    Raises:
        SettingsError: an authority is damaged.
        UnavailableError: the broker's folder is not on this machine, or cannot be written.
    """
    record = read_record(operator_dir)
    folder = folder_of(record)
    with writing(folder):
        replace_file(folder / CA_NAME, trusted_ca_certificates(operator_dir), mode=0o644)
        if record.mode is Mode.MTLS:
            write_revocations(operator_dir, folder)
        for service in SERVICES:
            provision_service(operator_dir, service)


def _hosts_before(certificate_pem: str | None, path: Path) -> tuple[str, ...]:
    if certificate_pem is None:
        raise SettingsError(f"host: {path} is missing; say what devices connect to with --host")
    try:
        return hosts_of(certificate_pem)
    except ValueError:
        raise SettingsError(f"host: {path} cannot be read; say what devices connect to with --host") from None
