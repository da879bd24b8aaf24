"""What ``foltr doctor`` looks at on this machine: its version, and the credentials file with what is in it."""

import platform
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from cryptography.x509 import load_pem_x509_certificate

from foltr.cli.doctor.checks import Check, Found, absent, ok, problem, role_of, warning
from foltr.cli.settings import Settings
from foltr.core.errors import MessageError, SettingsError
from foltr.core.operator.credentials import Credentials, read_credentials
from foltr.core.protocol.enrolment import read_enrolment
from foltr.core.protocol.fields import SCHEMA_VERSION
from foltr.core.version import __version__

_WARNING_DAYS: Final = 30


@dataclass
class Machine:
    """Who looks: the check of the credentials fills them in."""

    settings: Settings
    credentials: Credentials | None = None


def _version(_: Machine) -> Found:
    return ok(f"{__version__} on Python {platform.python_version()}, speaks schema version {SCHEMA_VERSION}")


def _credentials(machine: Machine) -> Found:
    """Read the file of any role."""
    settings = machine.settings
    if settings.credentials is None:
        return absent("none given: looked at as nobody in particular; a process has a file from `foltr device enrol`")
    path = Path(settings.credentials)
    found = read_credentials(path, role_of(path))
    if "federation" in settings.model_fields_set and settings.federation != found.federation:
        raise SettingsError(
            f"federation: {settings.federation!r} was given, but {path} is for {found.federation!r}; leave one out"
        )
    machine.credentials = found
    return ok(f"{path}: {found.role} {found.name} of the federation {found.federation}; closed to others")


def _enrolment(machine: Machine) -> Found | None:
    device = machine.credentials
    if device is None or device.role != "device":
        return None
    payload = device.enrolment_bytes
    if payload is None:
        return problem("the credentials file holds none")
    try:
        enrolment = read_enrolment(payload, device.enrolment_public_key, device.federation, device.name)
    except MessageError as error:
        return problem(error.detail)
    if enrolment.public_key != device.key.public:
        return problem("it is for another key than the one in the credentials file")
    issued = datetime.fromtimestamp(enrolment.issued_at, UTC)
    return ok(f"signed by the operator on {issued:%Y-%m-%d}, serial {enrolment.serial}; it does not expire")


def _lasting(machine: Machine, name: str) -> Found | None:
    """Judge a certificate of the credentials: the client's own, or the authority's."""
    pem = None if machine.credentials is None else getattr(machine.credentials.broker, name)
    if pem is None:
        return None
    try:
        certificate = load_pem_x509_certificate(pem.encode())
    except ValueError:
        return problem("it is no certificate in PEM form")
    return days_left(certificate.subject.rfc4514_string(), certificate.not_valid_after_utc.timestamp())


def days_left(who: str, not_after: float) -> Found:
    """Judge a certificate that ends at ``not_after`` (epoch seconds)."""
    days = (not_after - time.time()) / 86_400
    if days < 0:
        return problem(f"{who}; it ended {-days:.0f} days ago")
    if days < _WARNING_DAYS:
        return warning(f"{who}; it ends in {days:.0f} days")
    return ok(f"{who}, valid for {days:.0f} days more")


_NEW_AUTHORITY: Final = "Make another with `foltr broker config` in new folders, and enrol everybody again"
MACHINE: Final = (
    Check("foltr", _version),
    Check("credentials", _credentials, is_gate=True),
    Check("enrolment", _enrolment, "Ask the operator for a new file: foltr device enrol --replace"),
    Check("client certificate", partial(_lasting, name="certificate"), "Enrol it again: foltr device enrol --replace"),
    Check("authority", partial(_lasting, name="ca"), _NEW_AUTHORITY),
)
