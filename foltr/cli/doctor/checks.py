"""What ``foltr doctor`` looks at on this machine: versions, packages, the credentials file."""

import importlib.util
import platform
import shutil
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import get_args

from foltr import __version__
from foltr.cli.settings import Settings
from foltr.errors import MessageError, SettingsError
from foltr.extras import MODULES, install_command
from foltr.operator.credentials import Credentials, Role, read_credentials
from foltr.protocol.enrolment import read_enrolment
from foltr.protocol.fields import SCHEMA_VERSION
from foltr.user_files import FileKind, read_json_file


class State(StrEnum):
    """How something is: ``problem`` must be mended, ``warning`` should be, ``absent`` is an optional part."""

    OK = "ok"
    PROBLEM = "problem"
    WARNING = "warning"
    ABSENT = "absent"


@dataclass(frozen=True)
class Finding:
    """One thing looked at. The detail of a problem says what to do."""

    what: str
    state: State
    detail: str


CERTIFICATE_WARNING_DAYS = 30
_BINARIES = "/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin:/opt/homebrew/sbin"


def installation() -> list[Finding]:
    """foltr itself, and the parts that only some machines need."""
    version = f"{__version__} on Python {platform.python_version()}, speaks schema version {SCHEMA_VERSION}"
    findings = [Finding("foltr", State.OK, version)]
    for extra, modules in MODULES.items():
        missing = [module for module in modules if importlib.util.find_spec(module) is None]
        detail = f"no {', '.join(missing)}; if this machine needs it: {install_command(extra)}"
        findings.append(
            Finding(f"extra {extra}", State.ABSENT, detail)
            if missing
            else Finding(f"extra {extra}", State.OK, "installed")
        )
    found = shutil.which("mosquitto", path=_BINARIES)
    detail = found or "not on this machine; needed only where the broker runs"
    return [*findings, Finding("mosquitto", State.OK if found else State.ABSENT, detail)]


def credentials(settings: Settings) -> tuple[list[Finding], Credentials | None]:
    """The credentials file, whatever its role: closed to others, whole, and its enrolment what it should be."""
    if settings.credentials is None:
        detail = "none given: looked at as nobody in particular; a process has a file from `foltr device enrol`"
        return [Finding("credentials", State.ABSENT, detail)], None
    path = Path(settings.credentials)
    try:
        found = read_credentials(path, role_of(path))
        if "federation" in settings.model_fields_set and settings.federation != found.federation:
            raise SettingsError(
                f"federation: {settings.federation!r} was given, but {path} is for {found.federation!r}; "
                "leave one of the two out"
            )
    except SettingsError as error:
        return [Finding("credentials", State.PROBLEM, str(error))], None
    detail = f"{path}: {found.role} {found.name} of the federation {found.federation}; closed to others"
    findings = [Finding("credentials", State.OK, detail)]
    if found.role == "device":
        findings.append(_enrolment(found))
    if found.broker.certificate is not None:
        findings.append(
            _certificate("client certificate", found.broker.certificate, "enrol it anew: foltr device enrol")
        )
    if found.broker.ca is not None:
        advice = "make a new one before it ends: `foltr broker config` in new folders, and enrol everybody anew"
        findings.append(_certificate("authority", found.broker.ca, advice))
    return findings, found


def days_left(what: str, who: str, not_after: float, advice: str) -> Finding:
    """A certificate that ends at ``not_after`` (epoch seconds), and what to do before it does."""
    days = (not_after - time.time()) / 86_400
    if days < 0:
        return Finding(what, State.PROBLEM, f"{who}; it ended {-days:.0f} days ago: {advice}")
    if days < CERTIFICATE_WARNING_DAYS:
        return Finding(what, State.WARNING, f"{who}; it ends in {days:.0f} days: {advice}")
    return Finding(what, State.OK, f"{who}, valid for {days:.0f} days more")


def role_of(path: Path) -> Role:
    """The role the file says it is for; anything else fails in `read_credentials`, with its own words."""
    try:
        role = read_json_file(path, FileKind.CREDENTIALS)["role"]
    except (OSError, ValueError, KeyError, TypeError):
        return "device"
    return role if role in get_args(Role) else "device"


def _enrolment(device: Credentials) -> Finding:
    again = "ask the operator for a new file: foltr device enrol --replace"
    payload = device.enrolment_bytes
    if payload is None:
        return Finding("enrolment", State.PROBLEM, f"the file holds none; {again}")
    try:
        enrolment = read_enrolment(payload, device.enrolment_public_key, device.federation, device.name)
    except MessageError as error:
        return Finding("enrolment", State.PROBLEM, f"{error.detail}; {again}")
    if enrolment.public_key != device.key.public:
        return Finding("enrolment", State.PROBLEM, f"it is for another key than the one in the file; {again}")
    issued = datetime.fromtimestamp(enrolment.issued_at, UTC)
    detail = f"signed by the operator on {issued:%Y-%m-%d}, serial {enrolment.serial}; it does not expire"
    return Finding("enrolment", State.OK, detail)


def _certificate(what: str, pem: str, advice: str) -> Finding:
    from cryptography.x509 import load_pem_x509_certificate

    try:
        certificate = load_pem_x509_certificate(pem.encode())
    except ValueError:
        return Finding(what, State.PROBLEM, f"it is no certificate in PEM form; {advice}")
    name = certificate.subject.rfc4514_string()
    return days_left(what, name, certificate.not_valid_after_utc.timestamp(), advice)
